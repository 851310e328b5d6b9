"""How memory grows with the length of the sequence (requirement B5): with its square if scores are stored."""

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
"""Powers of the length. Below the first, memory counts as O(N); above the second, as a whole matrix of scores."""
STANDARD = "naive"
"""The contender that stores the scores."""
FLASH = ("sdpa", "ours")
LENGTH = "S"
LEAST = 3
"""The fewest lengths of one kind for which growth is reported."""
WRONG = ("INCORRECT", "INVALID", "OOM")
"""Statuses after which nothing is known of the memory that the work takes. A worker reports memory only after the gate,
so a memory figure of any other contender belongs to a right result, even if a preset had no time for its blocks."""
SPEC_BYTES = {2048: (2.1e9, 0.6e9), 4096: (8.4e9, 1.2e9), 8192: (33.6e9, 2.4e9)}
"""Length → what a specification states for standard and for flash attention on GPUs. These are not measurements, and
the specification does not give their shape. The first of each pair equals one matrix of FP16 scores for 256 heads, over
all sequences together."""

Growing = Literal["linear", "quadratic", "between"]


@dataclass(frozen=True)
class Growth:
    """The memory that one call of a contender adds, at each length at which its result was right and the memory is
    known."""

    contender: str
    bytes: dict[int, int]
    """Length → bytes, including lengths at which it was right but has no time."""
    statuses: dict[int, str]
    """Length → status, for the lengths at which it has no time. OOM is an answer too."""

    @property
    def power(self) -> float | None:
        """The power of the length that memory follows, from the shortest to the longest; None for a single length."""
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
    """Cases that differ only in their length."""

    cases: dict[int, CaseFacts]
    """Length → case, the shortest first."""
    growths: tuple[Growth, ...]
    """The contender that stores the scores first, then those that should not, then the rest."""

    def spec_bytes(self, length: int, contender: str) -> float | None:
        """Return what the specification states for a contender of this kind at this length, or None. Its shape is not
        known."""
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
