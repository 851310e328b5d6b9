"""The oracle of a linear layer: in FP64, short and obviously right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from groundspeed.kernels.activation import reference as activation_reference
from groundspeed.kernels.linear.form import Norm
from groundspeed.kernels.norm import reference as norm_reference

if TYPE_CHECKING:
    from torch import Tensor

ERROR = {"fp32": 2e-5, "fp16": 1e-3, "bf16": 6e-3}
"""The largest RMS of the error over the RMS of the result, row by row, for standard-normal rows: twice the error of
rounding the result and the rows normalised before it. In FP32, the error of summing some thousand products."""


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: Tensor | None = None,
    norm: Norm | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """Return the result [..., N]."""
    x, shape = x.double(), x.shape[:-1]
    if norm is not None and norm.centered:
        x = norm_reference.layer_norm(x, norm.weight, norm.bias, eps=norm.eps)
    elif norm is not None:
        x = norm_reference.rms_norm(x, norm.weight, eps=norm.eps)
    x = x.reshape(*shape, -1)
    y = x @ (weight if gate is None else torch.cat([gate, weight])).double().T
    y = y if bias is None else y + bias.double()
    y = y if activation is None else activation_reference.activate(y, activation)
    return y if residual is None else y + residual.double()
