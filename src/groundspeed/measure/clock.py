"""Clocks: how long calls take, and with what resolution. This module has the host's clock, cuda.py those of a GPU."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import CLOCK_MONOTONIC, clock_gettime_ns, perf_counter_ns
from typing import Any, Protocol

from groundspeed.measure.gate import Incorrect

MIN_TICKS = 200
"""An interval is at least this many ticks of its clock, so that the tick is under 0.5% of it."""

MIN_INTERVAL_S = 1e-3
"""An interval is also at least this long: an interrupt of a few µs would be most of a single short call."""

APART = 0.01
"""The share by which two clocks of one machine may differ. They run alike, except that one may be slewed to the true
time."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """An interval of some calls, and the output of the last of them."""

    start: float
    """On the clock of `time.perf_counter`."""
    seconds: float
    launches: int
    used: tuple[int, ...]
    """Indices of the calls that were made, each once, in the order of their last use."""
    output: Any


class Watch(Protocol):
    """Ensures that the work of an interval is done within it, not before or after. Nothing here is timed."""

    def lead(self, busy: Call) -> None:
        """Call `busy`, which keeps the device busy until all launches of the interval are submitted."""
        ...

    def look(self, output: Any) -> None:
        """Called right after the last call: by the clocks of device time before anything waits for the device, by the
        others at the end of the interval."""
        ...


class Nobody:
    def lead(self, busy: Call) -> None:
        busy()

    def look(self, output: Any) -> None:
        pass


NOBODY = Nobody()


class Clock(Protocol):
    tick_s: float
    spoilt: bool
    """Whether a failure in the clock has left the process unfit for other contenders."""

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        """Make at least `least` and fewer than twice as many calls, rotating through `calls` from index `first`. The
        number is drawn anew each time, so that no call can know that it is the last one, whose output is checked."""
        ...

    def launches_for(self, estimate_s: float) -> int:
        """Return how many calls of `estimate_s` each make an interval that is long enough for the clock's
        resolution."""
        ...

    def forget(self) -> None:
        """Release all calls."""
        ...


def schedule(count: int, first: int, least: int) -> list[int]:
    """Return the indices, out of `count`, of the calls to make, in order."""
    return [(first + i) % count for i in range(least + secrets.randbelow(least))]


def most_calls(least: int) -> int:
    """Return the largest number of calls that `schedule` makes for this least number."""
    return 2 * least - 1


class HostClock:
    """Wall time of calls on the host, for work that is done when the call returns."""

    spoilt = False

    def __init__(self) -> None:
        self.tick_s = _tick()
        self._other = partial(clock_gettime_ns, CLOCK_MONOTONIC)

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        order = schedule(len(calls), first, least)
        made = [calls[i] for i in order]
        output, now, second = None, perf_counter_ns, self._other  # bound now: a call may replace the names
        begin = now()
        other = second()
        for call in made:
            output = call()
        other = second() - other
        end = now()
        watch.look(output)
        self._agree(end - begin, other)
        return Timing(begin * 1e-9, max(end - begin, 1) * 1e-9, len(order), tuple(order[-len(calls) :]), output)

    def _agree(self, seen_ns: int, other_ns: int) -> None:
        """Raise Incorrect if a second clock, read inside the interval, saw more time pass: something holds the first
        one back."""
        if other_ns > seen_ns * (1 + APART):
            raise Incorrect(f"{seen_ns} ns passed by the laboratory's clock, but {other_ns} ns by a second clock")

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(max(MIN_TICKS * self.tick_s, MIN_INTERVAL_S) / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        pass  # it holds none


def _tick() -> float:
    """Return the smallest step that the clock is seen to make."""
    smallest = 10**9
    for _ in range(200):
        begin = end = perf_counter_ns()
        while end == begin:
            end = perf_counter_ns()
        smallest = min(smallest, end - begin)
    return smallest * 1e-9
