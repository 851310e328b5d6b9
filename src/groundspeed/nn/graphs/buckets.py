"""Buckets of sizes: which sizes there are, how inputs are padded up to one, and how results are cut back.

Which dimension of a result follows which padded dimension of an argument is learned from a call without padding: a
dimension follows if it has the padded size in the graph and the true size in that call. While several explanations fit,
all of them are kept until another call decides."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Sizes = tuple[int, ...]
"""The sizes of the padded dimensions, in their order; or the sizes of one dimension's buckets."""
Buckets = Mapping[str, Mapping[int, Sequence[int]]]
APART = 0.05
"""The relative difference, by norm, above which a padded result counts as different from the one without padding. Other
kernels, chosen for another size, round differently, but by far less."""


def checked(buckets: Buckets) -> dict[str, dict[int, Sizes]]:
    """Return the buckets with sorted sizes; raise ValueError if they are malformed."""
    found: dict[str, dict[int, Sizes]] = {}
    for name, dims in buckets.items():
        if not isinstance(dims, Mapping) or not dims or not all(type(dim) is int for dim in dims):
            raise ValueError(
                f"buckets[{name!r}] must map dimensions to sizes, such as {{1: (1, 8, 64)}}, not {dims!r:.80}"
            )
        for dim, sizes in dims.items():
            if not isinstance(sizes, Sequence) or not sizes or any(type(n) is not int or n < 1 for n in sizes):
                raise ValueError(f"buckets[{name!r}][{dim}] must be sizes of at least 1, not {sizes!r:.80}")
        found[name] = {dim: tuple(sorted(set(sizes))) for dim, sizes in dims.items()}
    return found


@dataclass(frozen=True)
class Padded:
    """A padded dimension of a tensor among the leaves of a call."""

    position: int
    dim: int
    sizes: Sizes
    name: str

    def bucket(self, size: int) -> int:
        i = bisect_left(self.sizes, size)
        if i == len(self.sizes):
            raise ValueError(
                f"{self.name!r} has size {size} in dimension {self.dim}, but the largest bucket is {self.sizes[-1]}: "
                "add a larger bucket or pass a shorter input"
            )
        return self.sizes[i]


def put(static: torch.Tensor, given: torch.Tensor, pad_value: Any, *, again: bool) -> None:
    """Copy `given` to the beginning of `static` and fill the rest with the pad value. `again`: the last call had these
    sizes too, so the rest is already filled."""
    if static.shape == given.shape:
        if static.data_ptr() != given.data_ptr():  # else the caller has written its values there already
            static.copy_(given)
        return
    if not again:
        given = given.clone() if given.untyped_storage().data_ptr() == static.untyped_storage().data_ptr() else given
        static.fill_(pad_value)
    static[tuple(slice(n) for n in given.shape)].copy_(given)


class Following:
    """Which dimensions of the tensors that a graph returns follow which padded dimensions."""

    def __init__(self, shapes: Sequence[Sequence[int]], padded: Sequence[Padded], sizes: Sizes) -> None:
        """`shapes` are those of the results for the padded `sizes`."""
        self._padded, self._sizes, self._seen = padded, sizes, set[int]()
        self._shapes = [tuple(shape) for shape in shapes]
        self._may = [
            [{None, *(i for i, size in enumerate(sizes) if size == n)} for n in shape] for shape in self._shapes
        ]

    def knows(self, true: Sizes) -> bool:
        """Whether the shapes of the results are determined for these true sizes."""
        if any(n != size and i not in self._seen for i, (n, size) in enumerate(zip(true, self._sizes, strict=True))):
            return False
        return all(
            len({self._size(by, whole, true) for by in may}) == 1
            for shape, mays in zip(self._shapes, self._may, strict=True)
            for whole, may in zip(shape, mays, strict=True)
        )

    def learn(self, true: Sizes, shapes: Sequence[Sequence[int]]) -> None:
        """Learn from the shapes of the results of a call without padding."""
        if [len(shape) for shape in shapes] != [len(shape) for shape in self._shapes]:
            raise ValueError(
                f"results differ in number or rank for {self._told(true)} and for the bucket: pass slice_outputs=False"
            )
        for k, (shape, mays) in enumerate(zip(shapes, self._may, strict=True)):
            for dim, (n, may) in enumerate(zip(shape, mays, strict=True)):
                whole = self._shapes[k][dim]
                left = {by for by in may if self._size(by, whole, true) == n}
                if not left:
                    raise ValueError(
                        f"dimension {dim} of result {k} is {n} for {self._told(true)} and {whole} for the bucket, so "
                        "it cannot be cut back: pass slice_outputs=False and cut it yourself"
                    )
                mays[dim] = left
        self._seen |= {i for i, n in enumerate(true) if n != self._sizes[i]}

    def cut(self, k: int, tensor: torch.Tensor, true: Sizes) -> torch.Tensor:
        """Return the part of result `k` that belongs to these true sizes."""
        may = [min(by, key=lambda i: (i is not None, i)) for by in self._may[k]]  # all explanations agree
        shape = [self._size(by, whole, true) for by, whole in zip(may, self._shapes[k], strict=True)]
        return tensor if shape == list(tensor.shape) else tensor[tuple(slice(n) for n in shape)]

    @staticmethod
    def _size(by: int | None, whole: int, true: Sizes) -> int:
        return whole if by is None else true[by]

    def _told(self, true: Sizes) -> str:
        return ", ".join(
            f"{p.name!r} of size {n} in dimension {p.dim}" for p, n in zip(self._padded, true, strict=True)
        )


def is_apart(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether padding changed a result by more than rounding. Waits for the device."""
    if not expected.is_floating_point():
        return False  # an index may differ where two values are nearly equal
    wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
    found, expected = found.to(wide), expected.to(wide)
    finite = expected.isfinite()
    if not bool((found.isfinite() == finite).all()):
        return True
    difference = torch.where(finite, found - expected, 0.0).norm()
    return bool(difference > APART * torch.where(finite, expected, 0.0).norm())
