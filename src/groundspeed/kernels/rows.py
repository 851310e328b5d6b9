"""The memory layout of the rows of tensors, for kernels that work row by row.

A row is the last dimension. The leading dimensions are sorted by stride and merged where a single stride covers them,
so that most tensors are left with one, even transposed ones. At most three remain; if there are fewer, the outer ones
have size one."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

DIMENSIONS = 3
"""The number of leading dimensions into which a kernel decomposes the index of a row."""


class Rows(NamedTuple):
    """The rows of tensors with the same leading dimensions."""

    sizes: tuple[int, int, int]
    """The sizes of the merged leading dimensions, outermost first."""
    strides: tuple[tuple[int, int, int], ...]
    """The strides of these dimensions, for each tensor."""

    @property
    def count(self) -> int:
        return self.sizes[0] * self.sizes[1] * self.sizes[2]

    @property
    def flat(self) -> bool:
        """Whether a single stride leads from row to row in every tensor."""
        return self.sizes[0] == self.sizes[1] == 1

    @property
    def numbers(self) -> tuple[int, ...]:
        """The arguments of a kernel: the two inner sizes, then the strides of each tensor."""
        return *self.sizes[1:], *(stride for three in self.strides for stride in three)

    @classmethod
    def of(cls, *tensors: Any) -> Rows:
        """Return the rows of these tensors, in the memory order of the first. Each has up to four dimensions or is
        contiguous."""
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
        assert len(merged) <= DIMENSIONS, "callers check this first"
        missing = [(1, [0] * len(tensors))] * (DIMENSIONS - len(merged))
        sizes, strides = zip(*missing, *merged, strict=True)
        return cls(sizes, tuple(zip(*strides, strict=True)))


def evenness(*numbers: int) -> int:
    """Return the greatest power of two, up to 8, that divides all numbers: that many elements can be loaded at once,
    which is 16 bytes at most if they have 16 bits. The compiler by itself detects only multiples of sixteen."""
    return next(power for power in (8, 4, 2, 1) if not any(number % power for number in numbers))


@triton.jit
def row_offsets(row, n1, n2, stride_0, stride_1, stride_2, FLAT: tl.constexpr, EVEN: tl.constexpr):
    """Return the offsets of rows, in 64 bits. The strides are multiples of EVEN, which the compiler learns here."""
    stride_2 = stride_2 // EVEN * EVEN
    if FLAT:
        return row.to(tl.int64) * stride_2
    stride_0, stride_1 = stride_0 // EVEN * EVEN, stride_1 // EVEN * EVEN
    outer = row // n2
    middle, inner = outer % n1, row % n2
    outer = outer // n1
    return outer.to(tl.int64) * stride_0 + middle.to(tl.int64) * stride_1 + inner.to(tl.int64) * stride_2
