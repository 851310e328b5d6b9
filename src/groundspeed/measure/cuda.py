"""The clocks of a GPU: device time between events, of single launches with a cold cache or of a replayed graph; and the
time that a caller sees.

    default  CUDA events around the launches, the L2 cache flushed before
    warm     the same without the flush
    graph    launches replayed from one CUDA graph: what small work costs when nobody has to launch it
    eager    wall time of calls back to back until the device is done: launching included
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

from groundspeed.measure.clock import MIN_INTERVAL_S, MIN_TICKS, Call, Clock, Timing, schedule

LEAD_S, MOST_LEAD_S = 30e-6, 1e-3
"""The device is kept busy for twice the time that the host took for the last launches, and for this long at least,
before the first event: so the host is ahead, and its launching is not part of the device's time."""
GRAPH_S = 2e-4
"""A replay is at least this long: starting a graph takes the device some microseconds."""


class EventClock:
    """Device time between two events around the launches.

    Where one launch is too short for the events to tell, several make an interval: of these only the first one finds
    the cache cold."""

    spoilt = False

    def __init__(self, *, cold: bool) -> None:
        import torch

        self._cuda = torch.cuda
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._flush = torch.empty(device.L2_cache_size if cold else 0, dtype=torch.uint8, device="cuda")
        self._cycles_per_s = 1e3 * getattr(device, "clock_rate", 2_000_000)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._submit_s: dict[int, float] = {}
        """Time that the host took for the launches of an interval, by its calls."""
        self.tick_s = self._tick()

    def time(self, calls: Sequence[Call], first: int, least: int) -> Timing:
        order = schedule(len(calls), first, least)
        made = [calls[i] for i in order]
        start, output = self._lead(self._submit_s.get(id(calls), MOST_LEAD_S / 4)), None
        begin = perf_counter()
        self._begin.record()
        for call in made:
            output = call()
        self._end.record()
        self._submit_s[id(calls)] = perf_counter() - begin
        return Timing(start, self._elapsed(), len(order), tuple(order[-len(calls) :]), output)

    def _lead(self, submit_s: float) -> float:
        """Give the device something to do until the host is through, and flush the cache at the end of it."""
        self._cuda.synchronize()
        start = perf_counter()
        self._cuda._sleep(int(self._cycles_per_s * min(MOST_LEAD_S, max(LEAD_S, 2 * submit_s))))
        self._flush.zero_()
        return start

    def _elapsed(self) -> float:
        self._end.synchronize()
        return float(max(self._begin.elapsed_time(self._end) * 1e-3, 1e-9))

    def _tick(self) -> float:
        """The smallest step between two times of short intervals: what events tell apart."""
        seen = set()
        for i in range(64):
            self._lead(LEAD_S)
            self._begin.record()
            self._cuda._sleep(1000 + 97 * i)
            self._end.record()
            seen.add(round(self._elapsed() * 1e9))
        steps = sorted(b - a for a, b in zip(sorted(seen), sorted(seen)[1:], strict=False))
        return (steps[len(steps) // 10] if steps else 500) * 1e-9  # not the least: one odd pair is no tick

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(MIN_TICKS * self.tick_s / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        self._submit_s.clear()


class GraphClock(EventClock):
    """Device time of launches replayed from one CUDA graph. How many it holds is drawn when it is captured."""

    def __init__(self) -> None:
        super().__init__(cold=False)
        self._graphs: dict[int, tuple[Sequence[Call], int, list[int], Any, Any]] = {}
        """By the identity of the calls, which are kept: what is let go of gives its identity to others."""

    def time(self, calls: Sequence[Call], first: int, least: int) -> Timing:
        if id(calls) not in self._graphs or self._graphs[id(calls)][1] < least:
            self._graphs.pop(id(calls), None)  # before the next one takes its memory
            self._graphs[id(calls)] = (calls, least, *self._capture(calls, least))
        _, _, order, graph, output = self._graphs[id(calls)]
        start = self._lead(LEAD_S)
        self._begin.record()
        graph.replay()
        self._end.record()
        return Timing(start, self._elapsed(), len(order), tuple(order[-len(calls) :]), output)

    def _capture(self, calls: Sequence[Call], least: int) -> tuple[list[int], Any, Any]:
        order = schedule(len(calls), 0, least)
        side = self._cuda.Stream()
        side.wait_stream(self._cuda.current_stream())
        with self._cuda.stream(side):  # what is set up in a first call on a stream must not be captured
            for call in calls:
                call()
        self._cuda.current_stream().wait_stream(side)
        graph, output = self._cuda.CUDAGraph(), None
        self.spoilt = True  # where it breaks off, PyTorch may go on believing that one is under way
        with self._cuda.graph(graph):
            for i in order:
                output = calls[i]()
        self.spoilt = False
        return order, graph, output

    def launches_for(self, estimate_s: float) -> int:
        return max(super().launches_for(estimate_s), math.ceil(GRAPH_S / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        super().forget()
        self._graphs.clear()


class EagerClock:
    """Wall time of calls as a caller sees it who makes them back to back, until the device is done."""

    spoilt = False

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self.tick_s = 1e-7

    def time(self, calls: Sequence[Call], first: int, least: int) -> Timing:
        order = schedule(len(calls), first, least)
        made = [calls[i] for i in order]
        output = None
        self._cuda.synchronize()
        begin = perf_counter_ns()
        for call in made:
            output = call()
        self._cuda.synchronize()
        end = perf_counter_ns()
        return Timing(begin * 1e-9, max(end - begin, 1) * 1e-9, len(order), tuple(order[-len(calls) :]), output)

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(MIN_INTERVAL_S / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        pass  # it keeps none


def make_clock(name: str) -> Clock:
    if name == "graph":
        return GraphClock()
    return EagerClock() if name == "eager" else EventClock(cold=name == "default")
