"""Whether two timers that watched the same calls agree on a comparison: the clock of the laboratory and PyTorch's
profiler, which sees when kernels begin and end and none of what is around them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.launched import Timing
from groundspeed.evidence.record import CaseFacts, Record

T_95 = 2.776
"""Student's, for the five intervals that are watched."""


@dataclass(frozen=True)
class Timers:
    """θ of a comparison by either of them."""

    clock: float
    profiler: float
    noise: float = 0.0
    """How far apart the two may be by what differs from interval to interval."""

    @property
    def apart(self) -> float:
        return self.clock - self.profiler

    def disagree(self, floor: float) -> bool:
        return abs(self.apart) > max(floor, self.noise)

    def __str__(self) -> str:
        clock, profiler = math.exp(self.clock), math.exp(self.profiler)
        return f"the timers disagree: {clock:.3g}× by the clock, {profiler:.3g}× by the profiler on the same calls"


Watched = dict[tuple[Any, ...], tuple[Timing, ...]]
"""Shape and contender → its timings. A shape is looked at once, whatever clocks it is measured by."""


def watched(record: Record) -> Watched:
    shapes = {case.name: _shape(case) for case in record.cases}
    return {(shapes[seen.case], seen.contender): seen.timings for seen in record.launched if seen.timings}


def timers_of(record: Record, watched: Watched, case: CaseFacts, contender: str) -> Timers | None:
    """None where one of the two was not watched by both, as on every CPU."""
    if not watched:
        return None
    clock = str(case.params.get("clock", DEFAULT_CLOCK))
    sides = []
    for name in (record.run.baseline, contender):
        timings = [t for t in watched.get((_shape(case), name), ()) if t.clock == clock]
        if not timings:
            return None
        sides.append(_side(timings))
    (base_s, base_kernels_s, base_error), (own_s, own_kernels_s, own_error) = sides
    return Timers(base_s - own_s, base_kernels_s - own_kernels_s, T_95 * math.hypot(base_error, own_error))


def _side(timings: Sequence[Timing]) -> tuple[float, float, float]:
    """Log seconds a call by the clock, less what it has beside kernels, and by the profiler; and the standard error of
    what lies between them."""
    by_clock = [math.log(max(t.seconds - t.overhead_s, 0.5 * t.seconds) / t.launches) for t in timings]
    by_profiler = [math.log(t.kernels_s / t.launches) for t in timings]
    between = [a - b for a, b in zip(by_clock, by_profiler, strict=True)]
    error = statistics.stdev(between) / math.sqrt(len(between)) if len(between) > 1 else 0.0
    return statistics.fmean(by_clock), statistics.fmean(by_profiler), error


def _shape(case: CaseFacts) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in case.params.items() if key != "clock")
