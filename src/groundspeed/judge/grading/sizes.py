"""Pairs of cases of a bundle that differ in one size, compared by their speed against the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from groundspeed.judge.grading.traits import Evidence, Fact, Figure, Timed, by_default, groups


class Against(NamedTuple):
    """The speed against the baseline on two cases that differ in one size."""

    near: float
    """The upper end of the interval on the case expected to suffer."""
    far: float
    """The lower end of the interval on the other case."""
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
        Figure(f"{what}={one.param(what)} speed against {c.baseline}", c.ratio, "×")
        for one in (worse, better)
        if (c := one.result.comparison)
    ]
    return Against(near, far, evidence.fact(worse.case, *seen))


ODD = 64
"""A length that is not a multiple of this fills no kernel's tiles."""


def odd_lengths(evidence: Evidence, contender: str) -> Iterator[Against]:
    """Pair each length that does not fill its tiles with the nearest length that does, if that is within a quarter of
    it."""
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
    """Pair the widest head with the narrowest, at the same length and mask, if it is at least twice as wide."""
    for alike in groups(by_default(evidence, contender), lambda one: one.but("D", "H")):
        alike = sorted((one for one in alike if isinstance(one.param("D"), int)), key=lambda one: one.param("D"))
        if len(alike) > 1 and alike[-1].param("D") >= 2 * alike[0].param("D"):
            found = _against(evidence, alike[-1], alike[0], "D")
            if found:
                yield found


def small_work(evidence: Evidence, contender: str) -> Iterator[Against]:
    """Pair the smallest work with the largest that differs from it in only one size. If two cases differed in more, the
    size responsible for the speed would not be known."""
    timed = list(evidence.timed(contender))
    for one in timed:
        beside = [(other, size) for other in timed if (size := one.size_apart(other))]
        if not beside or min(other.case.facts.flops for other, _ in beside) < one.case.facts.flops:
            continue
        largest, size = max(beside, key=lambda pair: pair[0].case.facts.flops)
        apart = largest.case.facts.flops >= 8 * one.case.facts.flops
        if apart and (found := _against(evidence, one, largest, size)):
            yield found
