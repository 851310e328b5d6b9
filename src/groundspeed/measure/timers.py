"""The same calls by two timers: a clock of the laboratory, and PyTorch's profiler, which the device tells when kernels
begin and end."""

from __future__ import annotations

import statistics
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


def timings(name: str, clock: EventClock, call: Callable[[], Any], overhead_s: float) -> list[dict[str, Any]]:
    """Intervals of `call` as the clock and as the profiler have them; nothing where the profiler missed some."""
    return [
        {"clock": name, "launches": launches, "seconds": seconds, "kernels_s": kernels_s, "overhead_s": overhead_s}
        for launches, seconds, kernels_s in _intervals(clock, call)
    ]


def overhead_s(clock: EventClock) -> float:
    """What an interval of this clock has beside its kernels: seen at a kernel that does next to nothing."""
    import torch

    one = torch.zeros(1, device="cuda")
    beside = [seconds - kernels_s for _, seconds, kernels_s in _intervals(clock, lambda: one.add_(1.0))]
    clock.forget()
    return max(0.0, statistics.median(beside)) if beside else 0.0


def _intervals(clock: EventClock, call: Callable[[], Any]) -> list[tuple[int, float, float]]:
    """Launches, time by the clock and time by the profiler of each."""
    from torch.profiler import ProfilerActivity, profile

    calls, least = [call], 1
    while isinstance(clock, GraphClock):  # as many launches as a run would replay
        timing = clock.time(calls, 0, least)
        if (enough := clock.launches_for(timing.seconds / timing.launches)) <= least:
            break
        least = enough
    clock.time(calls, 0, least)
    before, found = clock.tries, []
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            timing = clock.time(calls, 0, least)
            found.append((timing.launches, timing.seconds, clock.tries - before - 1))
    tries = split(device_events(seen), flushed=clock.cold)
    if len(tries) != clock.tries - before or not all(tries[i] for _, _, i in found):
        return []
    return [(launches, seconds, span_s(tries[i])) for launches, seconds, i in found]


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
