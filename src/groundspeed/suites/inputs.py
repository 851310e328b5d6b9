"""Random inputs for cases, and other ones made of them in place."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def random_tensors(shapes: Sequence[Sequence[int]], dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Standard normal, elsewhere in memory from seed to seed, so that no alignment is always lucky."""
    import torch

    torch_dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
    generator = torch.Generator(device).manual_seed(seed)
    line = 64 // torch_dtype.itemsize
    tensors = []
    for shape in shapes:
        count = math.prod(shape)
        offset = line * int(torch.randint(0, 64, (), generator=generator, device=device))
        buffer = torch.empty(count + 64 * line, dtype=torch_dtype, device=device)[offset : offset + count]
        values = torch.randn(count, generator=generator, device=device)
        tensors.append(buffer.copy_(values).view(tuple(shape)))
    return tuple(tensors)


def shift(inputs: tuple[Tensor, ...]) -> None:
    """Move each tensor along its last two dimensions by its own random distances: still standard normal, and every
    row of a result is another."""
    for tensor in inputs:
        distances = tuple(secrets.randbelow(size) for size in tensor.shape[-2:])
        tensor.data.copy_(
            tensor.roll(distances, dims=tuple(range(-len(distances), 0)))
        )  # past the version that PyTorch counts and shows
