"""A8: what of a trace of PyTorch's profiler is told: calls, and in them kernels, copies and operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groundspeed.measure.traced import count, events_of
from profiles import KERNEL, RANGE, cuda_trace


def test_the_first_call_is_not_told_and_the_others_are_counted_from_0() -> None:
    calls, events = events_of(cuda_trace(4), on_gpu=True)
    assert [call["call"] for call in calls] == [0, 1, 2]
    assert [call["seconds"] for call in calls] == pytest.approx([251e-6, 252e-6, 253e-6])
    assert {event["call"] for event in events} == {0, 1, 2}


def test_a_kernel_has_all_that_the_profiler_tells() -> None:
    _, events = events_of(cuda_trace(2), on_gpu=True)
    fill, copy, attention = events
    assert attention["start_s"] == pytest.approx(36e-6)
    assert attention["seconds"] == pytest.approx(200e-6)
    assert {k: v for k, v in attention.items() if k not in ("start_s", "seconds")} == {
        "call": 0,
        "kind": "kernel",
        "name": KERNEL,
        "lane": 0,
        "grid": [132, 1, 1],
        "block": [384, 1, 1],
        "registers": 168,
        "shared_bytes": 199_680,
        "moved_bytes": None,
    }
    assert (fill["kind"], copy["kind"], copy["moved_bytes"], copy["registers"]) == ("kernel", "copy", 1_048_576, None)


def test_what_runs_outside_of_a_call_is_nobodys() -> None:
    assert "of nobody" not in {event["name"] for event in events_of(cuda_trace(3), on_gpu=True)[1]}


def test_streams_are_counted_from_0() -> None:
    work = [("kernel", "a", 20.0, 5.0, 7), ("kernel", "b", 21.0, 5.0, 13), ("gpu_memset", "Memset", 30.0, 1.0, 7)]
    _, events = events_of(cuda_trace(2, work), on_gpu=True)
    assert [(event["name"], event["lane"], event["kind"]) for event in events] == [
        ("a", 0, "kernel"),
        ("b", 1, "kernel"),
        ("Memset", 0, "set"),
    ]


def test_on_a_cpu_the_operators_count_and_nothing_else() -> None:
    _, events = events_of(cuda_trace(2), on_gpu=False)
    assert [(event["kind"], event["name"], event["grid"]) for event in events] == [("operator", "aten::add", None)]


def test_what_a_profiler_leaves_out_is_not_known() -> None:
    bare = [{**event, "args": {"grid": [1, 2], "shared memory": "?"}} for event in cuda_trace(2)]
    _, events = events_of(bare, on_gpu=True)
    assert {(e["grid"], e["block"], e["registers"], e["shared_bytes"]) for e in events} == {(None,) * 4}


def test_a_trace_without_calls_tells_nothing() -> None:
    assert events_of([event for event in cuda_trace(3) if event["name"] != RANGE], on_gpu=True) == ([], [])


def test_nsight_compute_sees_one_call_and_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    marks = SimpleNamespace(
        cudaProfilerStart=lambda: done.append("start"), cudaProfilerStop=lambda: done.append("stop")
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: marks)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("wait"))
    here: Any = SimpleNamespace(contender=SimpleNamespace(around=torch.no_grad), calls=[lambda: done.append("call")])
    count(SimpleNamespace(entrants={"mine": here}), "mine")  # type: ignore[arg-type]
    assert done == ["wait", "start", "call", "wait", "stop"]
