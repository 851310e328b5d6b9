"""What a profile shows: where a call spends its time, how long the device idles, how near the call comes to the roofs.

All of this describes a few calls in one process. None of it is a sample, and none supports a claim."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.evidence.profile import Event, EventKind, Profile, Seen
from groundspeed.judge.copies import is_copy
from groundspeed.judge.counters import Reading, readings_of
from groundspeed.judge.limits import peaks_of
from groundspeed.judge.roofline import Bound, Roofs, intensity, roofs_from

COPYING = ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous")
"""CPU operators that only move data."""


SHORTEST_S = 1e-9
"""The resolution of a profiler's clock. A shorter call has no rate."""


@dataclass(frozen=True)
class Top:
    """All launches of one kernel, or calls of one operator, in a call of the contender."""

    name: str
    kind: EventKind
    times: float
    """The average per call."""
    seconds: float
    """The average per call. For an operator this is its own time, without the operators that it calls."""
    share: float
    """The share of the total of these times."""
    launch: Event
    """The longest of the launches, for its sizes."""


@dataclass(frozen=True)
class Gaps:
    """The device's idle stretches between two events of one call, as medians over the calls."""

    number: float
    seconds: float
    share: float
    """The share of the time from the first start to the last end."""
    longest_s: float


@dataclass(frozen=True)
class Point:
    """Where the work lies under the roofs of the device, by the time that the profiler saw."""

    intensity: float
    flops: float
    roofs: tuple[Roofs, ...]
    share: float | None
    """The share of what the first of the roofs allows. Also None if the memory bounds the work and it ran faster than
    that, so a cache served it."""
    bound: Bound | None
    impossible: bool
    """Whether this is more arithmetic than the device can do, which is an error and not a record."""


@dataclass(frozen=True)
class Look:
    """What the profile shows of one contender."""

    contender: str
    seen: Seen
    call_s: float | None
    """The median call as the host sees it, until the device is done."""
    span_s: float | None
    """The median time from the start of the first event to the end of the last; None on a CPU."""
    before_s: float | None
    """The median time from the start of the call to that of the first event; None on a CPU."""
    gaps: Gaps | None
    """None on a CPU."""
    copy_share: float | None
    """The share of copies and sets in the time of everything that ran, including kernels that do nothing else."""
    tops: tuple[Top, ...]
    """The longest first."""
    point: Point | None
    readings: tuple[Reading, ...]
    """The counters, one reading for each kernel."""
    timeline: tuple[Event, ...]
    """The events of the call of median length."""


@dataclass(frozen=True)
class Picture:
    profile: Profile
    device_name: str
    looks: tuple[Look, ...]

    @property
    def counted(self) -> list[Look]:
        return [look for look in self.looks if look.readings]


def picture(profile: Profile) -> Picture:
    return Picture(
        profile,
        device_name_of(profile.environment, profile.device),
        tuple(_look(profile, seen) for seen in profile.seen),
    )


def device_name_of(environment: Mapping[str, Any], device: str) -> str:
    part = environment.get("gpu" if device == "cuda" else "cpu")
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) else device


def _look(profile: Profile, seen: Seen) -> Look:
    calls = {call.call: call.seconds for call in profile.calls if call.contender == seen.contender}
    events = [event for event in profile.events if event.contender == seen.contender]
    by_call = {call: [event for event in events if event.call == call] for call in calls}
    on_gpu = profile.device == "cuda"
    call_s = statistics.median(calls.values()) if calls else None
    spans = [_span_s(some) for some in by_call.values() if some] if on_gpu else []
    span_s = statistics.median(spans) if spans else None
    begins = [min(event.start_s for event in some) for some in by_call.values() if some] if on_gpu else []
    tops = _tops(events, own_seconds(events) if not on_gpu else [e.seconds for e in events], max(1, len(calls)))
    total = sum(top.seconds for top in tops)
    copies = sum(t.seconds for t in tops if t.kind in ("copy", "set") or t.name in COPYING or is_copy(t.name))
    return Look(
        contender=seen.contender,
        seen=seen,
        call_s=call_s,
        span_s=span_s,
        before_s=statistics.median(begins) if begins else None,
        gaps=_gaps([some for some in by_call.values() if some]) if spans else None,
        copy_share=copies / total if total > 0 else None,
        tops=tops,
        point=_point(profile, span_s if on_gpu else call_s),
        readings=readings_of([one for one in profile.counted if one.contender == seen.contender]),
        timeline=tuple(by_call[_median_call(calls)]) if calls else (),
    )


