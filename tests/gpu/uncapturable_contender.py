"""A contender for `--with` that no CUDA graph can hold."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs


@gs.contender("attention", name="waiting")
def waiting(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    """Waits for the device, which nothing may do while a graph is captured."""
    torch.cuda.synchronize()
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
