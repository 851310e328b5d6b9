"""Clocks: how long some calls take, and how finely that can be told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

MIN_TICKS = 200
"""An interval is at least this many ticks of its clock, so that the tick is under 0.5% of it."""

MIN_INTERVAL_S = 1e-3
"""And at least this long: an interrupt of a few µs in a single short call would be most of what is seen."""

Call = Callable[[], Any]


class HostClock:
    """Wall time of calls on the host, for work that is done when the call returns."""

    def __init__(self) -> None:
        self.tick_s = _tick()

    def time(self, calls: Sequence[Call], first: int, launches: int) -> tuple[float, Any]:
        """Seconds for `launches` calls, rotating through `calls` from number `first`; and the last output."""
        output = None
        count = len(calls)
        schedule = [calls[(first + i) % count] for i in range(launches)]
        begin = perf_counter_ns()
        for call in schedule:
            output = call()
        end = perf_counter_ns()
        return max(end - begin, 1) * 1e-9, output

    def launches_for(self, estimate_s: float) -> int:
        """How many launches of `estimate_s` each make an interval long enough to be told."""
        return max(1, math.ceil(max(MIN_TICKS * self.tick_s, MIN_INTERVAL_S) / max(estimate_s, 1e-9)))


def _tick() -> float:
    """The smallest step that the clock is seen to make."""
    smallest = 10**9
    for _ in range(200):
        begin = end = perf_counter_ns()
        while end == begin:
            end = perf_counter_ns()
        smallest = min(smallest, end - begin)
    return smallest * 1e-9
