"""Contenders for `--with` that go wrong on a GPU, each in its own way; `test_measure.py` says how each must end."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

calls: dict[str, int] = {}


def right(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def now(name: str, number: int = 12) -> bool:
    """From its twelfth call on: after the gate, while it is timed."""
    calls[name] = calls.get(name, 0) + 1
    return calls[name] >= number


@gs.contender("attention", name="honest")
def honest(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="sticky")
def sticky(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    """A device-side assertion: every CUDA call of the process fails from then on."""
    if now("sticky"):
        torch.zeros(8, device=q.device)[torch.full((4,), 1 << 20, device=q.device)]
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="hungry")
def hungry(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    if now("hungry"):
        torch.empty(1 << 42, dtype=torch.uint8, device=q.device)
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="hanging")
def hanging(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    """A kernel that does not end."""
    if now("hanging"):
        torch.cuda._sleep(1 << 50)
    return right(q, k, v, causal, scale)


@gs.contender("attention", name="wrong")
def wrong(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    return right(q, k, v, causal, scale * 1.1)


@gs.contender("attention", name="on-another-device")
def on_another_device(q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    return right(q.cpu(), k.cpu(), v.cpu(), causal, scale)
