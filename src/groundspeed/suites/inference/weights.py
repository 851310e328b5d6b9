"""Weights, and keys and values read before, which are the same in every run; and tokens, which are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.suites.inference.shapes import Shape
from groundspeed.suites.inputs import Normal, random_tensors

if TYPE_CHECKING:
    from torch import Tensor

SEED = 20261118
KEYS = 2.0
"""Scale of kept keys. At this scale a few keys dominate each query, so that a wrong key or a coarsely rounded value
shows."""
AROUND = 0.1
"""Standard deviation of biases around 0, and of norm weights around 1."""


def inputs(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Return hidden states [B, S, d], then the weights, then keys and values if there are any."""
    return *tokens(shape, dtype, seed, device), *fixed(shape, dtype, device)


def tokens(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    return random_tensors([(shape.B, shape.S, shape.d)], dtype, seed, device)


def fixed(shape: Shape, dtype: str, device: str) -> list[Tensor]:
    """Return weights, scaled so that a matrix applied to standard normal values gives values about as large; then keys
    and values if some were kept, of which the values are about as large, too."""
    normal = Normal(dtype, SEED, device)

    def made(name: str, size: tuple[int, ...]) -> Tensor:
        if name in ("norms", "last"):
            found = normal(size, AROUND)
            found.select(-2, 0).add_(1)
            return found
        return normal(size, AROUND if name.endswith("bias") else size[-1] ** -0.5)

    kept = [normal(size, KEYS if name == "keys" else 1.0) for name, size in shape.kept().items()]
    return [*(made(name, size) for name, size in shape.weights().items()), *kept]
