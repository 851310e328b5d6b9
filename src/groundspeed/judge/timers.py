"""Whether two timers that watched the same calls agree on a comparison: the clock of the laboratory and PyTorch's
profiler, which sees when kernels begin and end and none of what is around them."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.record import CaseFacts, Record, Timing


@dataclass(frozen=True)
class Timers:
    """θ of a comparison by either of them."""

    clock: float
    profiler: float

    @property
    def apart(self) -> float:
        return self.clock - self.profiler

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
    clock, empty_s = str(case.params.get("clock", DEFAULT_CLOCK)), _empty_s(record)
    medians = []
    for name in (record.run.baseline, contender):
        timings = [t for t in watched.get((_shape(case), name), ()) if t.clock == clock]
        if not timings:
            return None
        seconds = statistics.median(t.seconds for t in timings)
        kernels_s = statistics.median(t.kernels_s for t in timings)
        medians.append((max(seconds - empty_s, 0.5 * seconds), kernels_s))
    (base_s, base_kernels_s), (own_s, own_kernels_s) = medians
    return Timers(math.log(base_s / own_s), math.log(base_kernels_s / own_kernels_s))


def _empty_s(record: Record) -> float:
    """What the clock reads of nothing: part of every interval, and no kernel's."""
    worker: Any = record.environment.get("worker")
    empty = worker.get("clock_empty_s") if isinstance(worker, dict) else None
    return float(empty) if isinstance(empty, (int, float)) and 0 < empty < 1 else 0.0


def _shape(case: CaseFacts) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in case.params.items() if key != "clock")
