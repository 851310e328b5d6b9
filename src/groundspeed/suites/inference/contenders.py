"""The contenders of whole models: PyTorch's own, Hugging Face, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from groundspeed.case import Case, Contender
from groundspeed.kernels import work
from groundspeed.suites.available import (
    expect,
    joined,
    sixteen_bit_on_gpu,
    torch_version,
    triton_version,
    without_compiler,
    without_torch,
    without_triton,
)
from groundspeed.suites.compiled import compiled_for_one_shape
from groundspeed.suites.inference import ours, pytorch
from groundspeed.suites.inference.rivals import RIVALS
from groundspeed.suites.rival import Rival

COMPILED_BY = ("L", "d", "H", "dtype")
_HOME = Path(work.__file__).parents[1]
_PARTS = tuple(
    str(path)
    for part in (
        "kernels/*",
        "kernels/attention/**/*",
        "kernels/norm/*",
        "kernels/activation/*",
        "kernels/linear/*",
        "kernels/moe/**/*",
        "nn/norm",
        "nn/c*",
        "nn/few*",
    )
    for path in sorted(_HOME.glob(f"{part}.py"))
)
"""The files that `ours` is made of, besides its module."""
_SHIPPED = "as its library ships it"
_COMPILED = (
    "torch.compile for this shape alone, in default mode; its first call tries a few configurations of some kernels"
)


def contenders() -> list[Contender]:
    runs = partial(Contender, "inference", version=torch_version, absent=without_torch, tuning=_SHIPPED)
    return [
        runs("naive", "plain PyTorch with attention written out, eager", lambda case: pytorch.model(pytorch.naive)),
        runs(
            "sdpa", "plain PyTorch with scaled_dot_product_attention, eager", lambda case: pytorch.model(pytorch.fused)
        ),
        runs(
            "sdpa-compiled",
            "the same under torch.compile",
            lambda case: pytorch.model(pytorch.fused, compiled_for_one_shape),
            absent=without_compiler,
            tuning=_COMPILED,
            tries=True,
        ),
        *map(_rival, RIVALS.values()),
        Contender(
            "inference",
            "ours",
            "gs.nn.Transformer: groundspeed's kernels, and cuBLAS for most products of more than 16 rows",
            ours.model,
            absent=without_triton,
            supports=sixteen_bit_on_gpu,
            version=triton_version,
            tuning="tiles from tables; no tuning at run time",
            source=str(_HOME / "nn" / "transformer.py"),
            parts=_PARTS,
            launches=expect("norm_forward_kernel"),
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    """Return the contenders that a preset measures; None for all."""
    if preset == "quick":
        return tuple(c.name for c in contenders() if not c.name.endswith("-compiled"))
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    return {}


def _rival(rival: Rival) -> Contender:
    def absent(device: str) -> str | None:
        return joined(without_torch(device), rival.missing())

    return Contender(
        "inference",
        rival.name,
        f"Hugging Face's GPT-2 with attention {rival.name.rpartition('-')[2]!r} and the cache that generate() uses",
        rival.build,
        absent=absent,
        supports=rival.supports,
        version=rival.version,
        tuning=_SHIPPED,
    )
