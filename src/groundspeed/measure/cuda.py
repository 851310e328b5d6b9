"""The clocks of a GPU: device time between events, for launches with a cold cache or for a replayed graph; and the time
that a caller sees.

    default  CUDA events around each launch, the L2 cache flushed before it
    warm     the same without the flush
    graph    launches replayed from one CUDA graph: what small work costs without launch overhead
    eager    wall time of calls back to back until the device is done, launch overhead included
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import Any

from groundspeed.measure.clock import MIN_INTERVAL_S, MIN_TICKS, NOBODY, Call, Clock, HostClock, Timing, Watch, schedule

LEAD_S, FIRST_LEAD_S, MOST_LEAD_S = 30e-6, 125e-6, 25e-3
"""Before the first event, the device is kept busy for twice the time that the host took for the last launches, within
the first and the last of these; the second is assumed before there was any. The host is then ahead, and its launching
is not part of the device's time. An eager model of hundreds of launches takes the host some 10 ms."""
TRIES = 4
"""If the device still catches up with the host, the launches are made again, with a longer lead each time, up to this
many times in all. A contender that waits for the device itself is always caught up with: its last try counts, and after
so many late tries in a row its next samples have one try each."""
ROW_BYTES = 4096
"""Row size of the buffer that is read to flush the cache: each row is summed by itself, so that no program waits for
another."""
GRAPH_S = 2e-4
"""A replay is at least this long: starting a graph takes the device some microseconds."""


