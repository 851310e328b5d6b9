"""What the cheats share: the right answer, and a decorator that registers only the cheats that a run asks for.

GS_CHEATS=cheat-zeros,cheat-nan groundspeed run attention --preset quick --with tests/cheats/cheats_wrong.py …
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs
from groundspeed.case import Case


class Kernel(Protocol):
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Any: ...


F = TypeVar("F", bound=Kernel)
_CHOSEN = os.environ.get("GS_CHEATS")


def chosen(name: str) -> bool:
    return _CHOSEN is None or name in _CHOSEN.split(",")


def cheat(
    name: str,
    *,
    setup: Callable[[], object] | None = None,
    supports: Callable[[Case, str], str | None] | None = None,
) -> Callable[[F], F]:
    """gs.contender for a cheat, if this run asks for it; `setup` is what it does as soon as it is imported."""

    def register(function: F) -> F:
        if not chosen(name):
            return function
        registered: F = gs.contender("attention", name=name, supports=supports)(function)
        if setup is not None:
            setup()
        return registered

    return register


def right(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """The honest work."""
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def by_hand(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """The honest work, in steps."""
    scores = q @ k.mT * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return scores.softmax(-1) @ v
