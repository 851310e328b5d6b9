"""The oracle of norms: in FP64, short, obviously right, and able to answer for a few rows only.

Of rows x [..., N], weight and bias [N]: x / √(mean(x²) + eps) · weight, and (x − mean) / √(var + eps) · weight + bias.
A residual is added first, and the sum rounded to the dtype of x, as PyTorch's addition does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = {
    # For standard-normal inputs, weights and biases, of rows of 16 elements and more (the variance of a few that happen
    # to be close has few digits): at least twice the worst that PyTorch's own code shows over N from 16 to 65536. Of 16
    # bits it is the rounding of the result; what rounds once more before the weights errs as much again.
    "fp32": Tolerance(max_abs=5e-6, mean_abs=1.5e-7, max_rel=1.5e-6, rms_rel=4e-7),
    "fp16": Tolerance(max_abs=1.6e-2, mean_abs=5e-4, max_rel=1e-3, rms_rel=4.5e-4),
    "bf16": Tolerance(max_abs=1.1e-1, mean_abs=4.5e-3, max_rel=8e-3, rms_rel=3.6e-3),
}


def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float, residual: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """The FP64 result as [rows, N], the leading dimensions flattened; of the given `rows` only, or of all."""
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
    """The same."""
    x = _rows(x, residual, rows)
    x = x - x.mean(1, keepdim=True)
    y = x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()
    return y if bias is None else y + bias.double()


def _rows(x: Tensor, residual: Tensor | None, rows: Tensor | None) -> Tensor:
    total = (x if residual is None else x + residual).reshape(-1, x.shape[-1])
    return (total if rows is None else total[rows.to(x.device)]).double()
