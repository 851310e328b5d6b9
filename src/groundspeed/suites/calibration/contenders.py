"""The contenders of calibration: PyTorch under two names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case, Contender
from groundspeed.suites.available import torch_version, without_torch

if TYPE_CHECKING:
    from torch import Tensor

ONCE, AGAIN = "once", "again"


def contenders() -> list[Contender]:
    return [
        Contender("calibration", ONCE, "PyTorch's own code", _build, absent=without_torch, version=torch_version),
        Contender(
            "calibration",
            AGAIN,
            "the same code under another name",
            _build,
            absent=without_torch,
            version=torch_version,
        ),
    ]


def preset_contenders(preset: str, device: str) -> tuple[str, ...] | None:
    return None


def preset_skips(preset: str, cases: Mapping[str, Case], baseline: str) -> dict[tuple[str, str], str]:
    return {}


def _build(case: Case) -> Callable[..., Tensor]:
    calls: dict[str, Callable[..., Tensor]] = {"copy": _copy(), "matmul": _matmul, "attention": _attention}
    return calls[str(case.params["op"])]


def _copy() -> Callable[..., Tensor]:
    """Copy into memory that is already allocated: on a host, allocating it takes longer than writing it."""
    buffers: list[Tensor] = []

    def copy(x: Tensor) -> Tensor:
        if not buffers:
            buffers.append(x.clone())
        return buffers[0].copy_(x)

    return copy


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    out: Any = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out
