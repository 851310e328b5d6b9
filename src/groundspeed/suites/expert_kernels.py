"""The files of our expert kernels, and how their launches are compiled without a GPU. The same kernels do plain matrix
products."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES, Case
from groundspeed.kernels.moe import reference

if TYPE_CHECKING:
    from torch import Tensor

_CALLED = ("form", "grouping", "dense", "../calls", "../launch", "../recall")
_LAYER = ("router", "few_tokens", "exchange", "layer", "api")
_HOPPER = (*(f"hopper/{part}" for part in ("schedule", "pipe", "consumer", "choice", "launch")), "../hopper")


def files(*, hopper: bool, layer: bool) -> dict[str, Any]:
    """Return `source` and `parts` of a contender."""
    parts = (*(_HOPPER if hopper else ()), *_CALLED, *(_LAYER if layer else ()))
    return {"source": _path("hopper/kernel" if hopper else "grouped_gemm"), "parts": tuple(map(_path, parts))}


def _path(module: str) -> str:
    return str((Path(reference.__file__).parent / f"{module}.py").resolve())


def without_odd_rows(*keys: str) -> Any:
    def supports(case: Case, device: str) -> str | None:
        odd = any(int(case.params[key]) % 8 for key in keys)
        return "TMA reads only rows whose length is a multiple of 8 elements" if odd else None

    return supports


def empty(case: Case, *sizes: tuple[int, ...]) -> list[Tensor]:
    """Return tensors of the case's dtype without memory."""
    import torch

    dtype = getattr(torch, TORCH_DTYPES[str(case.params["dtype"])])
    return [torch.empty(size, dtype=dtype, device="meta") for size in sizes]


def compile_product(case: Case, M: int, N: int, K: int, capability: tuple[int, int], *, hopper: bool) -> None:
    from groundspeed.kernels.moe.dense import prepared

    a, b = empty(case, (M, K), (N, K))
    prepared(a, b, capability=capability, hopper=hopper)(a, b)
