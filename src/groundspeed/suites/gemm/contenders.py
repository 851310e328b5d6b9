"""The contenders of a matrix product: cuBLAS, as PyTorch calls it, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES, Case, Contender
from groundspeed.kernels.moe import reference
from groundspeed.suites.available import (
    expect,
    reasons,
    sixteen_bit_on_gpu,
    torch_version,
    triton_version,
    without_hopper,
    without_torch,
    without_triton,
)

if TYPE_CHECKING:
    from torch import Tensor

COMPILED_BY: tuple[str, ...] = ()
LIBRARY = "pytorch"
_CALLED = ("form", "grouping", "dense", "../calls", "../launch", "../recall")
_HOPPER = (*(f"hopper/{part}" for part in ("schedule", "pipe", "consumer", "choice", "launch")), "../hopper")


def contenders() -> list[Contender]:
    ours = partial(Contender, "gemm", version=triton_version, tuning="tiles from a table; calls try nothing")
    return [
        Contender(
            "gemm",
            LIBRARY,
            "PyTorch's own: cuBLAS on a GPU, in FP8 by _scaled_mm",
            _library,
            absent=without_torch,
            supports=_without_fp8_on_cpu,
            version=torch_version,
            tuning="cuBLAS's own heuristic",
        ),
        ours(
            "ours-portable",
            "groundspeed's kernel of the experts, in portable Triton",
            _ours(hopper=False),
            absent=without_triton,
            supports=_without_fp8(sixteen_bit_on_gpu),
            source=_kernel_source("grouped_gemm"),
            parts=tuple(map(_kernel_source, _CALLED)),
            launches=expect("moe_grouped_gemm_kernel"),
            compiles=partial(_compile, hopper=False),
        ),
        ours(
            "ours-hopper",
            "groundspeed's kernel of the experts, in Gluon for Hopper",
            _ours(hopper=True),
            absent=without_hopper,
            supports=_without_fp8(reasons(sixteen_bit_on_gpu, _without_odd_rows)),
            source=_kernel_source("hopper/kernel"),
            parts=tuple(map(_kernel_source, (*_HOPPER, *_CALLED))),
            launches=expect("moe_grouped_gemm_hopper"),
            compiles=partial(_compile, hopper=True),
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    return {}


def _library(case: Case) -> Callable[..., Tensor]:
    import torch
    from torch.nn.functional import linear

    if case.params["dtype"] != "fp8":
        return lambda a, b: linear(a, b)
    ones: list[Tensor] = []

    def scaled(a: Tensor, b: Tensor) -> Tensor:
        if not ones:  # in the first call, which is never timed
            ones.append(torch.ones((), device=a.device))
        return torch._scaled_mm(a, b.T, scale_a=ones[0], scale_b=ones[0], out_dtype=torch.bfloat16)

    return scaled


def _ours(*, hopper: bool) -> Callable[[Case], Callable[..., Any]]:
    def build(case: Case) -> Callable[..., Any]:
        from groundspeed.kernels.moe.dense import matmul

        return partial(matmul, hopper=hopper)

    return build


def _compile(case: Case, capability: tuple[int, int], *, hopper: bool) -> None:
    import torch

    from groundspeed.kernels.moe.dense import prepared

    dtype, told = getattr(torch, TORCH_DTYPES[str(case.params["dtype"])]), case.params
    M, N, K = (int(told[key]) for key in "MNK")
    a, b = (torch.empty(size, dtype=dtype, device="meta") for size in ((M, K), (N, K)))
    prepared(a, b, capability=capability, hopper=hopper)(a, b)


def _without_fp8(rest: Callable[[Case, str], str | None]) -> Callable[[Case, str], str | None]:
    return lambda case, device: "FP16 and BF16 only" if case.params["dtype"] == "fp8" else rest(case, device)


def _without_fp8_on_cpu(case: Case, device: str) -> str | None:
    return "FP8 on a GPU only" if case.params["dtype"] == "fp8" and device == "cpu" else None


def _without_odd_rows(case: Case, device: str) -> str | None:
    odd = int(case.params["N"]) % 8 or int(case.params["K"]) % 8
    return "TMA reads rows of multiples of 8 elements only" if odd else None


def _kernel_source(module: str) -> str:
    return str((Path(reference.__file__).parent / f"{module}.py").resolve())