class Device:
    """The operations of a GPU that a clock needs."""

    def __init__(self, *, cold: bool) -> None:
        import torch

        self.torch, self.cuda = torch, torch.cuda
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._cycles_per_s = 1e3 * getattr(properties, "clock_rate", 2_000_000)
        rows = -(-properties.L2_cache_size // ROW_BYTES) if cold else 0
        self._cache = torch.zeros(rows, ROW_BYTES // 4, device="cuda")
        self._sums = torch.zeros(rows, device="cuda")

    def event(self) -> Any:
        return self.cuda.Event(enable_timing=True)

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def sleep(self, seconds: float) -> None:
        """Keep the device busy for about this long."""
        self.cuda._sleep(int(self._cycles_per_s * seconds))

    def flush(self) -> None:
        """Evict all data from the L2 cache; do nothing if it may stay warm. The flush reads, in one launch: the bytes
        that a writing flush leaves in the cache would go to memory while the next launch is timed (docs/log.md)."""
        if len(self._cache):
            self.torch.sum(self._cache, 1, out=self._sums)


class EventClock:
    """Device time between events around each launch, each with a cache as cold as the first.

    If one launch is too short for the events to resolve, several are added up."""

    spoilt = False

    def __init__(self, *, cold: bool, device: Device | None = None) -> None:
        self._device = device or Device(cold=cold)
        self.cold = cold
        self._events: list[tuple[Any, Any]] = []
        self._submit_s: dict[int, float] = {}
        """Identity of the calls → seconds that the host took to submit all launches of an interval while the device was
        kept busy."""
        self._late: dict[int, int] = {}
        """Identity of the calls → tries in a row in which the device caught up."""
        self.tries = 0
        """The number of tries so far: more than the number of intervals if the device caught up."""
        self.tick_s = self._tick()

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        order = schedule(len(calls), first, least)
        start, seconds, output = self._timed(id(calls), [calls[i] for i in order], watch.lead, watch.look)
        return Timing(start, seconds, len(order), tuple(order[-len(calls) :]), output)

    def _timed(
        self,
        key: int,
        launches: Sequence[Call],
        lead_in: Callable[[Call], None] = NOBODY.lead,
        look: Callable[[Any], None] = NOBODY.look,
    ) -> tuple[float, float, Any]:
        """Return when the launches began, their time on the device, and what the last one returned."""
        device, events = self._device, self._pairs(len(launches))
        lead = 2 * self._submit_s.get(key, FIRST_LEAD_S)
        for _ in range(TRIES):
            self.tries += 1
            device.synchronize()
            start = busy_since = perf_counter()
            late, output = False, None

            def busy(lead: float = lead) -> None:
                nonlocal busy_since
                busy_since = perf_counter()
                device.sleep(min(MOST_LEAD_S, max(LEAD_S, lead)))

            lead_in(busy)
            for launch, (begin, end) in zip(launches, events, strict=True):
                device.flush()
                begin.record()
                output = launch()
                end.record()
                late = late or begin.query()  # the device got there before everything was submitted: it may have waited
            self._submit_s[key] = perf_counter() - busy_since
            look(output)
            device.synchronize()
            self._late[key] = self._late.get(key, 0) + 1 if late else 0
            if not late or self._late[key] >= TRIES:  # calls that wait for the device are late however often they run
                break
            lead = 2 * max(lead, self._submit_s[key])
        seconds = 1e-3 * sum(begin.elapsed_time(end) for begin, end in events)
        return start, max(seconds, 1e-9), output

    def _pairs(self, count: int) -> list[tuple[Any, Any]]:
        while len(self._events) < count:
            self._events.append((self._device.event(), self._device.event()))
        return self._events[:count]

    def _tick(self) -> float:
        """Return the smallest step between two times of short intervals, the resolution of the events."""
        sleeps = [partial(self._device.sleep, 5e-7 + 5e-8 * i) for i in range(64)]
        seen = {round(self._timed(0, [sleep])[1] * 1e9) for sleep in sleeps}
        steps = sorted(b - a for a, b in zip(sorted(seen), sorted(seen)[1:], strict=False))
        return (steps[len(steps) // 10] if steps else 500) * 1e-9  # not the minimum: one odd pair is not a tick

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(MIN_TICKS * self.tick_s / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        self._submit_s.clear()
        self._late.clear()


class GraphClock(EventClock):
    """Device time of launches replayed from one CUDA graph. The number of launches in it is drawn when it is
    captured."""

    def __init__(self) -> None:
        super().__init__(cold=False)
        self._graphs: dict[int, tuple[Sequence[Call], int, list[int], Any, Any]] = {}
        """Keyed by the identity of the calls, which are kept alive: the identity of a released object can be reused."""

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        if id(calls) not in self._graphs or self._graphs[id(calls)][1] < least:
            self._graphs.pop(id(calls), None)  # release its memory before the next capture
            self._graphs[id(calls)] = (calls, least, *self._capture(calls, least))
        _, _, order, graph, output = self._graphs[id(calls)]
        start, seconds, _ = self._timed(id(calls), [graph.replay], look=lambda _: watch.look(output))
        return Timing(start, seconds, len(order), tuple(order[-len(calls) :]), output)

    def _capture(self, calls: Sequence[Call], least: int) -> tuple[list[int], Any, Any]:
        order = schedule(len(calls), 0, least)
        side = self._device.cuda.Stream()
        side.wait_stream(self._device.cuda.current_stream())
        with self._device.cuda.stream(side):  # the setup in a first call on a stream must not be captured
            for call in calls:
                call()
        self._device.cuda.current_stream().wait_stream(side)
        graph, output = self._device.cuda.CUDAGraph(), None
        self.spoilt = True  # if the capture fails, PyTorch may go on believing that one is under way
        with self._device.cuda.graph(graph):
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
    """Wall time of calls made back to back until the device is done, as a caller sees it."""

    spoilt = False

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        self.tick_s = 1e-7

    def time(self, calls: Sequence[Call], first: int, least: int, watch: Watch = NOBODY) -> Timing:
        order = schedule(len(calls), first, least)
        made = [calls[i] for i in order]
        # Bound now: a call may replace the names.
        output, now, synchronize = None, perf_counter_ns, self._cuda.synchronize
        synchronize()
        begin = now()
        for call in made:
            output = call()
        synchronize()
        end = now()
        watch.look(output)
        return Timing(begin * 1e-9, max(end - begin, 1) * 1e-9, len(order), tuple(order[-len(calls) :]), output)

    def launches_for(self, estimate_s: float) -> int:
        return max(1, math.ceil(MIN_INTERVAL_S / max(estimate_s, 1e-9)))

    def forget(self) -> None:
        pass  # it holds none


def wait_for(device: str) -> None:
    """Wait until the device has done everything that was submitted."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def make_clock(name: str) -> Clock:
    if name == "graph":
        return GraphClock()
    return EagerClock() if name == "eager" else EventClock(cold=name == "default")


@dataclass
class Clocks:
    """The clocks of a worker by name; each is made on first use."""

    device: str
    made: dict[str, Clock] = field(default_factory=dict)

    def named(self, name: str) -> Clock:
        if name not in self.made:
            self.made[name] = make_clock(name) if self.device == "cuda" else HostClock()
        return self.made[name]

    def forget(self) -> None:
        for clock in self.made.values():
            clock.forget()

    @property
    def spoilt(self) -> bool:
        return any(clock.spoilt for clock in self.made.values())
