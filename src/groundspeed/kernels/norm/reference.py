"""The oracle of norms: in FP64, short, obviously right, and able to compute just a few rows of the result.

For rows x [..., N], weight and bias [N], it computes x / √(mean(x²) + eps) · weight, and (x − mean) / √(var + eps) ·
weight + bias. A residual is added first, and the sum is rounded to the dtype of x, as PyTorch's addition does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = {
    # For standard-normal inputs, weights and biases, and rows of at least 16 elements (the variance of a few elements
    # that happen to be close has few digits): at least twice the worst error of PyTorch's own code over N from 16 to
    # 65536. With 16 bits, that error is the rounding of the result; code that also rounds before it applies the
    # weights has twice the error.
    "fp32": Tolerance(max_abs=5e-6, mean_abs=1.5e-7, max_rel=1.5e-6, rms_rel=4e-7),
    "fp16": Tolerance(max_abs=1.6e-2, mean_abs=5e-4, max_rel=1e-3, rms_rel=4.5e-4),
    "bf16": Tolerance(max_abs=1.1e-1, mean_abs=4.5e-3, max_rel=8e-3, rms_rel=3.6e-3),
}


def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float, residual: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """Return the FP64 result as [rows, N], with the leading dimensions flattened: of the given `rows` only, or of
    all."""
    x = _rows(x, residual, rows)
    return x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    eps: float,
    residual: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """Return the same for LayerNorm."""
    x = _rows(x, residual, rows)
    x = x - x.mean(1, keepdim=True)
    y = x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()
    return y if bias is None else y + bias.double()


def _rows(x: Tensor, residual: Tensor | None, rows: Tensor | None) -> Tensor:
    total = (x if residual is None else x + residual).reshape(-1, x.shape[-1])
    return (total if rows is None else total[rows.to(x.device)]).double()
