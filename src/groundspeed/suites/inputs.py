"""Random inputs for cases, and new inputs made from them in place."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES

if TYPE_CHECKING:
    from torch import Tensor


def random_tensors(shapes: Sequence[Sequence[int]], dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    """Return standard normal tensors. Their offset in memory varies with the seed, so no alignment is always lucky."""
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


class Normal:
    """Makes normal tensors one after the other; the same seed gives the same tensors."""

    def __init__(self, dtype: str, seed: int, device: str) -> None:
        import torch

        self._dtype: Any = getattr(torch, TORCH_DTYPES[dtype])
        self._generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, size: tuple[int, ...], scale: float) -> Tensor:
        import torch

        device = self._generator.device
        made = torch.empty(size, dtype=self._dtype, device=device)
        for part in made.view(-1).split(AT_ONCE):  # all of it at once in FP32 would take twice the memory
            part.copy_(torch.randn(part.shape, generator=self._generator, device=device).mul_(scale))
        return made


AT_ONCE = 1 << 26
"""Elements: a quarter of a gigabyte in FP32."""
FEW = 1 << 16
"""Elements: a single input of up to this many has too few rotations to be new each time."""
STEP = 8
"""Elements: copies that begin at a multiple of their bytes run at full speed."""


def shift(inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> None:
    """Copy into each tensor the elements of an earlier one, rotated by a random distance that each tensor draws for
    itself; of a single small one, in a random order. They are still standard normal, and every row of the result
    changes."""
    if len(inputs) == 1 and inputs[0].numel() <= FEW:
        _shuffle(inputs[0], earlier[0])
        return
    for tensor, before in zip(inputs, earlier, strict=True):
        size, step = tensor.numel(), STEP if tensor.numel() > STEP * STEP else 1
        distance = step * (1 + secrets.randbelow(max(1, size // step - 1)))
        now, then = tensor.data.view(-1), before.view(-1)  # .data leaves PyTorch's version counter alone
        now[distance:].copy_(then[: size - distance])
        now[:distance].copy_(then[size - distance :])


def _shuffle(tensor: Tensor, earlier: Tensor) -> None:
    import torch

    generator = torch.Generator(tensor.device).manual_seed(secrets.randbits(62))
    order = torch.randperm(tensor.numel(), generator=generator, device=tensor.device)
    now, then = (x.view(-1).view(torch.uint8).view(-1, x.element_size()) for x in (tensor.data, earlier))
    torch.index_select(then, 0, order, out=now)
