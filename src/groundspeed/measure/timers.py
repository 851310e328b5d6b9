"""The same calls by two timers: a clock of the laboratory, and PyTorch's profiler, which learns from the device when
kernels begin and end."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from groundspeed.measure.cuda import EventClock, GraphClock

CALLS = 5
MANY = 64
SPIN = "spin_kernel"
"""The kernel that keeps the device busy while the launches of an interval are submitted: the interval begins after
it."""


def device_events(seen: Any) -> list[Any]:
    """Return what a finished profile saw the device do, in order."""
    events = seen.profiler.kineto_results.events()
    work = [e for e in events if str(e.device_type()).endswith("CUDA") and not e.is_user_annotation()]
    return sorted(work, key=lambda event: event.start_ns())


class Interval(NamedTuple):
    launches: int
    seconds: float
    """By the clock."""
    kernels_s: float
    """By the profiler."""
    operations: int
    """The number of kernels and of other things that the device did in it."""


class Overhead(NamedTuple):
    """The time in an interval of a clock that no kernel takes."""

    least_s: float
    each_s: float
    """The addition for each operation after the first: a graph takes longer to begin the more there is in it."""

    def of(self, operations: int) -> float:
        return max(0.0, self.least_s + (operations - 1) * self.each_s)


def timings(name: str, clock: EventClock, call: Callable[[], Any], overhead: Overhead) -> list[dict[str, Any]]:
    """Return intervals of `call` as measured by the clock and by the profiler; none if the profiler missed some."""
    calls, least = [call], 1
    while isinstance(clock, GraphClock):  # take as many launches as a run would replay
        timing = clock.time(calls, 0, least)
        if (enough := clock.launches_for(timing.seconds / timing.launches)) <= least:
            break
        least = enough
    return [
        {
            "clock": name,
            "launches": seen.launches,
            "seconds": seen.seconds,
            "kernels_s": seen.kernels_s,
            "overhead_s": overhead.of(seen.operations),
        }
        for seen in _intervals(clock, calls, least)
    ]


def overhead_of(clock: EventClock) -> Overhead:
    """Return the overhead seen with kernels that do next to nothing: with one, and in a graph with many."""
    import torch

    tensor = torch.zeros(1, device="cuda")
    one = _intervals(clock, [lambda: tensor.add_(1.0)], 1)
    many = _intervals(clock, [lambda: tensor.add_(1.0)], MANY) if isinstance(clock, GraphClock) else []
    clock.forget()
    if not one or not many:
        return Overhead(_beside_s(one), 0.0)
    return Overhead(_beside_s(one), (_beside_s(many) - _beside_s(one)) / (many[0].operations - one[0].operations))


def _beside_s(seen: Sequence[Interval]) -> float:
    return statistics.median(one.seconds - one.kernels_s for one in seen) if seen else 0.0


def _intervals(clock: EventClock, calls: Sequence[Callable[[], Any]], least: int) -> list[Interval]:
    from torch.profiler import ProfilerActivity, profile

    clock.time(calls, 0, least)
    before, found = clock.tries, []
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            timing = clock.time(calls, 0, least)
            found.append((timing.launches, timing.seconds, clock.tries - before - 1))
    tries = split(device_events(seen), flushed=clock.cold)
    if len(tries) != clock.tries - before or not all(tries[i] for _, _, i in found):
        return []
    return [Interval(launches, seconds, span_s(tries[i]), len(tries[i])) for launches, seconds, i in found]


def split(events: Sequence[Any], *, flushed: bool) -> list[list[Any]]:
    """Return what the device did in each try: all that follows a spin, without the flush of the cache."""
    tries: list[list[Any]] = []
    for event in events:
        if SPIN in event.name():
            tries.append([])
        elif tries:
            tries[-1].append(event)
    return [events[1:] if flushed else events for events in tries]


def span_s(events: Sequence[Any]) -> float:
    """Return the seconds from the beginning of the first event to the end of the last."""
    end: int = max(event.start_ns() + event.duration_ns() for event in events)
    begin: int = min(event.start_ns() for event in events)
    return max(1, end - begin) * 1e-9
