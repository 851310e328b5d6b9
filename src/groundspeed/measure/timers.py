"""The same calls by two timers: a clock of the laboratory, and PyTorch's profiler, which the device tells when kernels
begin and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from groundspeed.measure.cuda import EventClock, GraphClock

CALLS = 5
SPIN = "spin_kernel"
"""What the device is kept busy with before the launches of an interval are given to it: an interval begins after it."""


def device_events(seen: Any) -> list[Any]:
    """What a finished profile saw the device do, in order."""
    events = seen.profiler.kineto_results.events()
    work = [e for e in events if str(e.device_type()).endswith("CUDA") and not e.is_user_annotation()]
    return sorted(work, key=lambda event: event.start_ns())


def timings(name: str, clock: EventClock, call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Intervals of `call` as the clock and as the profiler have them; nothing where the profiler missed some."""
    from torch.profiler import ProfilerActivity, profile

    calls = [call]
    least = 1
    if isinstance(clock, GraphClock):
        least = clock.launches_for(clock.time(calls, 0, 1).seconds)
    clock.time(calls, 0, least)
    before, intervals = clock.tries, []
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            seconds = clock.time(calls, 0, least).seconds
            intervals.append((seconds, clock.tries - before - 1))
    tries = split(device_events(seen), flushed=name == "default")
    if len(tries) != clock.tries - before or not all(tries[i] for _, i in intervals):
        return []
    return [{"clock": name, "seconds": seconds, "kernels_s": span_s(tries[i])} for seconds, i in intervals]


def split(events: Sequence[Any], *, flushed: bool) -> list[list[Any]]:
    """What the device did for each try: all that follows a spin, without the flush of the cache before it."""
    tries: list[list[Any]] = []
    for event in events:
        if SPIN in event.name():
            tries.append([])
        elif tries:
            tries[-1].append(event)
    return [events[1:] if flushed else events for events in tries]


def span_s(events: Sequence[Any]) -> float:
    """From the begin of the first to the end of the last."""
    end: int = max(event.start_ns() + event.duration_ns() for event in events)
    begin: int = min(event.start_ns() for event in events)
    return max(1, end - begin) * 1e-9
