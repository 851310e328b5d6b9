"""The list of all tiles of packed sequences, made on the device, which alone knows their lengths.

The tiles with the most blocks of keys come first, so that programs that take every P-th tile have about the same amount
of work. No sorting is needed: the number of tiles of a sequence with at least a given number of blocks follows from its
lengths, and the index of a tile in the list is the sum of such numbers over all sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.hopper.schedule import WIDTH
from groundspeed.kernels.launch import Launcher, maker

SEQUENCES, TILES = 128, 16
"""The number of sequences, and of tiles, that a program processes at a time."""
FARTHEST = 1 << 30
"""The most keys that a row can see after its position: no sequence has more, and the sums stay within 32 bits."""


@triton.jit
def _at_least(blocks, queries, keys, right, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """Return the number of tiles with at least `blocks` blocks, for each sequence. Every tile has at least one
    block."""
    tiles = (queries + ROWS - 1) // ROWS
    hidden = (blocks - 1) * BLOCK_N
    found = tl.where(keys > hidden, tiles, 0)
    if CAUSAL:
        fewer = tl.maximum(hidden - keys + queries - right, 0) // ROWS
        found = tl.where(keys > hidden, tl.maximum(tiles - fewer, 0), 0)
    return tl.where(blocks <= 1, tiles, found)


@triton.jit(do_not_specialize=["count", "right"])
def list_tiles(
    list_ptr,
    cu_q_ptr,
    cu_k_ptr,
    count,
    right,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EQUAL: tl.constexpr,
    SEQUENCES: tl.constexpr,
    TILES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Write the list of tiles. There is one program per sequence. EQUAL: all tiles count as one block, since under a
    window they have nearly the same number."""
    own = tl.program_id(0)
    query, key = tl.load(cu_q_ptr + own).to(tl.int32), tl.load(cu_k_ptr + own).to(tl.int32)
    queries = tl.load(cu_q_ptr + own + 1).to(tl.int32) - query
    keys = tl.load(cu_k_ptr + own + 1).to(tl.int32) - key
    tiles = (queries + ROWS - 1) // ROWS
    if own == 0:
        total = tl.zeros([SEQUENCES], tl.int32)
        for first in range(0, count, SEQUENCES):
            others = first + tl.arange(0, SEQUENCES)
            there = others < count
            begin = tl.load(cu_q_ptr + others, mask=there, other=0).to(tl.int32)
            total += (tl.load(cu_q_ptr + others + 1, mask=there, other=0).to(tl.int32) - begin + ROWS - 1) // ROWS
        tl.store(list_ptr, tl.sum(total, 0))
    for begin in range(0, tiles, TILES):
        number = begin + tl.arange(0, TILES)
        blocks = tl.full([TILES], 1, tl.int32)
        if not EQUAL:
            seen = tl.full([TILES], 0, tl.int32) + keys
            if CAUSAL:
                seen = tl.minimum(seen, (number + 1) * ROWS + keys - queries + right)
            blocks = tl.maximum((seen + BLOCK_N - 1) // BLOCK_N, 1)
        place = number - tiles + _at_least(blocks, queries, keys, right, ROWS, BLOCK_N, CAUSAL)
        for first in range(0, count, SEQUENCES):
            others = first + tl.arange(0, SEQUENCES)
            there = others < count
            of_q = tl.load(cu_q_ptr + others, mask=there, other=0).to(tl.int32)
            of_k = tl.load(cu_k_ptr + others, mask=there, other=0).to(tl.int32)
            of_q = (tl.load(cu_q_ptr + others + 1, mask=there, other=0).to(tl.int32) - of_q)[None, :]
            of_k = (tl.load(cu_k_ptr + others + 1, mask=there, other=0).to(tl.int32) - of_k)[None, :]
            as_many = _at_least(blocks[:, None], of_q, of_k, right, ROWS, BLOCK_N, CAUSAL)
            more = _at_least(blocks[:, None] + 1, of_q, of_k, right, ROWS, BLOCK_N, CAUSAL)
            if EQUAL:
                more = tl.zeros_like(as_many)
            place += tl.sum(tl.where((others < own)[None, :], as_many, more), 1)
        where = list_ptr + (place + 1) * WIDTH
        mine = number < tiles
        tl.store(where, number * ROWS, mask=mine)
        tl.store(where + 1, query + tl.zeros_like(number), mask=mine)
        tl.store(where + 2, key + tl.zeros_like(number), mask=mine)
        tl.store(where + 3, queries + tl.zeros_like(number), mask=mine)
        tl.store(where + 4, keys + tl.zeros_like(number), mask=mine)


def most(total: int, count: int, rows: int) -> int:
    """Return the most tiles that `count` sequences of `total` queries can have."""
    return total // rows + count


def prepared(
    count: int, total: int, form: Form, rows: int, block_n: int, device: torch.device
) -> Callable[[Any, Any], Any]:
    """Return a function from cu_q and cu_k to the list, on their device, for `count` sequences with `total` queries."""
    right = min(max(form.right, 0), FARTHEST)
    constants = {
        "ROWS": rows,
        "BLOCK_N": block_n,
        "CAUSAL": form.right >= 0,
        "EQUAL": form.left >= 0,
        "SEQUENCES": SEQUENCES,
        "TILES": TILES,
        "WIDTH": WIDTH.value,
    }
    launcher = Launcher(list_tiles, (count, 1, 1), constants, {}, device)
    make = maker(device, ((WIDTH.value * (1 + most(total, count, rows)),), torch.int32))

    def listed(cu_q: Any, cu_k: Any) -> Any:
        (made,) = make()
        launcher(made, cu_q, cu_k, count, right)
        return made

    return listed
