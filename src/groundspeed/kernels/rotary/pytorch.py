"""Rotary position embedding by PyTorch: the fallback where none of our kernels can serve, on any device and with
gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    cos, sin = cos[:, None].to(wide), sin[:, None].to(wide)
    return _turned(q, cos, sin), _turned(k, cos, sin)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned
