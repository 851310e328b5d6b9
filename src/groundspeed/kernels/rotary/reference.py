"""The oracle of rotary position embedding: in FP64, short and obviously right.

Elements a = x[i] and b = x[i + R/2], i < R/2, of a row [..., D] become a·cos − b·sin and b·cos + a·sin, with the
cosines and sines [R/2] of its position. The other elements are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = {
    # For standard-normal inputs: at least twice the worst error of PyTorch's own code. With 16 bits, that error is the
    # rounding of the result; code that also rounds the products before adding them has twice the error.
    "fp32": Tolerance(max_abs=1.2e-6, mean_abs=6e-8, max_rel=5e-7, rms_rel=1e-7),
    "fp16": Tolerance(max_abs=4e-3, mean_abs=3e-4, max_rel=1e-3, rms_rel=4.5e-4),
    "bf16": Tolerance(max_abs=3.2e-2, mean_abs=2.5e-3, max_rel=8e-3, rms_rel=3.6e-3),
}


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q [B, H, S, D] and k [B, G, S, D] rotated by cos and sin [1 or B, S, R/2], in FP64."""
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    return _turned(q.double(), cos, sin), _turned(k.double(), cos, sin)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half, turned = cos.shape[-1], x.clone()
    a, b = x[..., :half], x[..., half : 2 * half]
    turned[..., :half] = a * cos - b * sin
    turned[..., half : 2 * half] = b * cos + a * sin
    return turned
