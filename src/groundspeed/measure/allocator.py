"""A profile of GPU memory from PyTorch's caching allocator: its statistics give the peaks, its history the rest.

The history is not a public part of PyTorch. If it is unavailable, the profile uses the statistics alone and says so."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from groundspeed.evidence.memory import Allocation, Span
from groundspeed.measure.alive import Alive, Scope
from groundspeed.measure.memory_profile import Clock, Reading, Totals
from groundspeed.measure.tensors import TensorWatch, is_between, place

MOST_EVENTS = 200_000
"""The most entries of the history, and the most tensors that are described."""
GRAIN = 512
"""PyTorch allocates in multiples of this many bytes."""
APART_S = 1e-3
"""The most by which the clock of the history may differ from that of the profile."""


@dataclass
class Part:
    """One interval in which a phase or the profile is open, as the statistics show it."""

    begin: int
    peak: int
    reserved: int
    end: int = 0


class _Cuts:
    """Peaks of nested and overlapping intervals. PyTorch keeps one peak per device, so opening or closing an interval
    resets it, and every open interval takes into account the peak before the reset."""

    def __init__(self, index: int) -> None:
        self._index, self._open = index, list[Part]()
        self._lock = threading.Lock()

    def open(self) -> Part:
        with self._lock:
            self._cut()
            level = self._level()
            part = Part(level, level, torch.cuda.memory_reserved(self._index))
            self._open.append(part)
            return part

    def close(self, part: Part) -> None:
        with self._lock:
            self._cut()
            part.end = self._level()
            part.peak = max(part.peak, part.end)  # another thread may have come in between
            self._open = [one for one in self._open if one is not part]

    def _level(self) -> int:
        return int(torch.cuda.memory_allocated(self._index))

    def _cut(self) -> None:
        peak, reserved = (f(self._index) for f in (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved))
        for part in self._open:
            part.peak, part.reserved = max(part.peak, peak), max(part.reserved, reserved)
        torch.cuda.reset_peak_memory_stats(self._index)


_cuts: dict[int, _Cuts] = {}
_lock = threading.Lock()
_recording = 0
"""The number of profiles that share the history."""


def _tried(ask: Callable[[], Any]) -> Any:
    """Return the result of `ask`, or an explanation in words if it raises."""
    try:
        return ask()
    except Exception as error:
        return f"PyTorch {torch.__version__} does not provide it ({type(error).__name__}: {error!s:.200})"


def _start_history() -> str | None:
    """Record the history, or share the recording of another profile. Return None, or why there is no history."""
    global _recording
    with _lock:
        why: str | None = _tried(_record) if _recording == 0 else None
        _recording += why is None
    return why


def _record() -> str | None:
    if torch._C._cuda_isHistoryEnabled():
        return "other code in this process already records it"
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MOST_EVENTS)
    return None


def _stop_history(index: int) -> list[Any] | str:
    """Return the history of a device, or why there is none. The last profile to stop ends the recording."""
    global _recording
    with _lock:
        _recording -= 1
        found: list[Any] | str = _tried(lambda: list(torch.cuda.memory._snapshot()["device_traces"][index]))
        if _recording == 0:
            _tried(lambda: torch.cuda.memory._record_memory_history(None))
    return found


class DeviceSource:
    """The memory of a GPU, whichever thread allocated it. With `shapes`, tensors are watched too, to find which memory
    belongs to which tensor."""

    device: Literal["cpu", "cuda"] = "cuda"

    def __init__(self, index: int, keep: int, shapes: bool) -> None:
        torch.cuda.init()
        self.name = f"{torch.cuda.get_device_name(index)} (cuda:{index})"
        self._index, self._keep, self._shapes = index, keep, shapes
        self._described: dict[int, list[tuple[float, Allocation]]] = {}
        self._count = 0

    def start(self, clock: Clock) -> None:
        self._clock, self._watch = clock, None
        self._unix_s = time.time()
        with _lock:
            self._cuts = _cuts.setdefault(self._index, _Cuts(self._index))
        self._whole = self._cuts.open()
        self._points = [(0.0, self._whole.begin)]
        """The timeline if there is no history."""
        self._why_not = _start_history()
        if self._shapes and self._why_not is None:
            self._watch = TensorWatch(torch.device("cuda", self._index), self, clock)
            self._watch.__enter__()

    def made(self, key: int, what: Allocation, address: int, at: float) -> None:
        if self._count < MOST_EVENTS:
            self._count += 1
            self._described.setdefault(address, []).append((at, what))

    def freed(self, key: int, at: float) -> None:
        pass  # the history records it

    def open(self) -> Part:
        part = self._cuts.open()
        self._point(part.begin)
        return part

    def close(self, opened: object) -> Reading:
        assert isinstance(opened, Part)
        self._cuts.close(opened)
        self._point(opened.end)
        return Reading(opened.begin, opened.peak, opened.end, ())

    def _point(self, level: int) -> None:
        if len(self._points) < MOST_EVENTS:
            self._points.append((self._clock(), level))

    def stop(self, spans: list[Span]) -> Totals:
        if self._watch:
            self._watch.__exit__(None, None, None)
            self._watch.forget()
        entries = _stop_history(self._index) if self._why_not is None else self._why_not
        whole = self.close(self._whole)
        notes = [
            f"The profile counts what PyTorch's allocator handed out on cuda:{self._index} to all threads, and "
            "excludes what CUDA and other libraries allocate for themselves."
        ]
        if isinstance(entries, str):
            notes.append(
                f"There is no allocation history: {entries}. The profile uses the allocator's statistics alone: the "
                "timeline shows only where phases begin and end, and the largest allocations are unknown."
            )
            times, levels = [at for at, _ in self._points], [level for _, level in self._points]
            return Totals(whole.begin, whole.end, whole.peak, times, levels, (), notes, self._whole.reserved)
        events = list(read_events(entries, self._unix_s, self._clock()))
        lost = len(entries) >= MOST_EVENTS
        before = whole.end - sum(size for _, _, size, _ in events) if lost else whole.begin
        told = replay(events, spans, max(0, before), self._keep, self._described)
        if lost or told.alive.thinned:
            notes.append(
                "There were more changes than the profile keeps: timeline and largest allocations are incomplete."
            )
        alive = told.alive
        alive.point(self._clock())
        return Totals(
            before=whole.begin,
            after=whole.end,
            peak=whole.peak,
            times=alive.times,
            levels=alive.levels,
            largest=told.whole.largest,
            notes=notes,
            reserved=self._whole.reserved,
            largest_of=told.largest_of,
        )


Event = tuple[float, int, int, str | None]
"""(time, address, change of the live bytes, place of the caller for an allocation if known)."""


def read_events(entries: Sequence[Mapping[str, Any]], unix_s: float, end_s: float) -> Iterator[Event]:
    """Yield the allocations and frees of the history that happened while the profile was open, in order."""
    for entry in entries:
        at = entry.get("time_us", 0) / 1e6 - unix_s
        if entry["action"] not in ("alloc", "free_requested") or not -APART_S <= at <= end_s + APART_S:
            continue
        size = max(GRAIN, -(-entry["size"] // GRAIN) * GRAIN)
        made = entry["action"] == "alloc"
        yield min(max(at, 0.0), end_s), entry["addr"], size if made else -size, _caller(entry) if made else None


def _caller(entry: Mapping[str, Any]) -> str | None:
    frames = entry.get("frames") or ()
    outside = (frame for frame in frames if not is_between(frame["filename"]))
    return next((place(frame["filename"], frame["line"], frame["name"]) for frame in outside), None)


@dataclass(frozen=True)
class Replayed:
    alive: Alive
    whole: Scope
    largest_of: dict[str, tuple[Allocation, ...]]
    """Phase → the largest allocations in the interval in which it peaked highest."""


def replay(
    events: Sequence[Event],
    spans: Sequence[Span],
    before: int,
    keep: int,
    described: Mapping[int, Sequence[tuple[float, Allocation]]],
) -> Replayed:
    alive = Alive(before, keep)
    whole, open_, highest = alive.open(), dict[int, Scope](), dict[str, Scope]()
    alive.point(0.0)
    marks = [(s.begin_s, 0, i) for i, s in enumerate(spans)] + [(s.end_s, 2, i) for i, s in enumerate(spans)]
    following = _following(events)
    marks += [(at, 1, i) for i, (at, _, _, _) in enumerate(events)]
    for at, kind, i in sorted(marks):
        if kind == 0:
            open_[i] = alive.open()
        elif kind == 2:
            alive.close(open_[i])
            if open_[i].peak > (highest[spans[i].name].peak if spans[i].name in highest else -1):
                highest[spans[i].name] = open_[i]
        else:
            _, address, size, where = events[i]
            if size > 0:
                alive.make(address, _description(described.get(address, ()), at, following[i], size, where), at)
            elif address in alive:
                alive.free(address, at)
            else:
                alive.fall(-size, at)
    alive.close(whole)
    return Replayed(alive, whole, {name: scope.largest for name, scope in highest.items()})


def _following(events: Sequence[Event]) -> list[float]:
    """Return for each event the time at which its address is allocated again, infinity if it never is."""
    found, last = [float("inf")] * len(events), dict[int, float]()
    for i in range(len(events) - 1, -1, -1):
        at, address, size, _ = events[i]
        found[i] = last.get(address, float("inf"))
        if size > 0:
            last[address] = at
    return found


def _description(
    told: Sequence[tuple[float, Allocation]], at: float, until: float, size: int, where: str | None
) -> Allocation:
    """Describe the tensor that an operator returned at this address before the address was reused. If there is none,
    only the size and the caller are known."""
    for when, what in told[bisect_left(told, at - APART_S, key=lambda one: one[0]) :]:
        if when > until + APART_S:
            break
        if size - GRAIN < what.bytes <= size:
            return replace(what, bytes=size, where=what.where or where)
    return Allocation(size, None, None, None, where)
