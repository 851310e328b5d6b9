"""Whether inputs are still what was handed in, byte by byte."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from groundspeed.measure.gate import Incorrect

if TYPE_CHECKING:
    from torch import Tensor

GLANCE = 1 << 14
"""Bytes of each input that are compared after a timed call that is not checked: microseconds, whatever the shape."""
WORD = 8
"""Bytes that are compared together."""
AT_ONCE = 1 << 24
"""Up to this many bytes, inputs are compared in one go, which copies them."""


def check_inputs(names: Sequence[str], inputs: Sequence[Any], pristine: Sequence[Any]) -> None:
    """Raise Incorrect if an input is no longer what was handed in."""
    _check_shapes(names, inputs, pristine)
    _check_bytes(names, [as_bytes(x) for x in inputs], [as_bytes(x) for x in pristine])


def glance(names: Sequence[str], inputs: Sequence[Any], pristine: Sequence[Any], most: int = GLANCE) -> None:
    """Raise Incorrect if a random stretch of `most` bytes of an input is no longer what was handed in."""
    _check_shapes(names, inputs, pristine)
    pairs = [_stretch(as_bytes(now), as_bytes(before), most) for now, before in zip(inputs, pristine, strict=True)]
    _check_bytes(names, *zip(*pairs, strict=True))


def _check_shapes(names: Sequence[str], inputs: Sequence[Any], pristine: Sequence[Any]) -> None:
    for name, now, before in zip(names, inputs, pristine, strict=True):
        if now.shape != before.shape:
            raise Incorrect(f"changed its input {name}")


def _stretch(now: Tensor, before: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the same stretch of both, at a place that no contender can know; all of both if they are no longer than
    that."""
    if (size := now.numel()) <= most:
        return now, before
    begin = WORD * secrets.randbelow((size - most) // WORD + 1)
    return now.narrow(0, begin, most), before.narrow(0, begin, most)


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the content as one row of bytes; the tensor itself if it is that already."""
    import torch

    return tensor if tensor.dtype == torch.uint8 and tensor.dim() == 1 else tensor.reshape(-1).view(torch.uint8)


def _check_bytes(names: Sequence[str], nows: Sequence[Tensor], befores: Sequence[Tensor]) -> None:
    if sum(before.numel() for before in befores) <= AT_ONCE:
        check_together(names, nows, befores)
    else:
        _check_unchanged(names, nows, befores)


def check_together(names: Sequence[str], nows: Sequence[Tensor], befores: Sequence[Tensor]) -> None:
    """Raise Incorrect if any of these bytes has changed. All are compared at once, since each comparison waits for the
    device."""
    import torch

    if not torch.equal(torch.cat(tuple(nows)), torch.cat(tuple(befores))):
        _check_unchanged(names, nows, befores)
        raise Incorrect("changed one of its inputs, and changed it back")


def _check_unchanged(names: Sequence[str], inputs: Sequence[Any], pristine: Sequence[Any]) -> None:
    pairs = [_words(now, before) for now, before in zip(inputs, pristine, strict=True)]
    for name, same in zip(names, _same(pairs), strict=True):
        if not same:
            raise Incorrect(f"changed its input {name}")


def _same(pairs: Sequence[list[Tensor]]) -> list[bool]:
    """Return for each pair whether both hold the same. A GPU is waited for once; on the host each comparison stops at
    the first difference."""
    import torch

    if pairs and pairs[0][0].is_cuda:
        return [bool(same) for same in torch.stack([(now == before).all() for now, before in pairs]).tolist()]
    return [torch.equal(now, before) for now, before in pairs]


def _words(*tensors: Tensor) -> list[Tensor]:
    """Return the bytes of the tensors, in words of eight if all are aligned to these: fewer to compare."""
    import torch

    flat = [as_bytes(tensor) for tensor in tensors]
    in_eights = all(one.numel() % WORD == one.storage_offset() % WORD == 0 for one in flat)
    return [one.view(torch.int64) for one in flat] if in_eights else flat
