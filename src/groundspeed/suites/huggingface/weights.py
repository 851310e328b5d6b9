"""Weights, and keys and values read before, which are the same in every run; and tokens, which are not."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from groundspeed.suites.huggingface.shapes import Shape
from groundspeed.suites.inputs import Normal

if TYPE_CHECKING:
    from torch import Tensor

SEED = 20261119
SHARP = 2**0.5
"""Scale of queries and keys. At this scale a few keys dominate each query, even among thousands, so that a wrong key or
a coarsely rounded value shows."""
AROUND = 0.1
"""Standard deviation of norm weights around 1."""


def inputs(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Return tokens [B, S], then the weights, then keys and values if there are any."""
    return *tokens(shape, seed, device), *fixed(shape, dtype, device)


def tokens(shape: Shape, seed: int, device: str) -> tuple[Tensor, ...]:
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    return (torch.randint(shape.V, (shape.B, shape.S), generator=generator, device=device),)


def other_tokens(shape: Shape, inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> None:
    """Move every token on by the same random number of words, so that each of them changes, even a single one."""
    now = inputs[0].data  # .data leaves PyTorch's version counter alone
    now.copy_(earlier[0]).add_(1 + secrets.randbelow(max(1, shape.V - 1))).remainder_(shape.V)


def fixed(shape: Shape, dtype: str, device: str) -> list[Tensor]:
    """Return weights, scaled so that a matrix applied to standard normal values gives values about as large, except
    that queries and keys are larger by SHARP; then keys and values if some were kept."""
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
