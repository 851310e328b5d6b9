"""Two cases of a bundle that differ in one size, by their speed against the baseline: who suffers by it?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from groundspeed.judge.grading.traits import Evidence, Fact, Figure, Timed, by_default, groups


class Against(NamedTuple):
    """Two cases that differ in one thing, by their speed against the baseline."""

    near: float
    """Upper end of the interval on the case that should suffer."""
    far: float
    """Lower end on the one that should not."""
    fact: Fact


def _speed(one: Timed, end: Literal["low", "high"]) -> float | None:
    comparison = one.result.comparison
    value = getattr(comparison, end) if comparison else math.nan
    return value if math.isfinite(value) else None


def _against(evidence: Evidence, worse: Timed, better: Timed, what: str) -> Against | None:
    near, far = _speed(worse, "high"), _speed(better, "low")
    if near is None or far is None or worse.result.comparison is None or better.result.comparison is None:
        return None
    seen = [
        Figure(f"speed against {c.baseline} at {what}={one.param(what)}", c.ratio, "×")
        for one in (worse, better)
        if (c := one.result.comparison)
    ]
    return Against(near, far, evidence.fact(worse.case, *seen))


ODD = 64
"""A length that is no multiple of this does not fill the tiles of anybody."""


def odd_lengths(evidence: Evidence, contender: str) -> Iterator[Against]:
    """Each length that fills no tiles, beside the nearest that does and is within a quarter of it."""
    cases = (one for one in by_default(evidence, contender) if one.length())
    for alike in groups(cases, lambda one: one.but("S")):
        even = [one for one in alike if (one.length() or 0) % ODD == 0]
        for one in alike:
            length = one.length() or 0
            near = [e for e in even if abs((e.length() or 0) - length) <= length / 4]
            if length % ODD and near:
                best = min(near, key=lambda e: abs((e.length() or 0) - length))
                if found := _against(evidence, one, best, "S"):
                    yield found


def wide_heads(evidence: Evidence, contender: str) -> Iterator[Against]:
    """The widest head beside the narrowest, at one length and mask."""
    for alike in groups(by_default(evidence, contender), lambda one: one.but("D", "H")):
        alike = sorted((one for one in alike if isinstance(one.param("D"), int)), key=lambda one: one.param("D"))
        if len(alike) > 1 and alike[-1].param("D") >= 2 * alike[0].param("D"):
            found = _against(evidence, alike[-1], alike[0], "D")
            if found:
                yield found


def small_work(evidence: Evidence, contender: str) -> Iterator[Against]:
    """The smallest work beside the largest that differs from it in one size alone: of two that differ in more, nobody
    knows which of them the speed is owed to."""
    timed = list(evidence.timed(contender))
    for one in timed:
        beside = [(other, size) for other in timed if (size := one.size_apart(other))]
        if not beside or min(other.case.facts.flops for other, _ in beside) < one.case.facts.flops:
            continue
        largest, size = max(beside, key=lambda pair: pair[0].case.facts.flops)
        apart = largest.case.facts.flops >= 8 * one.case.facts.flops
        if apart and (found := _against(evidence, one, largest, size)):
            yield found