def _median_call(calls: dict[int, float]) -> int:
    ordered = sorted(calls, key=lambda call: calls[call])
    return ordered[(len(ordered) - 1) // 2]


def _span_s(events: Sequence[Event]) -> float:
    return max(event.start_s + event.seconds for event in events) - min(event.start_s for event in events)


def idle(events: Iterable[Event]) -> list[float]:
    """Return the lengths of the stretches in which no stream ran anything, between the first start and the last end."""
    found: list[float] = []
    end: float | None = None
    for event in sorted(events, key=lambda event: event.start_s):
        if end is not None and event.start_s > end:
            found.append(event.start_s - end)
        end = max(end or 0.0, event.start_s + event.seconds)
    return found


def _gaps(calls: Sequence[Sequence[Event]]) -> Gaps:
    found = [idle(events) for events in calls]
    shares = [
        sum(gaps) / span if (span := _span_s(events)) > 0 else 0.0 for gaps, events in zip(found, calls, strict=True)
    ]
    return Gaps(
        number=statistics.median(map(len, found)),
        seconds=statistics.median(map(sum, found)),
        share=statistics.median(shares),
        longest_s=statistics.median(max(gaps, default=0.0) for gaps in found),
    )


def own_seconds(events: Sequence[Event]) -> list[float]:
    """Return the time of each operator without that of the operators nested in it, on the same thread in the same
    call."""
    own = [event.seconds for event in events]
    around: dict[tuple[int, int], list[int]] = {}
    order = sorted(range(len(events)), key=lambda i: (events[i].start_s, -events[i].seconds))
    for i in order:
        event = events[i]
        stack = around.setdefault((event.call, event.lane), [])
        while stack and events[stack[-1]].start_s + events[stack[-1]].seconds <= event.start_s:
            stack.pop()
        if stack:
            own[stack[-1]] = max(0.0, own[stack[-1]] - event.seconds)
        stack.append(i)
    return own


def _tops(events: Sequence[Event], seconds: Sequence[float], calls: int) -> tuple[Top, ...]:
    by_name: dict[tuple[str, EventKind], list[tuple[Event, float]]] = {}
    for event, own in zip(events, seconds, strict=True):
        by_name.setdefault((event.name, event.kind), []).append((event, own))
    total = sum(seconds)
    tops = [
        Top(
            name=name,
            kind=kind,
            times=len(some) / calls,
            seconds=(spent := sum(own for _, own in some)) / calls,
            share=spent / total if total > 0 else 0.0,
            launch=max(some, key=lambda pair: pair[1])[0],
        )
        for (name, kind), some in by_name.items()
    ]
    return tuple(sorted(tops, key=lambda top: -top.seconds))


def _point(profile: Profile, seconds: float | None) -> Point | None:
    x = intensity(profile.case)
    if seconds is None or seconds < SHORTEST_S or x is None:
        return None
    peaks = peaks_of(profile.environment, profile.device)
    roofs = roofs_from(None, peaks, str(profile.case.params.get("dtype")))
    flops = profile.case.flops / seconds
    if not roofs:
        return Point(x, flops, (), None, None, False)
    share, bound = flops / roofs[0].allow(x), roofs[0].bound(x)
    cached = bound == "memory" and share > 1  # a cache may serve it: calls are back to back here
    return Point(x, flops, roofs, None if cached else share, bound, flops > roofs[0].flops)
