"""Nsight Compute: finding it, running a contender's call under it, and reading its report; or why there is none."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groundspeed.errors import BadInput
from groundspeed.measure.channel import Message, worker_environment

SECTIONS = (
    *("SpeedOfLight", "Occupancy", "WarpStateStats", "LaunchStats"),
    *("MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis"),
)
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
"""Not in a section of every version, so it is requested by name."""
KEPT = re.compile(
    r"(sm__throughput|gpu__compute_memory_throughput|gpu__dram_throughput|dram__throughput|lts__throughput"
    r"|sm__pipe_tensor\w*|sm__inst_executed_pipe_tensor\w*|sm__warps_active)"
    r"\.avg\.pct_of_peak_sustained_(active|elapsed)"
    r"|lts__t_sector_hit_rate\.pct|l1tex__t_sector_hit_rate\.pct|sm__maximum_warps_per_active_cycle_pct"
    r"|dram__bytes(_read|_write)?\.sum(\.per_second)?|gpu__time_duration\.sum|launch__[a-z0-9_]+"
    r"|derived__local_spilling_requests|sass__inst_executed_register_spilling(_mem_local)?"
    r"|smsp__average_warps_issue_stalled_[a-z_]+_per_issue_active\.ratio"
)
"""The metrics of a report that a profile keeps."""
NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?([eE][+-]?[0-9]+)?")
SCALES = {
    **{"us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
    **{f"{prefix}byte{of}": 1000.0**power for power, prefix in enumerate("KMG", 1) for of in ("", "/block", "/second")},
}
"""Unit in a report → its factor to the base units, nanoseconds and bytes, for reports that are not in base units."""
IMPORT_S, VERSION_S = 120.0, 60.0
KERNELS = 100
"""The most launches of one call that are profiled."""
LONGEST_NAME = 2_000

NOT_HERE = (
    "Nsight Compute (ncu) was not found; install NVIDIA's nsight-compute, or give the program's path with --ncu PATH"
)
NOT_ASKED = "Nsight Compute was not run (--no-ncu)"
REASONS = {
    "ERR_NVGPUCTRPERM": "the driver lets only administrators read its performance counters (ERR_NVGPUCTRPERM); load "
    "the driver with NVreg_RestrictProfilingToAdminUsers=0, or run as root (in a container, with CAP_SYS_ADMIN)",
    "LibraryNotLoaded": "Nsight Compute could not load the driver's profiling library (LibraryNotLoaded); a container "
    "needs the driver capabilities `utility,compute` and libraries of the same version as the driver",
    "Driver resource was unavailable": "another profiler or monitor (such as DCGM) holds the performance counters; "
    "stop it, or pause it with `dcgmi profile --pause`",
    "not supported on": "this version of Nsight Compute does not support this GPU; install a newer one",
    "No kernels were profiled": "Nsight Compute saw no kernel in the call",
}
"""What Nsight Compute says when it fails → what that means and what to do."""


class NoCounters(Exception):
    """There are no counters, and why."""


@dataclass(frozen=True)
class Launch:
    kernel: str
    metrics: dict[str, float]


def find(named: Path | None) -> Path | None:
    """Return the program: the one that is named, else the one on the PATH, else that of the CUDA toolkit that the
    environment names; None if there is none."""
    if named is not None:
        if not named.is_file() or not os.access(named, os.X_OK):
            raise BadInput(f"--ncu {named}: no such program; omit --ncu to use the one on the PATH")
        return named
    toolkits = [str(Path(home) / "bin") for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    found = shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(toolkits))
    return Path(found) if found else None


def version_of(ncu: Path) -> str:
    """Return `Nsight Compute 2025.3.1.0`, without the number if the program does not report it."""
    try:
        _, said = _run([str(ncu), "--version"], VERSION_S)
    except NoCounters:
        said = ""
    number = re.search(r"Version (\d[\d.]*\d)", said)
    return f"Nsight Compute {number[1]}" if number else "Nsight Compute"


def count(
    ncu: Path, requests: Sequence[Message], folder: Path, threads: int, gpu: str | None, timeout_s: float
) -> tuple[list[Launch], Path]:
    """Return the launches of one call, and Nsight Compute's own report of them in `folder`. Raise NoCounters if it has
    none."""
    asked = folder / "requests.jsonl"
    asked.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
    report, environment = folder / "report.ncu-rep", worker_environment(threads, gpu)
    look_into = [sys.executable, "-m", "groundspeed.measure.counted", str(asked)]
    for metrics in (["--metrics", TENSOR], []):
        command = [
            *(str(ncu), "--force-overwrite", "--export", str(report), "--target-processes", "application-only"),
            *("--profile-from-start", "off", "--clock-control", "none"),
            *("--cache-control", "all", "--launch-count", str(KERNELS)),
            *(part for section in SECTIONS for part in ("--section", section)),
            *metrics,
        ]
        code, said = _run([*command, *look_into], timeout_s, environment)
        if "Failed to find metric" not in said:
            break
    if code != 0 or not report.is_file():
        raise NoCounters(why_not(said, code))
    code, text = _run([str(ncu), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"], IMPORT_S)
    launches = parse(text)
    if code != 0 or not launches:
        raise NoCounters(why_not(said + text, code))
    return launches, report


def why_not(said: str, code: int) -> str:
    """Return one sentence from what Nsight Compute, or the process that it profiled, said last."""
    if found := next((reason for sign, reason in REASONS.items() if sign in said), None):
        return found
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")] or lines
    last = f": {errors[-1].removeprefix('==ERROR==').strip()[:300]}" if errors else ""
    return f"Nsight Compute exited with code {code}{last}"


def parse(text: str) -> list[Launch]:
    """Return the launches in the output of `ncu --csv --page raw`: a header, a row of units, a row for each launch.
    Values that are not numbers and metrics that are not kept are left out: they are unknown, not zero."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if first is None:
        return []
    rows = list(csv.reader(lines[first:]))
    head, launches = rows[0], []
    name = head.index("Kernel Name") if "Kernel Name" in head else None
    units = next((row for row in rows[1:] if len(row) == len(head) and not row[0].strip()), [""] * len(head))
    for row in rows[1:]:
        if name is None or len(row) != len(head) or not row[0].strip():  # units have no ID
            continue
        metrics = {
            metric: float(cell.replace(",", "")) * SCALES.get(unit, 1.0)
            for metric, unit, cell in zip(head, units, row, strict=True)
            if KEPT.fullmatch(metric) and NUMBER.fullmatch(cell.strip())
        }
        launches.append(Launch(row[name][:LONGEST_NAME] or "?", metrics))
    return launches


def _run(command: list[str], timeout_s: float, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Return the exit code and the complete output. A command that takes too long is killed with everything that it
    started."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise NoCounters(f"Nsight Compute could not be started: {error.strerror}") from None
    try:
        said, _ = process.communicate(timeout=timeout_s)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        raise NoCounters(f"Nsight Compute took longer than {timeout_s:g} s; raise the limit with --timeout") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()
