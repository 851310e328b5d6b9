"""Weights and what was read before, the same in every run; and tokens, which are not."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from groundspeed.suites.huggingface.shapes import Shape
from groundspeed.suites.inputs import Normal

if TYPE_CHECKING:
    from torch import Tensor

SEED = 20261119
SHARP = 2**0.5
"""How large queries and keys are: so each query has a few keys that count, and a wrong one or a coarse value is seen,
in thousands of them too."""
AROUND = 0.1
"""How far weights of norms lie from 1."""


def inputs(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Tokens [B, S], then the weights, and keys and values where there are."""
    return *tokens(shape, seed, device), *fixed(shape, dtype, device)


def tokens(shape: Shape, seed: int, device: str) -> tuple[Tensor, ...]:
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    return (torch.randint(shape.V, (shape.B, shape.S), generator=generator, device=device),)


def other_tokens(shape: Shape, inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> None:
    """Each by the same random number of words further: no token stays what it was, and one alone neither."""
    now = inputs[0].data  # past the version that PyTorch counts and shows
    now.copy_(earlier[0]).add_(1 + secrets.randbelow(max(1, shape.V - 1))).remainder_(shape.V)


def fixed(shape: Shape, dtype: str, device: str) -> list[Tensor]:
    """What each matrix makes of standard normal values is about as large, but that queries and keys are sharper."""
    normal = Normal(dtype, SEED, device)
    turned = (shape.H + shape.G) * shape.head_dim

    def made(name: str, size: tuple[int, ...]) -> Tensor:
        if name in ("norms", "last"):
            return normal(size, AROUND).add_(1)
        found = normal(size, 1.0 if name == "words" else size[-1] ** -0.5)
        if name == "qkv":
            found[:, :turned] *= SHARP
        return found

    kept = [normal(size, SHARP if name == "keys" else 1.0) for name, size in shape.kept().items()]
    return [*(made(name, size) for name, size in shape.weights().items()), *kept]
