"""The warm-up, and when it is over."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from groundspeed.measure import gate
from groundspeed.measure.clock import Clock
from groundspeed.measure.entrant import Entrant
from groundspeed.measure.inputs import Inputs

HEARTBEAT_S = 0.5
WINDOW = 5
AGREEMENT = 0.02
MAX_WARMUP = 10
"""A warm-up that does not settle ends after this many times its minimum, and the record says so."""


def is_stable(samples: Sequence[float]) -> bool:
    """Return whether the medians of the last two windows of samples agree within 2%."""
    if len(samples) < 2 * WINDOW:
        return False
    earlier = statistics.median(samples[-2 * WINDOW : -WINDOW])
    later = statistics.median(samples[-WINDOW:])
    return abs(earlier - later) <= AGREEMENT * later


def warmup_over(samples: Sequence[float], spent_s: float, minimum_s: float) -> bool | None:
    """Return True if warm and stable, False to give up while unstable, None to continue.

    If samples are long relative to the minimum, the last two of at least three need to agree, instead of windows."""
    if spent_s < minimum_s or len(samples) < 3:
        return None
    if min(samples) > minimum_s / 3:
        if abs(samples[-2] - samples[-1]) <= AGREEMENT * samples[-1]:
            return True
        return False if len(samples) >= 2 * WINDOW else None
    if is_stable(samples):
        return True
    return False if spent_s > MAX_WARMUP * minimum_s else None


def warm_up(
    entrant: Entrant, clock: Clock, inputs: Inputs, warmup_s: float, alive: Callable[[], None]
) -> tuple[bool, list[tuple[float, float, int]]]:
    """Return whether the times settled, and the samples as (start, seconds, launches). `alive` is called now and
    then."""
    samples: list[tuple[float, float, int]] = []
    per_call: list[float] = []
    begin = said = time.perf_counter()
    with entrant.contender.around():
        while True:
            timing = clock.time(entrant.calls, entrant.cursor, entrant.launches)
            gate.spoil(timing.output, inputs.storages)
            entrant.cursor += timing.launches
            samples.append((timing.start, timing.seconds, timing.launches))
            per_call.append(timing.seconds / timing.launches)
            entrant.launches = max(entrant.launches, clock.launches_for(min(per_call[-3:])))
            now = time.perf_counter()
            if (over := warmup_over(per_call, now - begin, warmup_s)) is not None:
                return over, samples
            if now - said > HEARTBEAT_S:
                alive()
                said = now
