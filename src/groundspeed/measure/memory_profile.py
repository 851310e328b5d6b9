"""Memory by phase, put together from what a source on the host or on a GPU says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from groundspeed.evidence.memory import SCHEMA, Allocation, MemoryUse, Phase, Span

MOST_SPANS = 10_000
Clock = Callable[[], float]


class Reading(NamedTuple):
    """Memory during one interval in which a phase was open."""

    begin: int
    peak: int
    end: int
    largest: tuple[Allocation, ...]


@dataclass(frozen=True)
class Totals:
    """Memory during the whole profile."""

    before: int
    after: int
    peak: int
    times: list[float]
    levels: list[int]
    largest: tuple[Allocation, ...]
    notes: list[str]
    reserved: int | None = None
    resident: int | None = None
    largest_of: Mapping[str, tuple[Allocation, ...]] | None = None
    """Phase → its largest allocations, for a source that knows them only at the end."""


class Source(Protocol):
    """A source that says what is alive on one device. `stop` comes last, whatever happened."""

    device: Literal["cpu", "cuda"]
    name: str

    def start(self, clock: Clock) -> None: ...
    def open(self) -> object: ...
    def close(self, opened: object) -> Reading: ...
    def stop(self, spans: list[Span]) -> Totals: ...


@dataclass
class _Sum:
    times: int
    reading: Reading
    """The reading with the highest peak."""
    added: int
    kept: int


class Profiler:
    """Collects phases, which nest as `with` blocks do."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._path: list[str] = []
        self._sums: dict[str, _Sum | None] = {}
        self._spans: list[Span] = []
        self._left_out = 0
        self._stopped = False

    def start(self) -> None:
        self._began = time.perf_counter()
        self._source.start(self._now)

    def _now(self) -> float:
        return time.perf_counter() - self._began

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if self._stopped:
            raise RuntimeError("cannot enter a phase after its profile has ended")
        self._path.append(name)
        whole, begin, opened = "/".join(self._path), self._now(), self._source.open()
        self._sums.setdefault(whole, None)  # kept in the order in which they began
        try:
            yield
        finally:
            reading = self._source.close(opened)
            self._path.pop()
            self._add(whole, reading)
            if len(self._spans) < MOST_SPANS:
                self._spans.append(Span(whole, begin, self._now()))
            else:
                self._left_out += 1

    def _add(self, name: str, reading: Reading) -> None:
        added, kept = reading.peak - reading.begin, reading.end - reading.begin
        if before := self._sums.get(name):
            higher = reading if reading.peak > before.reading.peak else before.reading
            self._sums[name] = _Sum(before.times + 1, higher, max(before.added, added), before.kept + kept)
        else:
            self._sums[name] = _Sum(1, reading, added, kept)

    def stop(self, ended_by: str | None) -> MemoryUse:
        self._stopped = True
        totals, source = self._source.stop(self._spans), self._source
        told, notes = totals.largest_of or {}, list(totals.notes)
        if self._left_out:
            notes.append(
                f"Phases were open {self._left_out + MOST_SPANS:,} times; the timeline marks the first {MOST_SPANS:,}."
            )
        if ended_by:
            notes.append(f"The profile was ended by {ended_by}.")
        return MemoryUse(
            schema=SCHEMA,
            device=source.device,
            device_name=source.name,
            before_bytes=totals.before,
            after_bytes=totals.after,
            peak_bytes=totals.peak,
            reserved_bytes=totals.reserved,
            resident_bytes=totals.resident,
            phases=tuple(
                Phase(name, one.times, one.reading.peak, one.added, one.kept, told.get(name, one.reading.largest))
                for name, one in self._sums.items()
                if one
            ),
            spans=tuple(self._spans),
            times_s=tuple(totals.times),
            levels_bytes=tuple(totals.levels),
            largest=totals.largest,
            notes=tuple(notes),
        )
