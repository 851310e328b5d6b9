"""Tokens in the order of their experts, without asking the host how many each expert has.

The rows of an expert lie together, one for each token that chose it, in the order of the tokens; its group begins at a
multiple of ALIGN rows, so that a tile of a matrix product reads one expert's rows alone, or what nobody asks for.
From the counts of each block of tokens (router.py):

    scan    of each expert, how many rows come from earlier blocks; in all
    place   the row of each token's choice, the token of each row, and the tiles of rows that there are

Both are exact sums, so that rows and results are the same in every run. A tile is (first row, expert, rows); their
number is on the device as well, and whoever is launched for more than there are has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher, maker
from groundspeed.kernels.moe.router import Choices

SCANNED = 128
"""Blocks at once."""
TILE = 4
"""Numbers of a tile in its list, the last one unused: read as one word of 16 bytes."""


class Groups(NamedTuple):
    places: torch.Tensor
    """[T, top_k] int32: the row of each choice."""
    tokens: torch.Tensor
    """[rows] int32: the token of each row; of rows between the groups, anything."""
    tiles: torch.Tensor
    """[most tiles, 4] int32: first row, expert, rows."""
    totals: torch.Tensor
    """[E + 1] int32: rows of each expert, and tiles of all."""


def most_rows(choices: int, experts: int, align: int) -> int:
    """Of so many choices, with the room between groups."""
    return choices + min(choices, experts) * (align - 1)


def most_tiles(choices: int, experts: int, block_m: int) -> int:
    return choices // block_m + min(choices, experts)


@triton.jit
def moe_scan_kernel(COUNTS, TOTALS, blocks, E, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr):
    """In place: of a block and expert, the rows of earlier blocks."""
    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    before = tl.zeros([BLOCK_E], tl.int32)
    for first in range(0, blocks, BLOCK_B):
        b = first + tl.arange(0, BLOCK_B)
        at = COUNTS + b[:, None] * E + e[None, :]
        inside = (b < blocks)[:, None] & (e < E)[None, :]
        counts = tl.load(at, mask=inside, other=0)
        tl.store(at, tl.cumsum(counts, 0) - counts + before[None, :], mask=inside)
        before += tl.sum(counts, 0)
    tl.store(TOTALS + e, before, mask=e < E)


@triton.jit
def moe_place_kernel(
    EXPERTS,
    BEFORE,
    TOTALS,
    PLACES,
    TOKENS,
    TILES,
    T,
    blocks,
    E: tl.constexpr,
    TOP_K: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Program p places block p of the tokens and lists the tiles of expert p."""
    p = tl.program_id(0)
    e = tl.arange(0, BLOCK_E)
    totals = tl.load(TOTALS + e, mask=e < E, other=0)
    room = (totals + ALIGN - 1) // ALIGN * ALIGN
    first_rows = tl.cumsum(room, 0) - room
    if p < blocks:
        t = p * BLOCK_T + tl.arange(0, BLOCK_T)
        here = t < T
        taken = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
        for i in tl.static_range(TOP_K):
            expert = tl.load(EXPERTS + t * TOP_K + i, mask=here, other=-1)
            taken += (e[None, :] == expert[:, None]).to(tl.int32)
        before = tl.load(BEFORE + p * E + e, mask=e < E, other=0) + first_rows
        rows = tl.cumsum(taken, 0) - taken + before[None, :]
        for i in tl.static_range(TOP_K):
            expert = tl.load(EXPERTS + t * TOP_K + i, mask=here, other=-1)
            row = tl.sum(tl.where(e[None, :] == expert[:, None], rows, 0), 1)
            tl.store(PLACES + t * TOP_K + i, row, mask=here)
            tl.store(TOKENS + row, t, mask=here)
    tiles = (totals + BLOCK_M - 1) // BLOCK_M
    if p == 0:
        tl.store(TOTALS + E, tl.sum(tiles, 0))
    if p < E:
        mine = e == p
        first_tile = tl.sum(tl.where(mine, tl.cumsum(tiles, 0) - tiles, 0), 0)
        first_row = tl.sum(tl.where(mine, first_rows, 0), 0)
        count, total = tl.sum(tl.where(mine, tiles, 0), 0), tl.sum(tl.where(mine, totals, 0), 0)
        for start in range(0, count, 128):
            i = start + tl.arange(0, 128)
            at, listed = TILES + (first_tile + i) * 4, i < count
            tl.store(at, first_row + i * BLOCK_M, mask=listed)
            tl.store(at + 1, tl.zeros_like(i) + p, mask=listed)
            tl.store(at + 2, tl.minimum(total - i * BLOCK_M, BLOCK_M), mask=listed)


def prepared(
    T: int, E: int, top_k: int, block_t: int, *, align: int, block_m: int, device: torch.device
) -> Callable[[Choices], Groups]:
    """What groups so many tokens, whose counts are by blocks of `block_t`, for tiles of `block_m` rows."""
    choices, blocks = T * top_k, triton.cdiv(T, block_t)
    make = maker(
        device,
        ((T, top_k), torch.int32),
        ((most_rows(choices, E, align),), torch.int32),
        ((most_tiles(choices, E, block_m), TILE), torch.int32),
        ((E + 1,), torch.int32),
    )
    scan_constants = {"BLOCK_B": SCANNED, "BLOCK_E": 16}
    scan = Launcher(moe_scan_kernel, (triton.cdiv(E, 16), 1, 1), scan_constants, {"num_warps": 4}, device)
    constants = {
        "E": E,
        "TOP_K": top_k,
        "ALIGN": align,
        "BLOCK_M": block_m,
        "BLOCK_T": block_t,
        "BLOCK_E": triton.next_power_of_2(E),
    }
    place = Launcher(moe_place_kernel, (max(blocks, E), 1, 1), constants, {"num_warps": 4}, device)

    def group(chosen: Choices) -> Groups:
        places, tokens, tiles, totals = make()
        scan(chosen.counts, totals, blocks, E)
        place(chosen.experts, chosen.counts, totals, places, tokens, tiles, T, blocks)
        return Groups(places, tokens, tiles, totals)

    return group
