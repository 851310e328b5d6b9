"""Norms as modules, with the same parameters as PyTorch's, so that state dicts load in both directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from groundspeed.kernels.linear.form import Norm
from groundspeed.kernels.norm.api import layer_norm, rms_norm


class RMSNorm(nn.Module):
    """`groundspeed.rms_norm` over the last dimension, of `hidden` elements. Parameter: `weight` [hidden]."""

    def __init__(
        self, hidden: int, eps: float = 1e-6, *, impl: str = "auto", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.eps, self.impl = eps, impl
        self.weight = nn.Parameter(torch.ones(hidden, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        """x [..., hidden]; with `residual`, which is like x, the norm of their sum, and the sum."""
        return rms_norm(x, self.weight, eps=self.eps, residual=residual, impl=self.impl)

    @property
    def told(self) -> Norm:
        """As `groundspeed.linear` takes it."""
        return Norm(self.weight, None, self.eps, False)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


class LayerNorm(nn.Module):
    """`groundspeed.layer_norm` over the last dimension, of `hidden` elements. Parameters: `weight` [hidden] and, unless
    `bias=False`, `bias` [hidden]."""

    def __init__(
        self,
        hidden: int,
        eps: float = 1e-5,
        *,
        bias: bool = True,
        impl: str = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.eps, self.impl = eps, impl
        self.weight = nn.Parameter(torch.ones(hidden, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(hidden, device=device, dtype=dtype)) if bias else None

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        """x [..., hidden]; with `residual`, which is like x, the norm of their sum, and the sum."""
        return layer_norm(x, self.weight, self.bias, eps=self.eps, residual=residual, impl=self.impl)

    @property
    def told(self) -> Norm:
        """As `groundspeed.linear` takes it."""
        return Norm(self.weight, self.bias, self.eps, True)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, bias={self.bias is not None}"
