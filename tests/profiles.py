"""What PyTorch's profiler and Nsight Compute write, by hand after their documentation; and profiles made of it."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

from groundspeed.evidence.profile import SCHEMA, Call, Counted, Event, Profile, Seen
from groundspeed.evidence.record import CaseFacts, ContenderFacts
from groundspeed.lab.declare import case_facts
from groundspeed.measure import ncu
from groundspeed.measure.traced import RANGE, events_of
from groundspeed.suites.registry import suite_module

CASE = "claim-full-bf16"
KERNEL = "void cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma(Params<128, 64>)"
PERIOD, BEGIN = 1_000.0, 5_000_000.0
"""Microseconds."""

_CALL = (
    ("kernel", "void at::native::elementwise_kernel<128>(int)", 20.0, 4.0, 7),
    ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 26.0, 6.0, 7),
    ("kernel", KERNEL, 36.0, 200.0, 7),
)
"""Category, name, begin and length since the call began, stream: gaps of 2 and 4, 210 busy in a span of 216."""


def cuda_trace(calls: int, work: Any = _CALL) -> list[dict[str, Any]]:
    """As `export_chrome_trace` has it: of every call a range on the host, and what the device did in it."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for i in range(calls):
        begin = BEGIN + i * PERIOD
        host = {"ph": "X", "pid": 77, "tid": 77}
        events += [
            {**host, "cat": "user_annotation", "name": RANGE, "ts": begin, "dur": 250.0 + i, "args": {}},
            {**host, "cat": "cpu_op", "name": "aten::add", "ts": begin + 1, "dur": 9.0, "args": {}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 3, "dur": 5.0, "args": {}},
            {"ph": "X", "cat": "gpu_user_annotation", "name": RANGE, "ts": begin + 20, "dur": 216.0, "args": {}},
            {"ph": "X", "cat": "kernel", "name": "of nobody", "ts": begin + 500, "dur": 9.0, "args": {"stream": 7}},
        ]
        for category, name, at, length, stream in work:
            told: dict[str, Any] = {"device": 0, "context": 1, "stream": stream, "correlation": 19}
            if category == "kernel":
                told |= {"registers per thread": 168, "shared memory": 199_680, "blocks per SM": 1.0}
                told |= {"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 18}
            else:
                told |= {"bytes": 1_048_576, "memory bandwidth (GB/s)": 174.0}
            events.append(
                {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": begin + at, "dur": length}
                | {"args": told}
            )
    return events


METRICS: dict[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("nsecond", "58,400"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "71.25"),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "48.9"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "68.5"),
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active": ("%", "2.9"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12.5"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "31"),
    "lts__t_sector_hit_rate.pct": ("%", "84.75"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "18.2"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "18.75"),
    "launch__registers_per_thread": ("register/thread", "168"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "199,680"),
    "launch__shared_mem_per_block_static": ("byte/block", "0"),
    "launch__block_size": ("", "384"),
    "launch__occupancy_limit_registers": ("block", "1"),
    "launch__occupancy_limit_shared_mem": ("block", "1"),
    "launch__occupancy_limit_warps": ("block", "5"),
    "launch__occupancy_limit_barriers": ("block", "21"),
    "launch__occupancy_limit_blocks": ("block", "32"),
    "launch__waves_per_multiprocessor": ("", "1"),
    "dram__bytes.sum.per_second": ("byte/second", "600,000,000,000"),
    "derived__local_spilling_requests": ("", "0"),
    "launch__func_cache_config": ("", "CachePreferNone"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "0.41"),
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio": ("inst", "2.13"),
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": ("inst", "1"),
    "smsp__average_warps_issue_stalled_gmma_not_issued_per_issue_active.ratio": ("inst", "8"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("inst", "0.9"),
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": ("inst", "n/a"),
    "device__attribute_clock_rate": ("", "1980000"),
}
_HEAD = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")


def ncu_csv(*launches: dict[str, str], kernel: str = KERNEL) -> str:
    """`ncu --import … --csv --page raw --print-units base`: each launch with these cells in place of those above."""

    def line(cells: Any) -> str:
        return ",".join(f'"{cell}"' for cell in cells)

    lines = [
        "==PROF== Loaded report",
        line((*_HEAD, *METRICS)),
        line([""] * len(_HEAD) + [u for u, _ in METRICS.values()]),
    ]
    for i, changed in enumerate(launches):
        known = (str(i), "77", "python3.12", "secret-host", kernel, "1", "7", "(384, 1, 1)", "(132, 1, 1)")
        lines.append(line((*known, *(changed.get(name, value) for name, (_, value) in METRICS.items()))))
    return "\n".join(lines) + "\n"


def fake_ncu(folder: Path, count: str, imported: str = "") -> Path:
    """A program that stands for Nsight Compute: `count` is Python that runs in place of a count, with `report` its
    file, and `imported` what it says of a report."""
    folder.mkdir(exist_ok=True)
    (folder / "said.csv").write_text(imported)
    path = folder / "ncu"
    path.write_text(
        f"""#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path({str(folder)!r})
if "--version" in sys.argv:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880) (public-release)")
elif "--import" in sys.argv:
    print((here / "said.csv").read_text())
else:
    with open(here / "asked.jsonl", "a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\\n")
    report = pathlib.Path(sys.argv[sys.argv.index("--export") + 1])
    {count}
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def contender(name: str, status: Any = None, reason: str | None = None) -> ContenderFacts:
    return ContenderFacts(name, f"what {name} is", "1.0", "", None, status, reason)


def gpu_profile(name: str = "sdpa-cudnn", kernel: str = KERNEL, counted: bool = True, **changes: Any) -> Profile:
    """Of one contender that passed on an H200, one that did not, and one that is absent."""
    case = next(case for case in suite_module("attention").all_cases() if case.name == CASE)
    facts = case_facts(case)
    calls, events = events_of(cuda_trace(4, [(c, kernel if n == KERNEL else n, *rest) for c, n, *rest in _CALL]), True)
    launches = ncu.parse(ncu_csv({}, kernel="KERNEL")) if counted else []
    why = None if counted else ncu.REASONS["ERR_NVGPUCTRPERM"]
    profile = Profile(
        schema=SCHEMA,
        suite="attention",
        version="0.1.0",
        commit=None,
        started="2026-11-16T00:00:00+00:00",
        finished="2026-11-16T00:01:00+00:00",
        device="cuda",
        with_files=(),
        environment={"gpu": {"name": "NVIDIA H200"}},
        case=CaseFacts(**{**facts, "aliases": tuple(facts["aliases"])}),
        contenders=(contender(name), contender("mine"), contender("xformers", "ABSENT", "is not installed")),
        counters_by="Nsight Compute 2025.3.1.0",
        seen=(
            Seen(name, "PASSED", None, {"max_abs": 0.0, "mean_abs": 0.0, "rms_rel": 0.0, "max_rel": 0.0}, 0, why, None),
            Seen("mine", "INCORRECT", "max_abs error 1 is over the tolerance", {}, 0, "it did not pass", None),
        ),
        calls=tuple(Call(name, **call) for call in calls),
        events=tuple(
            Event(name, **{k: tuple(v) if isinstance(v, list) else v for k, v in event.items()}) for event in events
        ),
        counted=tuple(Counted(name, kernel, launch.metrics) for launch in launches),
    )
    return replace(profile, **changes)
