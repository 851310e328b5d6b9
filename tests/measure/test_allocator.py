"""C3 on a GPU, without one: an allocator with statistics and a history like PyTorch's, behind the real source."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch

from groundspeed.evidence.memory import Allocation, Span
from groundspeed.measure import allocator
from groundspeed.measure.allocator import DeviceSource, read_events, replay
from groundspeed.measure.memory_profile import Profiler

KIB = 1024
FRAMES = [
    {"filename": torch.__file__, "line": 1, "name": "empty"},
    {"filename": "/home/me/model.py", "line": 7, "name": "forward"},
    {"filename": "/home/me/main.py", "line": 1, "name": "<module>"},
]


class StandIn:
    """Blocks of whole KiB, statistics of their sum, and a history in the form of PyTorch's."""

    def __init__(self) -> None:
        self.level = self.peak = 0
        self.history: list[dict[str, Any]] | None = None

    def move(self, action: str, addr: int, kib: int) -> None:
        size = kib * KIB
        self.level += size if action == "alloc" else -size
        self.peak = max(self.peak, self.level)
        if self.history is not None:
            self.history.append(
                {"action": action, "addr": addr, "size": size, "time_us": time.time_ns() // 1000, "frames": FRAMES}
            )

    def alloc(self, addr: int, kib: int) -> None:
        self.move("alloc", addr, kib)

    def free(self, addr: int, kib: int) -> None:
        self.move("free_requested", addr, kib)

    def record(self, enabled: str | None, **_: Any) -> None:
        self.history = None if enabled is None else []

    def reset(self, index: int) -> None:
        self.peak = self.level


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made, cuda = StandIn(), torch.cuda
    for name, function in {
        "init": lambda: None,
        "get_device_name": lambda index: "Stand-in",
        "memory_allocated": lambda index: made.level,
        "max_memory_allocated": lambda index: made.peak,
        "memory_reserved": lambda index: made.level,
        "max_memory_reserved": lambda index: made.peak + KIB,
        "reset_peak_memory_stats": made.reset,
    }.items():
        monkeypatch.setattr(cuda, name, function)
    monkeypatch.setattr(cuda.memory, "_record_memory_history", made.record)
    monkeypatch.setattr(cuda.memory, "_snapshot", lambda: {"device_traces": [[], made.history]})
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: made.history is not None, raising=False)
    monkeypatch.setattr(allocator, "_cuts", {})
    return made


def profiler() -> Profiler:
    return Profiler(DeviceSource(1, keep=3, shapes=False))


