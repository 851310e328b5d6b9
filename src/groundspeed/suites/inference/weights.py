"""Weights and what was read before, the same in every run; and tokens, which are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.suites.inference.shapes import Shape
from groundspeed.suites.inputs import Normal, random_tensors

if TYPE_CHECKING:
    from torch import Tensor

SEED = 20261118
KEYS = 2.0
"""How large kept keys are: so each query has a few that count, and what a wrong one or a coarse value does is seen."""
AROUND = 0.1
"""How far biases lie from 0, and weights of norms from 1."""


def inputs(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Hidden states [B, S, d], then the weights, and keys and values where there are."""
    return *tokens(shape, dtype, seed, device), *fixed(shape, dtype, device)


def tokens(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    return random_tensors([(shape.B, shape.S, shape.d)], dtype, seed, device)


def fixed(shape: Shape, dtype: str, device: str) -> list[Tensor]:
    """What each matrix makes of standard normal values is about as large; so are values that were kept."""
    normal = Normal(dtype, SEED, device)

    def made(name: str, size: tuple[int, ...]) -> Tensor:
        if name in ("norms", "last"):
            found = normal(size, AROUND)
            found.select(-2, 0).add_(1)
            return found
        return normal(size, AROUND if name.endswith("bias") else size[-1] ** -0.5)

    kept = [normal(size, KEYS if name == "keys" else 1.0) for name, size in shape.kept().items()]
    return [*(made(name, size) for name, size in shape.weights().items()), *kept]
