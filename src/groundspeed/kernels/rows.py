"""How the rows of tensors lie in memory, for kernels that go over them row by row.

Rows are the last dimension; what is before it are their places. Places that follow each other at one distance are one
dimension, so that most tensors have one: also those that are transposed, whose places are taken in the order in which
they lie. Three are left at most; where there are fewer, the outer ones are of size one."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

DIMENSIONS = 3
"""Of places, which a kernel takes apart."""


class Rows(NamedTuple):
    """The rows of some tensors with the same places."""

    sizes: tuple[int, int, int]
    """Of the dimensions of places, the outermost first."""
    strides: tuple[tuple[int, int, int], ...]
    """Of each tensor."""

    @property
    def count(self) -> int:
        return self.sizes[0] * self.sizes[1] * self.sizes[2]

    @property
    def flat(self) -> bool:
        """Whether there is one dimension."""
        return self.sizes[0] == self.sizes[1] == 1

    @property
    def numbers(self) -> tuple[int, ...]:
        """For a kernel: the two inner sizes, then the strides of each tensor."""
        return *self.sizes[1:], *(stride for three in self.strides for stride in three)

    @classmethod
    def of(cls, *tensors: Any) -> Rows:
        """In the order of the first one's memory. Of tensors that have up to four dimensions, or are contiguous."""
        shape = tensors[0].shape[:-1]
        if 0 in shape:
            return cls((1, 1, 0), ((0, 0, 0),) * len(tensors))
        lying = sorted(
            ((n, [tensor.stride(i) for tensor in tensors]) for i, n in enumerate(shape) if n > 1),
            key=lambda dimension: -dimension[1][0],
        )
        merged: list[tuple[int, list[int]]] = []
        for n, strides in lying:
            if merged and merged[-1][1] == [n * stride for stride in strides]:
                merged[-1] = merged[-1][0] * n, strides
            else:
                merged.append((n, strides))
        assert len(merged) <= DIMENSIONS, "who calls asks before"
        missing = [(1, [0] * len(tensors))] * (DIMENSIONS - len(merged))
        sizes, strides = zip(*missing, *merged, strict=True)
        return cls(sizes, tuple(zip(*strides, strict=True)))


def evenness(*numbers: int) -> int:
    """The greatest power of two, up to 8, of which all are multiples: so many elements can be read at once, of 16 bits
    each at most 16 bytes. The compiler would look for multiples of sixteen only."""
    return next(power for power in (8, 4, 2, 1) if not any(number % power for number in numbers))


@triton.jit
def row_offsets(row, n1, n2, stride_0, stride_1, stride_2, FLAT: tl.constexpr, EVEN: tl.constexpr):
    """Where rows begin, in 64 bits. The strides are multiples of EVEN, which the compiler learns here."""
    stride_2 = stride_2 // EVEN * EVEN
    if FLAT:
        return row.to(tl.int64) * stride_2
    stride_0, stride_1 = stride_0 // EVEN * EVEN, stride_1 // EVEN * EVEN
    outer = row // n2
    middle, inner = outer % n1, row % n2
    outer = outer // n1
    return outer.to(tl.int64) * stride_0 + middle.to(tl.int64) * stride_1 + inner.to(tl.int64) * stride_2
