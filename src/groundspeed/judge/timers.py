"""Whether two timers that watched the same calls agree on a comparison: the clock of the laboratory and PyTorch's
profiler, which sees when kernels begin and end and none of what is around them."""

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
"""What a case is about, whatever clock it is measured by."""
T_95 = 2.776
"""Student's, for the five intervals that are watched."""


@dataclass(frozen=True)
class Timers:
    """θ of a comparison by either of them."""

    clock: float
    profiler: float
    noise: float = 0.0
    """How far apart the two may be by what differs from interval to interval."""
    hidden: float = 0.0
    """By how much the clock may make the contender look slower than it is, by what the baseline hides of its share."""

    @property
    def apart(self) -> float:
        """Less what the baseline may hide; a contender has no such excuse."""
        apart = self.clock - self.profiler
        return apart if apart > 0 else min(0.0, apart + self.hidden)

    def disagree(self, floor: float) -> bool:
        return abs(self.apart) > max(floor, self.noise)

    def __str__(self) -> str:
        clock, profiler = math.exp(self.clock), math.exp(self.profiler)
        return (
            f"the timers disagree on the kernels alone: {clock:#.4g}× by the clock less its overhead, "
            f"{profiler:#.4g}× by the profiler on the same calls"
        )


@dataclass(frozen=True)
class Watched:
    timings: dict[tuple[Any, ...], tuple[Timing, ...]]
    """Of a shape and a contender. A shape is looked at once, whatever clocks it is measured by."""
    least_s: dict[str, float]
    """Of a clock: the least that an interval was said to have beside its kernels."""


def watched(record: Record) -> Watched:
    shapes = {case.name: shape_of(case) for case in record.cases}
    timings = {(shapes[seen.case], seen.contender): seen.timings for seen in record.launched if seen.timings}
    least_s: dict[str, float] = {}
    for timing in chain.from_iterable(timings.values()):
        least_s[timing.clock] = min(timing.overhead_s, least_s.get(timing.clock, math.inf))
    return Watched(timings, least_s)


def timers_of(record: Record, watched: Watched, case: CaseFacts, contender: str) -> Timers | None:
    """None where one of the two was not watched by both, as on every CPU."""
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
    """Log seconds a call by the clock, less what it has beside kernels."""
    profiler: float
    error: float
    """The standard error of what lies between the two."""
    unknown: float
    """The part of the time that stands beside kernels for how much is in a graph. It was seen at kernels of one kind:
    other work may hide all of it, as when the first of a graph goes to another part of the device."""


def _side(timings: Sequence[Timing], least_s: float) -> _Side:
    by_clock = [math.log(max(t.seconds - t.overhead_s, 0.5 * t.seconds) / t.launches) for t in timings]
    by_profiler = [math.log(t.kernels_s / t.launches) for t in timings]
    between = [a - b for a, b in zip(by_clock, by_profiler, strict=True)]
    error = statistics.stdev(between) / math.sqrt(len(between)) if len(between) > 1 else 0.0
    unknown = statistics.fmean((t.overhead_s - least_s) / t.seconds for t in timings)
    return _Side(statistics.fmean(by_clock), statistics.fmean(by_profiler), error, unknown)


def shape_of(case: CaseFacts) -> Shape:
    """Its parameters but the clock."""
    return tuple((key, value) for key, value in case.params.items() if key != "clock")
