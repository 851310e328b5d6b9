"""Two timers on the same calls: which of the profiler's kernels belong to which try of the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stand_in_device import KERNEL_S, StandIn

from groundspeed.measure import cuda
from groundspeed.measure.cuda import EventClock
from groundspeed.measure.timers import CALLS, Overhead, span_s, split, timings


@dataclass
class Event:
    what: str
    begin: int
    length: int = 10
    kind: str = "DeviceType.CUDA"

    def device_type(self) -> str:
        return self.kind

    def is_user_annotation(self) -> bool:
        return False

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


class Watched:
    """A device whose every deed a profiler sees, or all but some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = StandIn()
        self.sees: Callable[[int, str], bool] = lambda number, what: True
        monkeypatch.setattr(cuda, "perf_counter", lambda: self.device.now)
        monkeypatch.setattr(torch.profiler, "profile", self.profile)
        self.clock = EventClock(cold=True, device=self.device)  # type: ignore[arg-type]

    def profile(self, activities: Any) -> Any:
        watched, first = self, len(self.device.done)

        class Profile:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: Any) -> None:
                done = enumerate(watched.device.done[first:])
                seen = [
                    Event({"sleep": SPIN}.get(what, what), round(begin * 1e9), round(seconds * 1e9))
                    for number, (what, begin, seconds) in done
                    if watched.sees(number, what)
                ]
                host = Event("aten::add", 0, kind="DeviceType.CPU")
                results = SimpleNamespace(events=lambda: [host, *reversed(seen)])
                self.profiler = SimpleNamespace(kineto_results=results)

        return Profile()

    def timings(self, call: Callable[[], Any] | None = None) -> list[dict[str, Any]]:
        return timings("default", self.clock, call or self.device.kernel, Overhead(1e-6, 1.0))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_both_have_the_same_calls(watched: Watched) -> None:
    found = watched.timings()
    assert len(found) == CALLS
    for timing in found:
        assert (timing["clock"], timing["launches"], timing["overhead_s"]) == ("default", 1, 1e-6)
        assert timing["seconds"] == pytest.approx(KERNEL_S)
        assert timing["kernels_s"] == pytest.approx(KERNEL_S, rel=1e-3)


def test_of_launches_that_were_made_again_the_last_count(watched: Watched) -> None:
    """The host stalls in the second of them, in whose first try the kernel comes late."""
    calls: list[int] = []

    def kernel() -> None:
        calls.append(1)
        if len(calls) == 3:
            watched.device.now += 0.2
        watched.device.kernel()

    found = watched.timings(kernel)
    assert len(calls) == 1 + CALLS + 1
    assert [timing["seconds"] for timing in found] == pytest.approx([KERNEL_S] * CALLS)
    assert [timing["kernels_s"] for timing in found] == pytest.approx([KERNEL_S] * CALLS, rel=1e-3)


@pytest.mark.parametrize("missed", [0, 3, 12])
def test_where_the_profiler_missed_the_begin_of_one_nothing_is_known(watched: Watched, missed: int) -> None:
    watched.sees = lambda number, what: number != missed
    assert watched.timings() == []


def test_nor_where_it_saw_no_kernel(watched: Watched) -> None:
    watched.sees = lambda number, what: what != "kernel"
    assert watched.timings() == []


def test_what_is_beside_the_kernels_grows_with_a_graph() -> None:
    overhead = Overhead(least_s=2e-6, each_s=5e-8)
    assert [overhead.of(operations) for operations in (1, 2, 101)] == pytest.approx([2e-6, 2.05e-6, 7e-6])
    assert Overhead(least_s=1e-6, each_s=-1e-8).of(1000) == 0.0
