"""Tiles of the grouped product on Hopper, by shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton

from groundspeed.kernels.launch import MULTIPROCESSORS
from groundspeed.kernels.moe.form import NUMBER as OF_EXPERTS
from groundspeed.kernels.moe.form import widening

NUMBER = {**OF_EXPERTS, "gelu_tanh": 4}
"""The number by which these kernels know an activation. Experts have fewer of them than plain products."""
ALIGN = 64
"""Groups begin at multiples of this many rows: those of a consumer."""
STORED = 128
"""The most columns that are stored at a time: more would leave no room for the stages."""
MATRIX, PIECE = 128, 32
"""With operands exchanged: the rows of the matrix of a consumer, and the tokens that are stored at a time."""

MOST_SHARED = 226 << 10
"""The bytes of shared memory of a program, less some for barriers."""


def _check_block(block_k: int) -> None:
    if block_k > 64:  # of 16 bits: rows of over 128 bytes lie in two panels, and a slice of the rows would mix them up
        raise ValueError(f"blocks of {block_k} columns of K are not supported: choose at most 64")


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    consumers: int = 2
    block_n: int = 256
    block_k: int = 64
    stages: int = 4
    together: int = 16
    lag: int = 0

    def __post_init__(self) -> None:
        _check_block(self.block_k)
        if self.lag and not (self.consumers == 2 and 0 < self.lag < self.stages):
            raise ValueError(f"{self} would deadlock: a lag needs two consumers, and must be less than the stages")

    @classmethod
    def choose(cls, rows: int, groups: int, width: int, activation: str | None) -> Launch:
        """Return the launch for `rows` rows in `groups` groups, with c `width` columns wide. Measured on an H200 with
        32 groups of 128 and of 2,048 rows (4096 × 11008, docs/log.md): with 128 rows, two consumers take 0.90 (GELU)
        and 0.82 (SwiGLU) of the time of one; with 2,048, no other depth, lag or order was distinguishable from this
        one. With up to 64 rows per group, half of a tile of two consumers would be empty, so there is one consumer, as
        in the exploration. Narrow tiles, used if otherwise some multiprocessors had no work, are not measured."""
        if rows > 160 * groups:
            return cls()
        narrow = 256
        while narrow > 64 and groups * triton.cdiv(width * widening(activation), narrow) < MULTIPROCESSORS:
            narrow //= 2
        if rows > ALIGN * groups and narrow == 256:
            return cls()
        return cls(1, narrow, stages={256: 5, 128: 8, 64: 12}[narrow], together=32)

    @property
    def rows(self) -> int:
        return self.consumers * ALIGN

    @property
    def long(self) -> int:
        return 0

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": 4, "maxnreg": 168}

    def constants(self, activation: str | None, steps: int) -> dict[str, Any]:
        """Return the constants that the kernel is compiled with. `steps` is the number of blocks of K. If there are
        few, there is no lag: the first consumer could be a whole tile ahead."""
        return {
            "CONSUMERS": self.consumers,
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "STAGES": self.stages,
            "COLUMNS": min(STORED, self.block_n // widening(activation)),
            "ACTIVATION": NUMBER[activation],
            "TOGETHER": self.together,
            "LAG": self.lag if steps >= 2 * self.stages else 0,
        }


@dataclass(frozen=True)
class Transposed:
    """All tunable parameters of a launch with its operands exchanged (transposed.py)."""

    tokens: int = 128
    rest: int = 32
    """The tokens of a tile besides; 0 if it has none."""
    block_k: int = 64
    stages: int = 4
    together: int = 2
    long_first: bool = False
    """Whether tiles with a rest, which take longer, are taken first. The tiles of an expert are then apart, so this is
    for experts with one tile."""

    def __post_init__(self) -> None:
        _check_block(self.block_k)
        if any(n % PIECE or n & (n - 1) for n in (self.tokens, self.rest)):  # a group begins at a multiple of ALIGN
            raise ValueError(f"{self}: tokens are stored {PIECE} at a time, and come in powers of two")
        if (needed := 2 * (self.stages * (self.block_n + self.rows) * self.block_k + 2 * PIECE * MATRIX)) > MOST_SHARED:
            raise ValueError(f"{self} needs {needed} bytes of shared memory, of which there are {MOST_SHARED}")

    @property
    def rows(self) -> int:
        return self.tokens + self.rest

    @property
    def long(self) -> int:
        """The number of rows above which tiles are listed first; 0 for the order of the experts."""
        return self.tokens if self.long_first else 0

    @property
    def block_n(self) -> int:
        return 2 * MATRIX

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": 4, "maxnreg": 168}

    def constants(self, activation: str | None, steps: int) -> dict[str, Any]:
        """Return the constants that the kernel is compiled with."""
        return {
            "TOKENS": self.tokens,
            "REST": self.rest,
            "BLOCK_K": self.block_k,
            "STAGES": self.stages,
            "COLUMNS": MATRIX // widening(activation),
            "ACTIVATION": NUMBER[activation],
            "TOGETHER": self.together,
        }


EXCHANGED = Transposed(long_first=True)
MOST_EXCHANGED = 136
"""The most rows of a group, on average, for exchanged operands: with 128 on average, random routing leaves hardly a
group over 160."""


def choose_pair(
    rows: int, groups: int, up: tuple[int, str | None], down: tuple[int, str | None]
) -> tuple[Launch | Transposed, Launch | Transposed]:
    """Return the launches of the two products of a layer, each given as in `Launch.choose` by its width and activation.
    Both read one list of tiles, so their tiles have the same number of rows.

    With about as many rows in a group as fit in one tile of 160, operands are exchanged: measured on an H200 with 32
    groups of 64, 96 and 128 rows on average (4096 × 11008), where a layer takes 0.82, 0.93 and 0.83 of the time that it
    takes with `Launch`, and with 128 groups of 128 (2048 × 768), 0.94; with 192 and 256 rows, 1.48 and 1.19
    (docs/log.md). With 64 rows or fewer, portable products are as fast.

    Otherwise, where only one of the products has columns enough for tiles of 256, both have two consumers if the other
    one then still keeps half of the multiprocessors busy, which is enough to read its weights at full bandwidth, and
    one consumer if not. That is not measured."""
    fewest = min(groups * triton.cdiv(width * widening(activation), 256) for width, activation in (up, down))
    if ALIGN * groups < rows <= MOST_EXCHANGED * groups and 2 * fewest >= MULTIPROCESSORS:
        return EXCHANGED, EXCHANGED
    first, second = (Launch.choose(rows, groups, *product) for product in (up, down))
    if first.rows == second.rows:
        return first, second
    if 2 * fewest >= MULTIPROCESSORS:
        return Launch(), Launch()
    one = Launch(1, stages=5, together=32)
    return (one if first.consumers > 1 else first), (one if second.consumers > 1 else second)
