"""The configuration of the Hopper kernel for a shape: tiles and loops, from tables that were measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import triton

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.launch import MULTIPROCESSORS

BLOCK_M = 64
"""Rows of a consumer warpgroup."""
WITHIN_A_HEAD, OVER_TWO_HEADS = 1, 2


class Columns(NamedTuple):
    """The columns of a tile: a power of two, and the power of two for a second part with the columns beyond it, or 0.
    (In Gluon, tensors in registers and shared memory have power-of-two sizes.)"""

    first: int
    rest: int = 0

    @classmethod
    def of(cls, head_dim: int) -> Columns:
        whole: int = triton.next_power_of_2(max(head_dim, 32))
        half = whole // 2
        rest: int = max(16, triton.next_power_of_2(head_dim - half)) if head_dim > 64 else half
        return cls(whole) if rest == half else cls(half, rest)

    @classmethod
    def of_values(cls, value_dim: int, head_dim: int) -> Columns:
        """Return the columns of the values. Their second part is at most as wide as that of the keys, since O is stored
        where Q was."""
        found = cls.of(value_dim)
        fits = found.rest <= cls.of(head_dim).rest
        return found if fits else cls(triton.next_power_of_2(value_dim))


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    consumers: int = 2
    """Consumer warpgroups. With one, two programs share a multiprocessor, and each hides what the other waits for."""
    block_n: int = 128
    stages: int = 2
    places: int = 4
    persistent: bool = True
    flat: bool = False
    ordered: bool = False
    turns: bool = False
    local_sums: bool = False
    lazy: bool = False
    split: bool = False
    balanced: bool = False
    """Balance the programs also if a head has an odd number of tiles, or short tiles at its ends (schedule.py)."""

    def __post_init__(self) -> None:
        if self.stages < 2 or self.places < self.consumers + self.persistent or (self.turns and self.consumers == 1):
            raise ValueError(
                f"{self} would deadlock: it needs two stages, a place for each consumer and one more if it is "
                "persistent, and two consumers if it has turns"
            )

    @classmethod
    def choose(
        cls,
        queries: int,
        keys: int,
        head_dim: int,
        form: Form,
        heads: float = inf,
        *,
        value_dim: int | None = None,
        packed: bool = False,
    ) -> Launch:
        """Return the launch of the first matching line in the table for such a form. `heads` is the total over all
        batches: if heads and queries are too few for larger tiles to fill half of a GPU, small tiles are chosen, which
        fill all of it. `value_dim` is given if it differs from `head_dim`."""
        table: tuple[Line, ...] = WINDOWS if form.left >= 0 else CAPPED if form.softcap > 0 else TABLE
        causal, seen = form.right >= 0, keys
        if form.left >= 0:
            causal = not form.softcap and not (packed and form.right > 0)
            seen = keys if form.right < 0 else min(keys, form.left + form.right + BLOCK_M)
        half_empty = 2 * heads * triton.cdiv(queries, 2 * BLOCK_M) <= MULTIPROCESSORS
        if table is TABLE and half_empty and keys > SHORT and head_dim <= 128:
            return ONE_64 if head_dim <= 64 else ONE_128
        return next(
            line.launch
            for line in table
            if (head_dim <= line.head_dim and causal in line.causal and seen <= line.keys)
            and not (queries < FEW and line.launch.consumers > 2)
            and not (packed and not line.launch.persistent)
            and (value_dim or head_dim) <= line.values
        )

    @property
    def rows(self) -> int:
        return self.consumers * BLOCK_M

    @property
    def residents(self) -> int:
        """The number of programs for which a multiprocessor has registers."""
        return 2 if self.consumers == 1 else 1

    def _pairs(self, queries: int, heads: float) -> int:
        """Return how tiles are paired, as schedule.py describes. If the number of tiles is odd, the middle one is
        processed twice, which is too much if there are few; or it is paired with that of the next head, if every head
        has a partner."""
        tiles: int = triton.cdiv(queries, self.rows)
        if tiles % 2 and tiles > 1 and self.balanced and heads % 2 == 0:
            return OVER_TWO_HEADS
        return WITHIN_A_HEAD if tiles % 2 == 0 or tiles > 8 else 0

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": 4, "maxnreg": 168 if self.consumers == 2 else 128}

    def constants(
        self,
        queries: int,
        keys: int,
        head_dim: int,
        form: Form,
        heads: float = inf,
        *,
        value_dim: int | None = None,
        packed: bool = False,
    ) -> dict[str, Any]:
        """Return the constants that the kernel is compiled with. `heads` is the total over all batches; `value_dim` is
        given if it differs from `head_dim`. Whether there are more tiles than can run at once is decided for an H200,
        whatever the GPU, so that the compiled kernel does not depend on the GPU."""
        columns = Columns.of(head_dim)
        of_values = Columns.of_values(value_dim or head_dim, head_dim)
        differ = form.right >= 0 and form.left < 0  # whether tiles differ in length
        more = heads * triton.cdiv(queries, self.rows) > self.residents * MULTIPROCESSORS
        several = more and self.persistent and not packed
        return {
            "CONSUMERS": self.consumers,
            "BLOCK_M": BLOCK_M,
            "BLOCK_N": self.block_n,
            "HEAD_DIM": columns.first,
            "HEAD_REST": columns.rest,
            "VALUE_DIM": of_values.first,
            "VALUE_REST": of_values.rest,
            "STAGES": self.stages,
            "PLACES": self.places,
            "CAUSAL": form.right >= 0,
            "LEFT": form.left >= 0,
            "CAP": form.softcap > 0,
            "SINKS": form.sinks,
            "PACKED": packed,
            "PAIRED": self._pairs(queries, heads) if differ and several else 0,
            "SHIFTED": form.left >= 0 and several and self.balanced,
            "RAGGED": packed or keys % self.block_n != 0,
            "EMPTY": packed or _has_empty_rows(queries, keys, form),
            "FLAT": self.flat,
            "ORDERED": self.ordered,
            "TURNS": self.turns,
            "LOCAL_SUMS": self.local_sums,
            "LAZY": self.lazy,
            "SPLIT": self.split,
            "REGISTERS": 240 if self.consumers == 2 else 160,
        }


def _has_empty_rows(queries: int, keys: int, form: Form) -> bool:
    """Return whether some row may see no key, or none of the first block of its tile."""
    return form.left >= 0 or (form.right >= 0 and keys + form.right < queries)


class Line(NamedTuple):
    """A line of a table: the launch for head dimensions up to `head_dim`, these masks, and rows that see up to `keys`
    keys."""

    head_dim: int
    causal: tuple[bool, ...]
    keys: float
    launch: Launch
    values: float = inf
    """The largest dimension of the values."""


FEW, SHORT = 1024, 256
ANY = (False, True)
ONE_64 = Launch(1, 128, 2, 3, local_sums=True)
ONE_128 = Launch(1, 64, 2, 2, ordered=True, local_sums=True, lazy=True)
TWO_128 = Launch(ordered=True, local_sums=True, lazy=True, split=True)
BALANCED_128 = replace(TWO_128, balanced=True)
TWO_256 = Launch(2, 64, 2, 3, flat=True, ordered=True, local_sums=True, lazy=True, split=True)
TABLE = (
    Line(64, (True,), SHORT, replace(ONE_64, block_n=64)),
    Line(64, ANY, 1024, ONE_64),
    Line(64, (True,), 2048, Launch(stages=4, places=8, ordered=True, local_sums=True, lazy=True)),
    Line(64, ANY, inf, Launch(consumers=3, places=6, turns=True)),
    Line(64, ANY, inf, ONE_64),
    Line(128, ANY, SHORT, ONE_128),
    Line(128, (True,), 1024, Launch(places=6, flat=True, local_sums=True, lazy=True)),
    Line(96, ANY, inf, replace(TWO_128, stages=3, split=False)),
    Line(128, ANY, inf, BALANCED_128),
    Line(192, ANY, inf, replace(TWO_128, places=2, persistent=False), values=128),
    Line(192, ANY, inf, replace(TWO_256, stages=3, flat=False)),
    Line(256, ANY, inf, TWO_256),
)
"""Tuned with tools/tune_hopper.py on an H200 in BF16, with 16,384 tokens and 2,048 columns over all heads in each
batch. The lines with one consumer, and the two tables below, were tuned with separate scripts (docs/log.md). The lines
with three stages were timed against cuDNN and each other, not against two stages."""
WINDOWS = (
    Line(64, ANY, inf, ONE_64),
    Line(128, ANY, SHORT, ONE_128),
    Line(128, (True,), inf, BALANCED_128),
    Line(128, ANY, inf, Launch(places=6, flat=True, local_sums=True)),
    Line(256, ANY, inf, TWO_256),
)
"""For windows. A window counts as causal here if it has no soft-cap and, for packed sequences, is bounded on one side
only: otherwise TWO_128 spills."""
CAPPED = (Line(64, ANY, inf, Launch(local_sums=True)), Line(128, ANY, inf, TWO_128), Line(256, ANY, inf, TWO_256))
