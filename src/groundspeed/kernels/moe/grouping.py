"""Grouping tokens by expert, without asking the host how many tokens each expert has.

The rows of an expert are stored together, one for each token that chose it, in the order of the tokens. A group begins
at a multiple of ALIGN rows, so that a tile of a matrix product contains rows of one expert only, or unused ones. From
the counts of each block of tokens (router.py):

    scan    for each expert, the rows from earlier blocks, and the total; with few blocks, `place` does this
    place   the row of each token's choice, the token of each row, and the list of tiles

These are exact integer sums, so rows and results are the same in every run. A tile is (first row, expert, rows). The
number of tiles is on the device as well, and programs beyond it have nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher, maker

SCANNED = 128
"""The number of blocks that are scanned at a time."""
TILE = 4
"""The numbers of a tile in the list: 16 bytes, of which the last number is unused."""


class Choices(NamedTuple):
    """The results of the router."""

    experts: torch.Tensor
    """[T, top_k] int32."""
    weights: torch.Tensor
    """[T, top_k] FP32."""
    counts: torch.Tensor | None
    """[blocks, E] int32: the tokens of a block that chose an expert. None if the groups were made together with the
    choices."""
    sums: torch.Tensor | None
    """[blocks, E + 1] FP32, if losses are wanted: summed over the tokens of a block, the shares of each expert and the
    squared log-sum-exp. Otherwise None."""


class Groups(NamedTuple):
    places: torch.Tensor
    """[T, top_k] int32: the row of each choice."""
    tokens: torch.Tensor
    """[rows] int32: the token of each row; undefined for rows between groups."""
    tiles: torch.Tensor
    """[most tiles, 4] int32: first row, expert, rows, and one unused."""
    totals: torch.Tensor
    """[E + 1] int32: the rows of each expert, and the number of all tiles."""


def most_rows(choices: int, experts: int, align: int) -> int:
    """Return the most rows that `choices` choices can take, including the padding between groups."""
    return choices + min(choices, experts) * (align - 1)


def most_tiles(choices: int, experts: int, block_m: int) -> int:
    return choices // block_m + min(choices, experts)


@triton.jit
def moe_scan_kernel(COUNTS, TOTALS, blocks, E, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr):
    """Replace each count, in place, by the rows of its expert from earlier blocks, and store the totals."""
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
def first_rows(totals, ALIGN: tl.constexpr):
    """Return the first row of each group."""
    room = (totals + ALIGN - 1) // ALIGN * ALIGN
    return tl.cumsum(room, 0) - room


@triton.jit
def list_tiles(TILES, place, first_row, expert, total, count, i, BLOCK_M: tl.constexpr):
    """Write tile i of an expert's rows to its place in the list, if it has that many; or several tiles or experts at a
    time."""
    at, listed = TILES + place * 4, i < count
    tl.store(at, first_row + i * BLOCK_M, mask=listed)
    tl.store(at + 1, expert, mask=listed)
    tl.store(at + 2, tl.minimum(total - i * BLOCK_M, BLOCK_M), mask=listed)


@triton.jit
def moe_place_kernel(
    EXPERTS,
    COUNTS,
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
    LONG: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_B: tl.constexpr,
):
    """Program p places block p of the tokens and lists the tiles of expert p. If BLOCK_B is not 0, the blocks have not
    been scanned, and BLOCK_B is at least their number."""
    p = tl.program_id(0)
    e = tl.arange(0, BLOCK_E)
    if BLOCK_B:
        b = tl.arange(0, BLOCK_B)
        inside = (b < blocks)[:, None] & (e < E)[None, :]
        counts = tl.load(COUNTS + b[:, None] * E + e[None, :], mask=inside, other=0)
        totals = tl.sum(counts, 0)
        before = tl.sum(tl.where((b < p)[:, None], counts, 0), 0)
        if p == 0:
            tl.store(TOTALS + e, totals, mask=e < E)
    else:
        totals = tl.load(TOTALS + e, mask=e < E, other=0)
        before = tl.load(COUNTS + p * E + e, mask=(e < E) & (p < blocks), other=0)
    begin = first_rows(totals, ALIGN)
    if p < blocks:
        t = p * BLOCK_T + tl.arange(0, BLOCK_T)
        here = t < T
        taken = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
        for i in tl.static_range(TOP_K):
            expert = tl.load(EXPERTS + t * TOP_K + i, mask=here, other=-1)
            taken += (e[None, :] == expert[:, None]).to(tl.int32)
        rows = tl.cumsum(taken, 0) - taken + (before + begin)[None, :]
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
        first_row = tl.sum(tl.where(mine, begin, 0), 0)
        count, total = tl.sum(tl.where(mine, tiles, 0), 0), tl.sum(tl.where(mine, totals, 0), 0)
        if LONG:  # first all tiles with more than LONG rows, then the others, both in the order of the experts
            long = totals // BLOCK_M + (totals % BLOCK_M > LONG).to(tl.int32)
            short = tiles - long
            first_tile = tl.sum(tl.where(mine, tl.cumsum(long, 0) - long, 0), 0)
            long_tiles = tl.sum(tl.where(mine, long, 0), 0)
            skipped = tl.sum(long, 0) + tl.sum(tl.where(mine, tl.cumsum(short, 0) - short, 0), 0)
            skipped -= first_tile + long_tiles
        for start in range(0, count, 128):
            i = start + tl.arange(0, 128)
            place = first_tile + i
            if LONG:
                place += tl.where(i < long_tiles, 0, skipped)
            list_tiles(TILES, place, first_row, tl.zeros_like(i) + p, total, count, i, BLOCK_M)


class Plan(NamedTuple):
    """How the choices of T tokens are grouped: in groups that begin at multiples of `align` rows, with tiles of
    `block_m` rows. Tiles with more than `long` rows are listed first, if it is not 0 and there are more than a few
    tokens."""

    T: int
    E: int
    top_k: int
    align: int
    block_m: int
    long: int = 0

    @property
    def choices(self) -> int:
        return self.T * self.top_k

    @property
    def rows(self) -> int:
        return most_rows(self.choices, self.E, self.align)

    def maker(self, device: torch.device) -> Callable[[], list[torch.Tensor]]:
        """Return a function that allocates the tensors of `Groups`."""
        return maker(
            device,
            ((self.T, self.top_k), torch.int32),
            ((self.rows,), torch.int32),
            ((most_tiles(self.choices, self.E, self.block_m), TILE), torch.int32),
            ((self.E + 1,), torch.int32),
        )


def prepared(plan: Plan, block_t: int, device: torch.device) -> Callable[[Choices], Groups]:
    """Return a function that groups tokens whose counts are per block of `block_t` tokens."""
    T, E = plan.T, plan.E
    blocks = triton.cdiv(T, block_t)
    few = blocks <= SCANNED and blocks * E <= SCANNED * 64
    make = plan.maker(device)
    scan_constants = {"BLOCK_B": SCANNED, "BLOCK_E": 16}
    scan = Launcher(moe_scan_kernel, (triton.cdiv(E, 16), 1, 1), scan_constants, {"num_warps": 4}, device)
    constants = {
        "E": E,
        "TOP_K": plan.top_k,
        "ALIGN": plan.align,
        "BLOCK_M": plan.block_m,
        "LONG": plan.long,
        "BLOCK_T": block_t,
        "BLOCK_E": triton.next_power_of_2(E),
        "BLOCK_B": triton.next_power_of_2(blocks) if few else 0,
    }
    options = {"num_warps": 4 if E <= 64 else 8 if E <= 256 else 16}
    place = Launcher(moe_place_kernel, (max(blocks, E), 1, 1), constants, options, device)

    def group(chosen: Choices) -> Groups:
        places, tokens, tiles, totals = make()
        if not few:
            scan(chosen.counts, totals, blocks, E)
        place(chosen.experts, chosen.counts, totals, places, tokens, tiles, T, blocks)
        return Groups(places, tokens, tiles, totals)

    return group
