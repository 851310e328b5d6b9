"""Verdicts with their reasons: UNCLEAR unless the evidence supports FASTER, SAME or SLOWER."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.calibration import Length
from groundspeed.judge.floors import Floor, spread_floor
from groundspeed.judge.rule import Rule, outliers_of
from groundspeed.judge.statistics import (
    CONFIDENCE,
    Array,
    Interval,
    Trimmed,
    bca_interval,
    detectable,
    holm,
    paired_t_p,
    processes_to_detect,
    processes_to_enclose,
    t_interval,
    trimmed,
    wilcoxon_p,
)
from groundspeed.judge.timers import Timers

Verdict = Literal["FASTER", "SAME", "SLOWER", "UNCLEAR"]

SAME_LOW, SAME_HIGH = math.log(0.99), math.log(1.01)
ALPHA = 0.05

BIASED = (
    "the calibration of this machine raised its alarm: a contender seems to differ from itself; see groundspeed "
    "calibrate"
)
COARSE = "all processes agree to the last digit: the clock is too coarse for this work"


@dataclass(frozen=True)
class Centre:
    """θ of one process: its trimmed mean over the blocks, and descriptions that hold within this process only. The
    descriptions take longer than the rest of a judgement and no verdict rests on them, so they are computed lazily."""

    process: int
    blocks: int
    theta: Trimmed
    plain_mean: float
    series: Array = field(repr=False, compare=False)
    """θ of each block."""

    @cached_property
    def bootstrap(self) -> tuple[float, float]:
        return bca_interval(self.series)

    @cached_property
    def t_p(self) -> float:
        return paired_t_p(self.series)

    @cached_property
    def wilcoxon_p(self) -> float:
        return wilcoxon_p(self.series)


def centre(process: int, theta: Sequence[float]) -> Centre:
    series = np.asarray(theta, np.float64)
    return Centre(process, len(series), trimmed(series), float(series.mean()), series)


@dataclass(frozen=True)
class Comparison:
    """A contender against the baseline on one case."""

    contender: str
    baseline: str
    clock: str
    length: Length
    """The length of the work."""
    centres: tuple[Centre, ...]
    interval: Interval
    """The interval of θ over processes."""
    plain: Interval
    """The same from untrimmed means."""
    sequential: Interval | None
    """The same from each contender's samples in a row, if they were taken. It is shown for comparison only."""
    unthrottled: Interval | None
    """The same without the blocks in which the device held its clocks back; None if there were no such blocks, or no
    others."""
    timers: Timers | None
    """What two timers say about the same calls; None unless both watched."""
    floor: Floor
    adjusted_p: float | None
    """Holm's p over the run's verdicts and headlines; None for a pair outside the family."""
    verdict: Verdict | None
    reason: str
    detectable: float | None = None
    """For SAME or UNCLEAR: the least log ratio that this evidence would have shown in 9 runs of 10, were there no doubt
    about it; None if there is no spread over processes."""
    doubted: bool = False
    """For UNCLEAR: whether the reason is a doubt about the evidence, which no difference is large enough to remove,
    instead of noise."""
    needed: int | None = None
    """For UNCLEAR: the number of processes that would settle it at this noise; None if more would not."""
    decided_by: Floor | None = None
    """The floor that a difference had to exceed: the highest of the machine's, the run's and its outliers'."""
    believed: bool = True
    """For UNCLEAR: whether the interval at least rules out what lies outside it."""
    missed: float = 0.0
    """How far outside the interval θ may still lie if the run missed processes as far away as those of its
    neighbours."""

    def with_views(self, sequential: Sequence[float], unthrottled: Sequence[float], confidence: float) -> Comparison:
        """Return it with the intervals of two other views, given the θ of each process in them. A view that lacks a
        process is not shown."""
        views = [
            t_interval(thetas, confidence) if len(thetas) == len(self.centres) else None
            for thetas in (sequential, unthrottled)
        ]
        return replace(self, sequential=views[0], unthrottled=views[1])

    @property
    def ratio(self) -> float:
        return math.exp(self.interval.mean)

    @property
    def low(self) -> float:
        return math.exp(self.interval.low) if self.interval.n > 1 else math.nan

    @property
    def high(self) -> float:
        return math.exp(self.interval.high) if self.interval.n > 1 else math.nan


def compare(
    contender: str,
    baseline: str,
    centres: Sequence[Centre],
    floor: Floor,
    confidence: float = CONFIDENCE,
    timers: Timers | None = None,
    clock: str = DEFAULT_CLOCK,
    length: Length = "long",
) -> Comparison:
    """Return the comparison without its verdict, which needs the whole family."""
    return Comparison(
        contender=contender,
        baseline=baseline,
        clock=clock,
        length=length,
        centres=tuple(centres),
        interval=t_interval([c.theta.mean for c in centres], confidence),
        plain=t_interval([c.plain_mean for c in centres], confidence),
        sequential=None,
        unthrottled=None,
        timers=timers,
        floor=floor,
        adjusted_p=None,
        verdict=None,
        reason="not judged",
    )


def judge_family(
    family: Sequence[Comparison], declared_processes: int, headlines: Sequence[float] = (), alpha: float = ALPHA
) -> list[Comparison]:
    """Return the comparisons of a run with their verdicts. Holm's correction covers them and the run's headlines, whose
    p values are `headlines`."""
    adjusted = adjust(family, headlines)
    spread = spread_floor([c.interval for c in family], declared_processes)
    rule = Rule(len(adjusted), declared_processes, alpha, spread, outliers_of(family, declared_processes))
    return [_judged(c, p, rule) for c, p in zip(family, adjusted, strict=False)]


