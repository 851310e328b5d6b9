"""Clocks: how long some calls take, and how finely that can be told. This one is the host's; cuda.py has the GPU's."""

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
"""And at least this long: an interrupt of a few µs in a single short call would be most of what is seen."""

APART = 0.01
"""Two clocks of one machine run alike, but for what steers one of them to the true time."""

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """An interval of some calls, and the output of the last of them."""

    start: float
    """On the clock of `time.perf_counter`."""
    seconds: float
    launches: int
    used: tuple[int, ...]
    """Numbers of the calls made, the last ones last; each at least once."""
    output: Any


class Watch(Protocol):
    """Who sees to it that the work of an interval is done in it, and not before or after. Nothing of this is timed."""

    def lead(self, busy: Call) -> None:
        """Call `busy`, which keeps the device so until all launches of the interval are with it."""
        ...

    def look(self, output: Any) -> None:
        """Right after the last call returned, before anybody has waited for the device."""
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
    """Whether something broke off in it that leaves the process unfit for others."""

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        """Make at least `least` calls and fewer than twice as many, rotating through `calls` from number `first`. How
        many is drawn anew each time, so that no call can know that it is the last one, whose output is looked at."""
        ...

    def launches_for(self, estimate_s: float) -> int:
        """How many calls of `estimate_s` each make an interval long enough to be told."""
        ...

    def forget(self) -> None:
        """Let go of all calls."""
        ...


def schedule(count: int, first: int, least: int) -> list[int]:
    """Which of `count` calls to make, one after the other."""
    return [(first + i) % count for i in range(least + secrets.randbelow(least))]


class HostClock:
    """Wall time of calls on the host, for work that is done when the call returns."""

    spoilt = False

    def __init__(self) -> None:
        self.tick_s = _tick()
        self._other = partial(clock_gettime_ns, CLOCK_MONOTONIC)

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        order = schedule(len(calls), first, least)
        made = [calls[i] for i in order]
        output = None
        begin = perf_counter_ns()
        other = self._other()
        for call in made:
            output = call()
        other = self._other() - other
        end = perf_counter_ns()
        watch.look(output)
        self._agree(end - begin, other)
        return Timing(begin * 1e-9, max(end - begin, 1) * 1e-9, len(order), tuple(order[-len(calls) :]), output)

    def _agree(self, seen_ns: int, other_ns: int) -> None:
        """Incorrect where another clock saw more between its own readings: somebody holds the first one back."""
        if other_ns > seen_ns * (1 + APART):
            raise Incorrect(f"{seen_ns} ns passed by the clock of the laboratory, and {other_ns} ns by another one")

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(max(MIN_TICKS * self.tick_s, MIN_INTERVAL_S) / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        pass  # it keeps none


def _tick() -> float:
    """The smallest step that the clock is seen to make."""
    smallest = 10**9
    for _ in range(200):
        begin = end = perf_counter_ns()
        while end == begin:
            end = perf_counter_ns()
        smallest = min(smallest, end - begin)
    return smallest * 1e-9
