"""Norms by PyTorch: the fallback where none of our kernels can serve, on any device and with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, eps: float, *, centered: bool) -> Any:
    """Return y, and with a residual also the sum."""
    total = x if residual is None else x + residual
    y = _normed(total, weight, bias, eps, centered)
    return y if residual is None else (y, total)


def _normed(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centered: bool) -> Tensor:
    columns, dtype = x.shape[-1:], x.dtype
    if weight.dtype != dtype or (bias is not None and bias.dtype != dtype):  # PyTorch needs one dtype, or rounds twice
        wide = torch.promote_types(dtype, torch.float32)
        x, weight, bias = x.to(wide), weight.to(wide), None if bias is None else bias.to(wide)
    if centered:
        return functional.layer_norm(x, columns, weight, bias, eps).to(dtype)
    return functional.rms_norm(x, columns, weight, eps).to(dtype)