def adjust(family: Sequence[Comparison], headlines: Sequence[float]) -> list[float]:
    """Return Holm's p of the comparisons and then the headlines of a run, which are one family."""
    return holm([*(c.interval.p for c in family), *headlines])


def _judged(comparison: Comparison, p: float, rule: Rule) -> Comparison:
    ruling, floor, outliers = _verdict(comparison, p, rule), rule.floor_of(comparison), rule.outliers_of(comparison)
    shown = None
    if ruling.verdict in ("SAME", "UNCLEAR"):
        shown = least_shown(comparison.interval, rule.alpha, rule.family, floor)
    return replace(
        comparison,
        adjusted_p=p,
        verdict=ruling.verdict,
        reason=ruling.reason,
        detectable=shown,
        doubted=ruling.doubted,
        needed=ruling.needed,
        believed=ruling.believed,
        decided_by=floor,
        missed=outliers.hidden.value if outliers else 0.0,
    )


def least_shown(theta: Interval, alpha: float, family: int, floor: Floor) -> float | None:
    """Return the least log ratio that would have shown in 9 runs of 10, at Holm's strictest step in a family of this
    size and above the floor; None if there is no spread over processes to tell it from."""
    if theta.n < 2 or not theta.sd > 0:
        return None
    return max(floor.value, detectable(theta.sd, theta.n, alpha / family))


class Ruling(NamedTuple):
    verdict: Verdict | None
    reason: str
    needed: int | None = None
    believed: bool = True
    doubted: bool = False


def _disbelieved(reason: str) -> Ruling:
    return Ruling("UNCLEAR", reason, believed=False, doubted=True)


def _verdict(c: Comparison, p: float, rule: Rule) -> Ruling:
    theta, declared = c.interval, rule.declared
    if declared == 1:
        return Ruling(None, "this ratio comes from a single process, and another process may differ; no verdict")
    if theta.n < declared:
        measured = f"{theta.n} of {declared} declared processes were measured"
        return _disbelieved(f"{measured}; finish the run with --resume")
    if len({x.theta.mean for x in c.centres}) == 1:
        return _disbelieved(COARSE)
    if c.floor.alarm:
        return _disbelieved(BIASED)
    if c.timers and c.timers.disagree(rule.noise_of(c).value):
        return _disbelieved(f"{c.timers}; that is more than the {rule.noise_of(c)}")
    if reason := outliers_decide(c.interval, c.plain, rule.alpha):
        return Ruling("UNCLEAR", reason, doubted=True)
    floor = rule.floor_of(c)
    if theta.low >= SAME_LOW and theta.high <= SAME_HIGH:
        within, outliers = "the 95% interval lies within ±1%", rule.outliers_of(c)
        if outliers and outliers.hidden.value > SAME_HIGH:  # if missed, worth more than SAME allows
            said = f"{within}, but outlying processes in similar comparisons give an {outliers.hidden}"
            return Ruling("UNCLEAR", said, doubted=True)
        return Ruling("SAME", within)
    if p <= rule.alpha and abs(theta.mean) > floor.value:
        return Ruling(
            "FASTER" if theta.mean > 0 else "SLOWER",
            f"p = {p:.2g} after Holm's correction in a family of {rule.family}, and the difference exceeds the {floor}",
        )
    return _what_would_settle(c, p, rule)


def outliers_decide(interval: Interval, plain: Interval, alpha: float) -> str | None:
    """Return why a result depends on how outliers are treated, or None. `plain` comes from untrimmed means."""
    difference = abs(plain.mean - interval.mean)
    if difference > max(0.01, plain.half_width):
        by = f"{math.expm1(difference):.1%}"
        return f"the untrimmed mean differs from the trimmed mean by {by}: outliers decide how large it is"
    if plain.p <= alpha and plain.mean * interval.mean < 0:
        return "the untrimmed mean points the other way: outliers decide"
    return None


def _what_would_settle(c: Comparison, p: float, rule: Rule) -> Ruling:
    theta, sd, floor = c.interval.mean, c.interval.sd, rule.floor_of(c)
    outliers = rule.outliers_of(c)
    under = outliers.processes_for(theta) if outliers and floor.origin == "outlier" else 0
    if p <= rule.alpha:
        said = f"the difference of {_percent(theta)} is below the {floor}"
        return (
            Ruling("UNCLEAR", f"{said}; --processes {under} would settle it", under)
            if under
            else Ruling("UNCLEAR", said)
        )
    if abs(theta) > c.floor.value:
        needed = processes_to_detect(theta, sd, ALPHA / rule.family)
        needed = None if needed is None or under is None else max(needed, under)
    elif SAME_LOW < theta < SAME_HIGH:
        needed = processes_to_enclose(theta, sd, SAME_LOW, SAME_HIGH)
    else:
        return Ruling("UNCLEAR", f"the difference of {_percent(theta)} is above 1% but below the {c.floor}")
    if needed is None:
        return Ruling("UNCLEAR", "more than 1000 processes would be needed at this noise level")
    needed = max(needed, c.interval.n + 1)
    return Ruling("UNCLEAR", f"--processes {needed} would settle it in 9 of 10 runs at this noise level", needed)


def _percent(theta: float) -> str:
    return f"{math.expm1(theta):+.1%}"
