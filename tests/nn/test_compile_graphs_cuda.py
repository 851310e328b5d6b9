"""The CUDA backend of `compile_graphs` without a GPU: in which order it asks PyTorch for what, and how it gives up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.nn.graphs.cuda import CudaGraphs
from groundspeed.nn.graphs.waits import Uncapturable


class Stream:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_event(self, event: Any) -> None:
        self.log.append(f"{self.name} waits for the event")

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


class Cuda:
    """What is asked of `torch.cuda`, written down."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = Stream("main", self.log)
        self.other = Stream("other", self.log)
        self.pools = self.streams = 0
        self.end_fails = False

    def within(self, stream: Any) -> Any:
        cuda = self

        class Within:
            def __enter__(self) -> None:
                self.before, cuda.current = cuda.current, stream

            def __exit__(self, *_: object) -> None:
                cuda.current = self.before

        return Within()

    def graph(self, graph: Any, pool: Any, stream: Any, capture_error_mode: str) -> Any:
        cuda = self

        class Capture:
            def __enter__(self) -> None:
                assert capture_error_mode == "thread_local"
                cuda.log.append(f"capture on {stream.name} into {pool}")
                self.before, cuda.current = cuda.current, stream

            def __exit__(self, *_: object) -> None:
                if cuda.end_fails:
                    raise RuntimeError("capture was invalidated")
                cuda.current = self.before

        return Capture()

    def make_stream(self) -> Stream:
        self.streams += 1
        return Stream(f"side {self.streams}", self.log)

    def handle(self) -> tuple[int, int]:
        self.pools += 1
        return 0, self.pools

    def set_stream(self, stream: Stream) -> None:
        self.current = stream

    def event(self) -> Any:
        log = self.log

        class Event:
            def record(self, stream: Stream) -> None:
                log.append(f"event on {stream.name}")

        return Event()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    for name, value in {
        "current_stream": lambda: made.current,
        "current_device": lambda: 0,
        "is_current_stream_capturing": lambda: False,
        "device": lambda device: made.within(made.current),
        "stream": made.within,
        "Stream": made.make_stream,
        "Event": made.event,
        "CUDAGraph": object,
        "graph": made.graph,
        "graph_pool_handle": made.handle,
        "set_stream": made.set_stream,
        "synchronize": lambda device: made.log.append("synchronize"),
        "memory_snapshot": lambda: [
            {"total_size": 10, "segment_pool_id": (0, 1)},
            {"total_size": 7, "segment_pool_id": (0, 0)},
            {"total_size": 5, "segment_pool_id": (0, 1)},
        ],
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(
        torch._C, "_cuda_endAllocateToPool", lambda index, pool: made.log.append(f"end {pool}"), raising=False
    )
    return made


def test_all_captures_share_a_pool_and_a_stream_and_warming_up_is_waited_for(cuda: Cuda) -> None:
    backend = CudaGraphs(torch.device("cuda"))
    assert (backend.device, backend.generators, backend.is_capturing()) == (torch.device("cuda:0"), [0], False)
    with backend.turn():
        with backend.aside():
            assert cuda.current.name == "side 1"
        for _ in range(2):
            assert backend.capture(lambda: 3, "f")[0] == 3
    assert cuda.log == [
        "side 1 waits for main",
        "main waits for side 1",
        "capture on side 1 into (0, 1)",
        "capture on side 1 into (0, 1)",
        "event on main",
    ]
    assert backend.pool_bytes() == 15
    backend.settle()
    backend.renew()
    backend.capture(lambda: 3, "f")
    assert cuda.log[-2:] == ["synchronize", "capture on side 1 into (0, 2)"]


def test_another_stream_waits_for_what_the_last_one_does(cuda: Cuda) -> None:
    backend = CudaGraphs(torch.device("cuda:0"))
    for stream in (cuda.current, cuda.current, cuda.other, cuda.other):
        cuda.current = stream
        with backend.turn():
            pass
    events = ["event on main", "event on main", "other waits for the event", "event on other", "event on other"]
    assert cuda.log == events


@pytest.mark.parametrize("end_fails", [False, True])
def test_a_capture_that_fails_says_what_was_first_and_puts_the_stream_back(cuda: Cuda, end_fails: bool) -> None:
    backend, cuda.end_fails = CudaGraphs(torch.device("cuda:0")), end_fails

    def run() -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore lines")

    with pytest.raises(Uncapturable) as failure:
        backend.capture(run, "model")
    said = str(failure.value)
    assert "model cannot be captured as a CUDA graph: RuntimeError: CUDA error: operation not permitted" in said
    assert "\n" not in said
    assert cuda.current.name == "main"
    # And an empty capture: before one has ended well, PyTorch draws no random numbers.
    assert cuda.log == ["capture on side 1 into (0, 1)", "end (0, 1)", "capture on side 1 into None"]
    cuda.end_fails = False
    backend.capture(lambda: 1, "model")
    assert cuda.log[-1] == "capture on side 1 into (0, 2)"


def test_a_pool_that_is_told_of_otherwise_is_not_known(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{}])
    assert CudaGraphs(torch.device("cuda:0")).pool_bytes() is None
