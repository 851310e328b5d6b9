"""Whether two timers that watched the same calls agree on a comparison: the laboratory's clock, and PyTorch's profiler,
which sees when kernels begin and end but nothing around them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.launched import Timing
from groundspeed.evidence.record import CaseFacts, Record

Shape = tuple[tuple[str, Any], ...]
"""The parameters of a case without its clock."""
T_95 = 2.776
"""Student's t for the five intervals that are watched."""


@dataclass(frozen=True)
class Timers:
    """θ of a comparison by each of the two timers."""

    clock: float
    profiler: float
    noise: float = 0.0
    """How far apart the two may be because intervals differ."""
    hidden: float = 0.0
    """By how much the clock may make the contender look slower than it is, because the baseline may hide overhead that
    is subtracted from its time."""

    @property
    def apart(self) -> float:
        """The difference of the two, less what the baseline may hide. A contender gets no such allowance."""
        apart = self.clock - self.profiler
        return apart if apart > 0 else min(0.0, apart + self.hidden)

    def disagree(self, floor: float) -> bool:
        return abs(self.apart) > max(floor, self.noise)

    def __str__(self) -> str:
        clock, profiler = math.exp(self.clock), math.exp(self.profiler)
        return (
            f"the timers disagree on the kernels: {clock:#.4g}× by the clock less its overhead, and "
            f"{profiler:#.4g}× by the profiler on the same calls"
        )


@dataclass(frozen=True)
class Watched:
    timings: dict[tuple[Any, ...], tuple[Timing, ...]]
    """(shape, contender) → timings. A shape is watched once, whichever clocks measure it."""
    least_s: dict[str, float]
    """Clock → the least recorded overhead of an interval beyond its kernels."""


def watched(record: Record) -> Watched:
    shapes = {case.name: shape_of(case) for case in record.cases}
    timings = {(shapes[seen.case], seen.contender): seen.timings for seen in record.launched if seen.timings}
    least_s: dict[str, float] = {}
    for timing in chain.from_iterable(timings.values()):
        least_s[timing.clock] = min(timing.overhead_s, least_s.get(timing.clock, math.inf))
    return Watched(timings, least_s)


def timers_of(record: Record, watched: Watched, case: CaseFacts, contender: str) -> Timers | None:
    """Return what the timers say, or None unless both of them watched the contender and the baseline. On a CPU they
    never do."""
    clock = str(case.params.get("clock", DEFAULT_CLOCK))
    sides = []
    for name in (record.run.baseline, contender):
        timings = [t for t in watched.timings.get((shape_of(case), name), ()) if t.clock == clock]
        if not timings:
            return None
        sides.append(_side(timings, watched.least_s[clock]))
    base, own = sides
    noise = T_95 * math.hypot(base.error, own.error)
    return Timers(base.clock - own.clock, base.profiler - own.profiler, noise, base.unknown)


class _Side(NamedTuple):
    clock: float
    """Log seconds per call by the clock, less its overhead beyond the kernels."""
    profiler: float
    error: float
    """The standard error of the difference between the two."""
    unknown: float
    """The share of the time that is overhead growing with the number of operations in a graph. It was measured with
    kernels of one kind. Other work may hide all of it, for example if the first kernel of a graph runs on another part
    of the device."""


def _side(timings: Sequence[Timing], least_s: float) -> _Side:
    by_clock = [math.log(max(t.seconds - t.overhead_s, 0.5 * t.seconds) / t.launches) for t in timings]
    by_profiler = [math.log(t.kernels_s / t.launches) for t in timings]
    between = [a - b for a, b in zip(by_clock, by_profiler, strict=True)]
    error = statistics.stdev(between) / math.sqrt(len(between)) if len(between) > 1 else 0.0
    unknown = statistics.fmean((t.overhead_s - least_s) / t.seconds for t in timings)
    return _Side(statistics.fmean(by_clock), statistics.fmean(by_profiler), error, unknown)


def shape_of(case: CaseFacts) -> Shape:
    """Return the parameters of a case without its clock."""
    return tuple((key, value) for key, value in case.params.items() if key != "clock")
