"""What a worker runs for a profile: a few calls of a contender under PyTorch's profiler, and one under Nsight Compute.

Both come after the gate and the warm-up of a run (`Bench.prepare`): a wrong kernel is not profiled."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groundspeed.measure import gate
from groundspeed.measure.bench import Bench
from groundspeed.measure.cuda import wait_for

RANGE = "groundspeed: call"
KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
"""The trace's categories for what a GPU does → their names in a profile."""
OPERATOR = "cpu_op"
LONGEST_NAME = 2_000


def trace(bench: Bench, contender: str, calls: int, most: int) -> None:
    """Report what was seen in `calls` calls. A call before them is left out: the first one under a profiler is slow."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    assert bench.case is not None
    assert bench.inputs is not None
    entrant, on_gpu = bench.entrants[contender], bench.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    try:
        output: Any = None
        with torch.no_grad(), entrant.contender.around(), profile(activities=activities) as seen:
            for number in range(calls + 1):
                with record_function(RANGE):
                    output = entrant.calls[number % len(entrant.calls)]()
                    wait_for(bench.device)
        bench.guard.check()
        gate.check_plain(output)
        inputs = bench.inputs.of(bench.inputs.diagonal()[calls % len(entrant.calls)])
        answer = gate.ask(bench.case, inputs, gate.ROWS_TIMED)
        gate.check(bench.case, inputs, gate.snapshot(output), answer, "under the profiler: ")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            seen.export_chrome_trace(str(file))
            found = json.loads(file.read_text(encoding="utf-8", errors="replace"), strict=False)
    except Exception as error:
        bench.fault(contender, error)
        return
    told, events = events_of(found["traceEvents"], on_gpu)
    bench.report("traced", contender=contender, calls=told, events=events[:most], left_out=max(0, len(events) - most))


def events_of(trace: Iterable[Mapping[str, Any]], on_gpu: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls except for the first, and what happened in them, from the events of a Chrome trace by PyTorch.

    A call lasts until the device is done, so what begins in it belongs to it."""
    whole = [event for event in trace if event.get("ph") == "X" and "dur" in event]
    ranges = [e for e in whole if e.get("cat") == "user_annotation" and e["name"] == RANGE]
    begins = [(float(e["ts"]), float(e["dur"])) for e in sorted(ranges, key=lambda e: float(e["ts"]))][1:]
    calls = [{"call": i, "seconds": length * 1e-6} for i, (_, length) in enumerate(begins)]
    wanted = [e for e in whole if (e.get("cat") in KINDS if on_gpu else e.get("cat") == OPERATOR)]
    lanes: dict[Any, int] = {}
    events = []
    for event in sorted(wanted, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
        call = _call_of(float(event["ts"]), begins)
        if call is not None:
            lane = lanes.setdefault(_lane(event), len(lanes))
            events.append({"call": call, **_event(event, begins[call][0], lane)})
    return calls, events


def _call_of(at: float, begins: Sequence[tuple[float, float]]) -> int | None:
    return next((i for i, (begin, length) in enumerate(begins) if begin <= at <= begin + length), None)


def _lane(event: Mapping[str, Any]) -> Any:
    return event.get("args", {}).get("stream", event.get("tid"))


def _event(event: Mapping[str, Any], begin: float, lane: int) -> dict[str, Any]:
    told = event.get("args", {})
    return {
        "kind": KINDS.get(str(event.get("cat")), "operator"),
        "name": str(event["name"])[:LONGEST_NAME] or "?",
        "start_s": (float(event["ts"]) - begin) * 1e-6,
        "seconds": float(event["dur"]) * 1e-6,
        "lane": lane,
        "grid": _sizes(told.get("grid")),
        "block": _sizes(told.get("block")),
        "registers": _whole(told.get("registers per thread")),
        "shared_bytes": _whole(told.get("shared memory")),
        "moved_bytes": _whole(told.get("bytes")),
    }


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def _sizes(value: Any) -> list[int] | None:
    if not isinstance(value, list) or len(value) != 3 or None in (sizes := [_whole(size) for size in value]):
        return None
    return [size for size in sizes if size is not None]


def count(bench: Bench, contender: str) -> None:
    """Make one call between the marks that define what Nsight Compute profiles."""
    import torch

    entrant, runtime = bench.entrants[contender], torch.cuda.cudart()
    with torch.no_grad(), entrant.contender.around():
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        entrant.calls[0]()
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()
