"""Two timers on the same calls: which of the profiler's kernels belong to which try of the clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from groundspeed.measure.timers import span_s, split


@dataclass
class Event:
    what: str
    begin: int
    length: int = 10

    def name(self) -> str:
        return self.what

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.length


SPIN = "void at::cuda::(anonymous namespace)::spin_kernel(long)"


def names(*what: str, flushed: bool) -> list[list[str]]:
    events = [Event(name, i) for i, name in enumerate(what)]
    return [[event.what for event in events] for events in split(events, flushed=flushed)]


def test_a_try_begins_after_a_spin() -> None:
    assert names(SPIN, "a", "b", SPIN, "a", "b", flushed=False) == [["a", "b"], ["a", "b"]]


def test_the_flush_of_the_cache_is_nobodys() -> None:
    assert names(SPIN, "Memset (Device)", "a", "Memset (Device)", flushed=True) == [["a", "Memset (Device)"]]


def test_what_was_before_the_first_spin_does_not_count() -> None:
    assert names("x", SPIN, "a", flushed=False) == [["a"]]


def test_a_try_of_nothing_is_one_too() -> None:
    assert names(SPIN, SPIN, "Memset (Device)", flushed=True) == [[], []]


def test_a_span_goes_from_the_first_begin_to_the_last_end() -> None:
    """Kernels on two streams may end in another order than they begin."""
    assert span_s([Event("a", 100, 50), Event("b", 110, 10)]) == pytest.approx(50e-9)
