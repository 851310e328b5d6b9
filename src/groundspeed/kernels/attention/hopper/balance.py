"""The first tile of each head, if tiles differ in length. Under a window, the tiles at the ends of a head are short,
and a program that takes every P-th tile might have only short ones, or none."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.hopper.choice import Launch

ROUNDS = (4, 8, 16, 32)
"""The numbers of heads tried, after which a head begins with tile 0 again."""
TRIED = 32
"""The most shifts tried for each: with thousands of tiles, neighbouring shifts are equally good."""
EVEN = 1.02
"""If no program has more than this many times the mean, no shift is sought: with many tiles that takes seconds."""
BESIDE = 1
"""The start and end of a tile take about as long as this many blocks."""


@lru_cache(1024)
def shift(queries: int, keys: int, form: Form, launch: Launch, heads: int, programs: int) -> tuple[int, int]:
    """Return the shift, in tiles, of the first tile of a head relative to the head before, and the number of heads
    after which heads begin with tile 0 again, minus one: the pair with which the most loaded program has the least
    work. The shifts of one round add up to at most all tiles of a head."""
    lengths = blocks(queries, keys, form, launch.rows, launch.block_n) + BESIDE
    tiles = len(lengths)
    shifts = [(0, 0)]
    if loads(lengths, heads, programs, 0, 0).max() <= EVEN * lengths.sum() * heads / programs:
        return shifts[0]
    for turn in ROUNDS:
        most = tiles // (turn - 1)
        shifts += [(n, turn - 1) for n in range(1, most + 1, max(1, most // TRIED))]
    return min(shifts, key=lambda shift: int(loads(lengths, heads, programs, *shift).max()))


def loads(lengths: NDArray[np.int64], heads: int, programs: int, shift: int, around: int) -> NDArray[np.int64]:
    """Return the number of blocks of each program, for tiles of these lengths."""
    tiles = len(lengths)
    head, place = np.divmod(np.arange(heads * tiles), tiles)
    number = (place + (head & around) * shift) % tiles
    return np.bincount(np.arange(heads * tiles) % programs, weights=lengths[number]).astype(np.int64)


def blocks(queries: int, keys: int, form: Form, rows: int, block_n: int) -> NDArray[np.int64]:
    """Return the number of blocks of keys of each tile of a head, in the order in which tiles are taken."""
    first = np.arange(0, queries, rows)
    begin = np.maximum(first + keys - queries - form.left, 0) // block_n * block_n
    end = np.full_like(first, keys)
    if form.right >= 0:
        end = np.minimum(end, first + rows + keys - queries + form.right)
    found = np.maximum(-((begin - end) // block_n), 1)
    return found[::-1] if form.right >= 0 else found