def test_peaks_by_phase_are_the_statistics_and_the_rest_is_the_history(gpu: StandIn) -> None:
    gpu.alloc(1, 100)
    outer = profiler()
    outer.start()
    with outer.phase("a"):
        gpu.alloc(2, 20)
        gpu.alloc(3, 5)
        time.sleep(0.005)
        gpu.free(2, 20)
    time.sleep(0.005)
    with outer.phase("b"):
        inner = profiler()
        inner.start()
        gpu.alloc(2, 8)
        time.sleep(0.005)
        gpu.free(1, 100)
        told = inner.stop(None)
        gpu.alloc(4, 1)
    use = outer.stop(None)
    assert gpu.history is None
    assert (use.device, use.device_name) == ("cuda", "Stand-in (cuda:1)")
    assert (use.before_bytes, use.peak_bytes, use.after_bytes) == (100 * KIB, 125 * KIB, 14 * KIB)
    assert use.reserved_bytes == 126 * KIB
    a, b = use.phases
    assert (a.peak_bytes, a.added_bytes, a.kept_bytes) == (125 * KIB, 25 * KIB, 5 * KIB)
    assert (b.peak_bytes, b.added_bytes, b.kept_bytes) == (113 * KIB, 8 * KIB, -91 * KIB)
    assert [one.bytes // KIB for one in a.largest] == [20, 5]
    assert [one.bytes // KIB for one in b.largest] == [8, 5]
    assert {one.where for one in use.largest} == {"/home/me/model.py:7 forward"}
    assert [level // KIB for level in use.levels_bytes] == [100, 120, 125, 105, 113, 13, 14, 14]
    assert (told.peak_bytes, told.after_bytes) == (113 * KIB, 13 * KIB)


def test_without_a_history_the_statistics_serve_alone_and_it_says_so(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.history = []
    for reason in ("other code in this process already records it", "does not provide it (AttributeError: "):
        whole = profiler()
        whole.start()
        with whole.phase("a"):
            gpu.alloc(1, 4)
            gpu.free(1, 4)
        use = whole.stop(None)
        assert (use.peak_bytes, use.phases[0].peak_bytes, use.largest) == (4 * KIB, 4 * KIB, ())
        assert reason in use.notes[1]
        assert len(use.times_s) == 4
        gpu.history = None
        monkeypatch.delattr(torch.cuda.memory, "_record_memory_history", raising=False)


def test_a_history_that_cannot_be_read_is_a_note(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no history")

    for snapshot, said in ((dict, "KeyError"), (fail, "no history")):
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
        whole = profiler()
        whole.start()
        gpu.alloc(1, 4)
        use = whole.stop("ValueError")
        assert use.peak_bytes - use.before_bytes == 4 * KIB
        assert said in use.notes[1]
        assert use.notes[2] == "The profile was ended by ValueError."
        assert gpu.history is None


def test_a_history_that_overflowed_is_anchored_at_its_end(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "MOST_EVENTS", 2)
    whole = profiler()
    whole.start()
    for address, kib in ((1, 10), (2, 20), (3, 30)):
        gpu.alloc(address, kib)
    assert gpu.history is not None
    del gpu.history[0]
    use = whole.stop(None)
    assert [level // KIB for level in use.levels_bytes] == [10, 30, 60, 60]
    assert "are incomplete" in use.notes[1]


def test_events_are_of_the_time_of_the_profile_in_grains() -> None:
    def entry(action: str, at: float, size: int = 1) -> dict[str, Any]:
        return {"action": action, "addr": 1, "size": size, "time_us": at * 1e6, "frames": []}

    history = [
        entry("alloc", 999.0),
        entry("segment_alloc", 1000.5, 1 << 20),
        entry("alloc", 1000.5, 513),
        entry("free_requested", 1000.6, 513),
        entry("free_completed", 1000.7, 513),
        entry("alloc", 1003.0),
    ]
    events = list(read_events(history, unix_s=1000.0, end_s=1.0))
    assert [(round(at, 3), size) for at, _, size, _ in events] == [(0.5, 1024), (0.6, -1024)]


def test_a_tensor_describes_the_memory_that_was_its_own() -> None:
    """The same address comes thrice: for a tensor, for what is none, and for another tensor."""
    events = [(1.0, 8, 512, "a"), (1.2, 8, -512, None), (2.0, 8, 512, "b"), (2.2, 8, -512, None)]
    events += [(3.0, 8, 512, None), (3.2, 8, -512, None)]
    spans = [Span(str(i), i - 0.1, i + 0.5) for i in (1, 2, 3)]
    described = {8: [(1.0001, Allocation(400, (100,), "f", "x", None)), (3.1, Allocation(500, (5,), "g", "y", "c"))]}
    told = replay(events, spans, 0, 3, described)
    first, second, third = (told.largest_of[str(i)][0] for i in (1, 2, 3))
    assert first == Allocation(512, (100,), "f", "x", "a")
    assert second == Allocation(512, None, None, None, "b")
    assert third == Allocation(512, (5,), "g", "y", "c")
    assert told.whole.largest == (first,)


def test_the_source_needs_nothing_of_a_gpu_to_be_imported() -> None:
    assert "groundspeed.measure.allocator" in sys.modules
    assert not torch.cuda.is_initialized()
