"""How memory grows with the length of what is read (requirement B5): with its square where scores are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.fusion import SUITE
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.timers import Shape, shape_of

LINEAR, QUADRATIC = 1.3, 1.6
"""The power of the length up to which memory counts as O(N), and from which on as the matrix of scores."""
STANDARD = "naive"
"""Who writes the scores down."""
FLASH = ("sdpa", "ours")
LENGTH = "S"
LEAST = 3
"""Lengths of one kind from which on growth is told."""
WRONG = ("INCORRECT", "INVALID", "OOM")
"""Who ended so tells nothing of the memory that the work takes. A worker tells of memory after the gate alone: what is
known of others was right, as of those for whose blocks a preset has no time."""
SPEC_BYTES = {2048: (2.1e9, 0.6e9), 4096: (8.4e9, 1.2e9), 8192: (33.6e9, 2.4e9)}
"""Length → what a specification says of standard and of flash attention, on GPUs: no measurements. It does not say of
which shape; the first are those of one matrix of FP16 scores for 256 heads, of all sequences together."""

Growing = Literal["linear", "quadratic", "between"]


@dataclass(frozen=True)
class Growth:
    """What one call of a contender adds, over the lengths at which it was right and the system told."""

    contender: str
    bytes: dict[int, int]
    """Also where it was right and has no time."""
    statuses: dict[int, str]
    """Of the lengths at which it has no time: also that memory was out is an answer."""

    @property
    def power(self) -> float | None:
        """Of the length, from the shortest to the longest; None of one."""
        known = {length: amount for length, amount in self.bytes.items() if amount > 0}
        if len(known) < 2:
            return None
        short, long = min(known), max(known)
        return math.log(known[long] / known[short]) / math.log(long / short)

    @property
    def growing(self) -> Growing | None:
        if self.power is None:
            return None
        return "linear" if self.power < LINEAR else "quadratic" if self.power > QUADRATIC else "between"


@dataclass(frozen=True)
class Lengths:
    """Cases that differ in the length alone."""

    cases: dict[int, CaseFacts]
    """From the shortest on."""
    growths: tuple[Growth, ...]
    """Of who writes the scores down first, then of those who are said not to, then of others."""

    def spec_bytes(self, length: int, contender: str) -> float | None:
        """What a specification says of such a contender at this length, of whatever shape."""
        standard, flash = SPEC_BYTES.get(length, (None, None))
        return standard if contender == STANDARD else flash if contender in FLASH else None


def memory_by_length(judgement: Judgement) -> tuple[Lengths, ...]:
    kinds: dict[Shape, dict[int, CaseJudgement]] = {}
    for case in judgement.cases if judgement.record.run.suite == SUITE else ():
        length = case.facts.params.get(LENGTH)
        if isinstance(length, int) and length > 0 and case.clock == DEFAULT_CLOCK and "N" not in case.facts.params:
            kind = tuple(part for part in shape_of(case.facts) if part[0] != LENGTH)
            kinds.setdefault(kind, {})[length] = case
    order = (STANDARD, *FLASH)
    names = [contender.name for contender in judgement.record.measured]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    return tuple(
        Lengths(
            {length: some[length].facts for length in sorted(some)},
            tuple(_growth(name, {length: some[length] for length in sorted(some)}) for name in names),
        )
        for some in kinds.values()
        if len(some) >= LEAST
    )


def _growth(contender: str, cases: dict[int, CaseJudgement]) -> Growth:
    results = {length: case.result(contender) for length, case in cases.items()}
    right = {length: result for length, result in results.items() if result.status not in WRONG}
    told = {length: extra for length, r in right.items() if (extra := r.memory.extra_bytes) is not None}
    return Growth(contender, told, {length: r.status for length, r in results.items() if r.status != "PASSED"})
