"""Which tile each head begins with, where tiles differ in length: under a window those at the ends of a head are short,
and a program that takes every so-manyth of them may have nothing else, or none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.hopper.choice import Launch

ROUNDS = (4, 8, 16, 32)
"""Heads after which they begin with the first tile again."""
TRIED = 32
"""Shifts of each: of thousands of tiles, one is as good as the next."""
BESIDE = 1
"""Blocks that the beginning and end of a tile take as long as, about."""


def shift(queries: int, keys: int, form: Form, launch: Launch, heads: int, programs: int) -> tuple[int, int]:
    """How many tiles after the head before it each one begins, and one less than the heads after which they begin
    again: with which the program that has most is done first. At most once round all tiles."""
    lengths = blocks(queries, keys, form, launch.rows, launch.block_n) + BESIDE
    tiles = len(lengths)
    shifts = [(0, 0)]
    for turn in ROUNDS:
        most = tiles // (turn - 1)
        shifts += [(n, turn - 1) for n in range(1, most + 1, max(1, most // TRIED))]
    return min(shifts, key=lambda shift: int(loads(lengths, heads, programs, *shift).max()))


def loads(lengths: NDArray[np.int64], heads: int, programs: int, shift: int, around: int) -> NDArray[np.int64]:
    """Blocks of each program, with tiles of these."""
    tiles = len(lengths)
    head, place = np.divmod(np.arange(heads * tiles), tiles)
    number = (place + (head & around) * shift) % tiles
    return np.bincount(np.arange(heads * tiles) % programs, weights=lengths[number]).astype(np.int64)


def blocks(queries: int, keys: int, form: Form, rows: int, block_n: int) -> NDArray[np.int64]:
    """Of keys, for each tile in the order in which they are taken."""
    first = np.arange(0, queries, rows)
    begin = np.maximum(first + keys - queries - form.left, 0) // block_n * block_n
    end = np.full_like(first, keys)
    if form.right >= 0:
        end = np.minimum(end, first + rows + keys - queries + form.right)
    found = np.maximum(-((begin - end) // block_n), 1)
    return found[::-1] if form.right >= 0 else found
