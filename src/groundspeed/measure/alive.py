"""Which memory is alive, according to a caller that reports every allocation and every free: the level over time, and
for each scope its peak and the largest allocations at the peak."""

from __future__ import annotations

import bisect
from collections.abc import Hashable
from dataclasses import dataclass, field

from groundspeed.evidence.memory import Allocation

MOST_POINTS = 20_000
"""Points of a timeline. When it has twice as many, only the higher point of each pair of neighbours is kept."""


@dataclass
class Scope:
    """The whole profile, or one interval in which a phase of it is open."""

    begin: int
    peak: int
    largest: tuple[Allocation, ...] = ()
    """The largest allocations at the peak; recorded when the level falls from there."""
    risen: bool = True
    """Whether the level is at the peak and `largest` has yet to be recorded."""


@dataclass
class Alive:
    """The allocations that are alive. Not thread-safe: callers hold a lock."""

    level: int = 0
    keep: int = 10
    """How many of the largest allocations a scope records."""
    times: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    thinned: bool = False
    _kept: dict[Hashable, tuple[int, int, Allocation]] = field(default_factory=dict)
    _by_size: list[tuple[int, int, Allocation]] = field(default_factory=list)
    """(negative size in bytes, order of arrival, allocation), so that the largest comes first."""
    _open: list[Scope] = field(default_factory=list)
    _count: int = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def bytes_of(self, key: Hashable) -> int:
        return self._kept[key][2].bytes

    def make(self, key: Hashable, what: Allocation, at: float) -> None:
        """Add an allocation. If its key is alive already, it replaces the old one: the allocation has been resized."""
        if key in self._kept:
            self.free(key, at)
        entry = (-what.bytes, self._count, what)
        self._count += 1
        self._kept[key] = entry
        bisect.insort(self._by_size, entry)  # the counts differ, so two Allocations are never compared
        self._move(what.bytes, at)

    def free(self, key: Hashable, at: float) -> None:
        self._settle()
        entry = self._kept.pop(key)
        del self._by_size[bisect.bisect_left(self._by_size, entry)]
        self._move(-entry[2].bytes, at)

    def fall(self, size: int, at: float) -> None:
        """Lower the level, for memory from before the profile that has been freed."""
        self._settle()
        self._move(-min(size, self.level), at)

    def open(self) -> Scope:
        scope = Scope(self.level, self.level)
        self._open.append(scope)
        return scope

    def close(self, scope: Scope) -> None:
        self._note(scope)
        self._open = [one for one in self._open if one is not scope]

    def point(self, at: float) -> None:
        """Add the current level to the timeline."""
        self.times.append(at)
        self.levels.append(self.level)
        if len(self.times) >= 2 * MOST_POINTS:
            self._thin()

    def _move(self, by: int, at: float) -> None:
        self.level += by
        for scope in self._open:
            if self.level > scope.peak:
                scope.peak, scope.risen = self.level, True
        if by:
            self.point(at)

    def _settle(self) -> None:
        for scope in self._open:
            self._note(scope)

    def _note(self, scope: Scope) -> None:
        if scope.risen:
            scope.largest, scope.risen = tuple(what for _, _, what in self._by_size[: self.keep]), False

    def _thin(self) -> None:
        self.thinned = True
        higher = [i if self.levels[i] >= self.levels[i + 1] else i + 1 for i in range(0, len(self.times) - 1, 2)]
        self.times = [self.times[i] for i in higher]
        self.levels = [self.levels[i] for i in higher]
