"""The result of a contender over all cases of a run, so that the best of N shapes cannot be the headline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groundspeed.evidence.record import Record
from groundspeed.judge.floors import Floor
from groundspeed.judge.statistics import Interval, t_interval
from groundspeed.judge.timers import Timers
from groundspeed.judge.verdict import BIASED, COARSE, SAME_HIGH, SAME_LOW, least_shown, outliers_decide

if TYPE_CHECKING:
    from groundspeed.judge.judgement import Result
    from groundspeed.judge.verdict import Comparison

Category = Literal["excellent", "good", "measured", "investigate"]

CATEGORIES: tuple[tuple[Category, float, float], ...] = (
    ("excellent", 1.5, math.inf),
    ("good", 1.2, 1.5),
    ("measured", 1.0, 1.2),
    ("investigate", 0.0, 1.0),
)
"""Requirement C1: name, from, to."""


def category(low: float, high: float) -> str:
    """Return the category that contains the whole interval, or `X to Y` for those of its two ends. An estimate without
    an interval has no category."""
    lower, upper = _category_of(low), _category_of(high)
    return lower if lower == upper else f"{lower} to {upper}"


def _category_of(ratio: float) -> Category:
    return next(name for name, low, _ in CATEGORIES if ratio > low or low == 0.0)


BROKEN = ("INCORRECT", "INVALID", "ERROR", "TIMEOUT")
"""A contender with one of these statuses on any case has no headline."""


@dataclass(frozen=True)
class Grid:
    contender: str
    baseline: str
    clock: str
    """The clock of all its cases: times by different clocks are not averaged."""
    names: tuple[str, ...]
    """The names of its cases."""
    cases: int
    compared: int
    """The number of cases that contender and baseline both passed in every process."""
    verdicts: dict[str, int]
    """FASTER, SAME, SLOWER, UNCLEAR → how many cases."""
    failed: dict[str, int]
    """Status → how many cases have no comparison because of it."""
    interval: Interval | None
    """The interval of the mean θ over the compared cases, averaged within each process first."""
    alpha: float
    """The level at which a difference counts."""
    adjusted_p: float
    """Holm's p over the verdicts and headlines of the run, because among several one may look good by chance."""
    floor: Floor | None
    doubt: str | None
    """Why no claim may rest on that mean, whatever its p; None if one may."""
    detectable: float | None
    """The least log ratio of the mean that this evidence would have shown in 9 runs of 10, were there no doubt; None if
    there is no spread over processes."""
    mean: float | None
    """The mean speed-up over the cases, followed by the median, the least and the greatest."""
    median: float | None
    min: float | None
    max: float | None

    @property
    def broken(self) -> bool:
        return any(status in BROKEN for status in self.failed)

    @property
    def ratio(self) -> float | None:
        """The geometric mean of the speed-ups."""
        return math.exp(self.interval.mean) if self.interval else None

    @property
    def same(self) -> bool:
        """Whether every case is SAME and their mean lies within ±1% too. A win and a loss that cancel do not count."""
        inside = self.interval and self.interval.low >= SAME_LOW and self.interval.high <= SAME_HIGH
        return bool(inside and self.doubt is None and self.verdicts["SAME"] == self.cases)

    @property
    def differs(self) -> bool:
        """Whether the geometric mean differs from 1 by more than chance and the floor allow."""
        return bool(
            self.interval
            and self.floor
            and self.doubt is None
            and self.interval.n > 1
            and self.adjusted_p <= self.alpha
            and abs(self.interval.mean) > self.floor.value
        )

    @property
    def decided(self) -> bool:
        """Whether it differs, and at least one case has the same verdict."""
        return bool(self.interval and self.differs and self.verdicts["FASTER" if self.interval.mean > 0 else "SLOWER"])


def summarise(
    record: Record,
    contender: str,
    clock: str,
    results: Mapping[str, Result],
    adjusted_p: float = 1.0,
    family: int = 1,
) -> Grid:
    """Return the grid, given Holm's p of its headline and the number of verdicts and headlines that Holm's correction
    covers."""
    comparisons = [r.comparison for r in results.values() if r.comparison]
    verdicts = dict.fromkeys(("FASTER", "SAME", "SLOWER", "UNCLEAR"), 0)
    for comparison in comparisons:
        if comparison.verdict:
            verdicts[comparison.verdict] += 1
    failed: dict[str, int] = {}
    for result in results.values():
        if not result.comparison:
            status = result.status if result.status != "PASSED" else "NO BASELINE"
            failed[status] = failed.get(status, 0) + 1
    ratios = [c.ratio for c in comparisons]
    per_process = [
        [centre for c in comparisons for centre in c.centres if centre.process == process]
        for process in sorted(record.finished_attempts)
    ]
    whole = [centres for centres in per_process if len(centres) == len(comparisons) and centres]
    confidence, alpha = record.protocol.confidence, alpha_of(record)
    means = [statistics.fmean(c.theta.mean for c in centres) for centres in whole]
    plain_means = [statistics.fmean(c.plain_mean for c in centres) for centres in whole]
    interval = t_interval(means, confidence) if whole else None
    plain = t_interval(plain_means, confidence) if whole else None
    floor = max((c.floor for c in comparisons), key=lambda f: f.value, default=None)
    return Grid(
        contender=contender,
        baseline=record.run.baseline,
        clock=clock,
        names=tuple(results),
        cases=len(results),
        compared=len(comparisons),
        verdicts=verdicts,
        failed=failed,
        interval=interval,
        alpha=alpha,
        adjusted_p=adjusted_p,
        floor=floor,
        doubt=_doubt(interval, plain, record.declared_processes, alpha)
        or (BIASED if any(c.floor.alarm for c in comparisons) else None)
        or _timers_disagree(comparisons),
        detectable=least_shown(interval, alpha, family, floor) if interval and floor else None,
        mean=statistics.fmean(ratios) if ratios else None,
        median=statistics.median(ratios) if ratios else None,
        min=min(ratios, default=None),
        max=max(ratios, default=None),
    )


def _timers_disagree(comparisons: Sequence[Comparison]) -> str | None:
    """Return why the two timers disagree, or None: over the cases that both watched, their means must not be farther
    apart than the highest floor of any case."""
    timers = [c.timers for c in comparisons if c.timers]
    if not timers:
        return None
    mean = Timers(
        *(statistics.fmean(getattr(t, name) for t in timers) for name in ("clock", "profiler", "noise", "hidden"))
    )
    return str(mean) if mean.disagree(max(c.floor.value for c in comparisons)) else None


def alpha_of(record: Record) -> float:
    """Return the level of a run's tests, which is 1 less the confidence of its intervals."""
    return round(1 - record.protocol.confidence, 6)


def _doubt(interval: Interval | None, plain: Interval | None, declared: int, alpha: float) -> str | None:
    """Return why the mean over the cases is in doubt, by the rules that make a single comparison UNCLEAR, or None."""
    if interval is None or plain is None or interval.n < declared:
        return f"{interval.n if interval else 0} of {declared} declared processes compared every case"
    if interval.sd == 0:
        return COARSE
    return outliers_decide(interval, plain, alpha)
