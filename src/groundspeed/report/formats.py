"""The figures of a run in the formats of other tools: pytest-benchmark, nvbench, PyTorch's benchmark HUD and Bencher.

Each is given what it calls a result, of those contenders that passed, and the verdict where it has a place for more.
What it makes of the figures is its own; the bundle stays the evidence."""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.errors import BadInput
from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.verdict import Comparison
from groundspeed.report.plain_json import dump
from groundspeed.report.text import safe

Row = dict[str, Any]


class _Passed(NamedTuple):
    """A contender on a case, with figures."""

    case: CaseJudgement
    result: Result
    latency: Latency
    seconds: tuple[tuple[float, ...], ...]
    """Of a call, by process."""


def _passed(judgement: Judgement) -> Iterator[_Passed]:
    record = judgement.record
    for case in judgement.cases:
        for result in case.results:
            if result.status == "PASSED" and result.latency:
                keys = [(process, case.facts.name, result.contender) for process in sorted(record.finished_attempts)]
                seconds = tuple(tuple(record.seconds[key].values()) for key in keys if key in record.seconds)
                yield _Passed(case, result, result.latency, seconds)


def _known(environment: Mapping[str, Any], part: str, key: str) -> Any:
    """What the environment says there, None where it says nothing; a bundle may have anything in it."""
    found = environment.get(part)
    value = found.get(key) if isinstance(found, Mapping) else None
    return value if isinstance(value, (int, float)) else safe(value) if isinstance(value, str) else None


def _whole(environment: Mapping[str, Any], part: str, key: str) -> int:
    """A number of things there, 0 where there is none."""
    value = _known(environment, part, key)
    return value if type(value) is int and 0 < value < 1 << 63 else 0


def to_pytest_benchmark(judgement: Judgement, identity: str) -> str:
    """For `pytest-benchmark compare`: a group for each case, a benchmark for each contender in it."""
    record = judgement.record
    environment, (commit, _, changes) = record.environment, (record.run.commit or "").partition("+")
    return dump(
        {
            "machine_info": {
                "node": judgement.device_name,
                "processor": _known(environment, "cpu", "name"),
                "machine": _known(environment, "os", "machine"),
                "python_implementation": _known(environment, "python", "implementation"),
                "python_version": _known(environment, "python", "version"),
                "release": _known(environment, "os", "kernel"),
                "system": _known(environment, "os", "name"),
                "cpu": {"brand_raw": _known(environment, "cpu", "name"), "count": _known(environment, "cpu", "cores")},
            },
            "commit_info": {"id": commit or "unversioned", "dirty": bool(changes), "time": None, "branch": None},
            "benchmarks": [
                {
                    "group": one.case.facts.name,
                    "name": f"{one.case.facts.name}[{one.result.contender}]",
                    "fullname": f"{record.run.suite}::{one.case.facts.name}[{one.result.contender}]",
                    "params": {**one.case.facts.params, "contender": one.result.contender},
                    "param": one.result.contender,
                    "extra_info": {
                        "bundle": identity,
                        "clock": one.case.clock,
                        "processes": len(one.seconds),
                        **_verdict(one.result.comparison),
                    },
                    "options": {"timer": one.case.clock, "warmup": True, "min_rounds": record.protocol.looks[0]},
                    "stats": _stats([second for process in one.seconds for second in process]),
                }
                for one in _passed(judgement)
            ],
            "datetime": record.run.finished,
            "version": "5.0.0",
        },
        indent=1,
    )


def _stats(seconds: Sequence[float]) -> Row:
    """As pytest-benchmark names them; the quartiles are the medians of both halves."""
    data, half = sorted(seconds), len(seconds) // 2
    mean, spread = statistics.fmean(data), statistics.stdev(data) if half else 0.0
    q1, q3 = (statistics.median(data[:half]), statistics.median(data[-half:])) if half else (data[0], data[0])
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    inside = data[bisect_left(data, low) : bisect_right(data, high)]
    far = sum(abs(x - mean) > spread for x in data)
    return {
        "min": data[0],
        "max": data[-1],
        "mean": mean,
        "stddev": spread,
        "rounds": len(data),
        "median": statistics.median(data),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(data) - len(inside),
        "stddev_outliers": far,
        "outliers": f"{far};{len(data) - len(inside)}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean,
        "total": math.fsum(data),
        "iterations": 1,
    }


def _verdict(comparison: Comparison | None) -> dict[str, str]:
    if comparison is None:
        return {}
    return {"verdict": comparison.verdict or "not judged", "reason": safe(comparison.reason)}


def to_bencher(judgement: Judgement, identity: str) -> str:
    """Bencher Metric Format: nanoseconds, calls a second and the speed-up where there is a verdict on it, each with its
    95% interval."""
    found: dict[str, Row] = {}
    for case, result, latency, _ in _passed(judgement):
        measures = {
            "latency": _metric(*(1e9 * x for x in (latency.median, latency.low, latency.high))),
            "throughput": _metric(1 / latency.median, 1 / latency.high, 1 / latency.low),
        }
        if (c := result.comparison) and c.verdict not in (None, "UNCLEAR"):
            measures["speed-up"] = _metric(c.ratio, c.low, c.high)
        found[f"{judgement.record.run.suite}/{case.facts.name}/{result.contender}"] = measures
    return dump(found, indent=1)


def _metric(value: float, low: float, high: float) -> Row:
    """Of one process there is no interval."""
    bounds = {"lower_value": low, "upper_value": high} if math.isfinite(low) and math.isfinite(high) else {}
    return {"value": value, **bounds}


def to_hud(judgement: Judgement, identity: str) -> str:
    """Records of PyTorch's benchmark database, a line each. Their values are those of the processes; what belongs to
    the change and to the job is for the uploader to add."""
    record, environment = judgement.record, judgement.record.environment
    packages = environment.get("packages")
    runner: Row = {
        "name": record.run.device,
        "type": judgement.device_name,
        "cpu_info": str(_known(environment, "cpu", "name") or ""),
        "cpu_count": _whole(environment, "cpu", "cores"),
        "gpu_info": str(_known(environment, "gpu", "name") or ""),
        "gpu_count": int(record.run.device == "cuda"),
        "extra_info": {},
    }
    shared = {
        "runners": [runner],
        "dependencies": {
            str(name): {"version": str(version), "extra_info": {}}
            for name, version in (packages.items() if isinstance(packages, Mapping) else ())
        },
    }
    lines = []
    for case, result, _, seconds in _passed(judgement):
        about = {
            "benchmark": {
                "name": f"groundspeed {record.run.suite}",
                "mode": "inference",
                "dtype": str(case.facts.params.get("dtype", "")),
                "extra_info": {"clock": case.clock, "bundle": identity},
            },
            "model": {
                "name": case.facts.name,
                "type": record.run.suite,
                "backend": result.contender,
                "origins": ["groundspeed"],
                "extra_info": {str(key): str(value) for key, value in case.facts.params.items()},
            },
            **shared,
        }
        target: Row = {"target_value": 1e3 * case.target.target_s} if case.target and case.target.target_s else {}
        medians = [1e3 * statistics.median(of_one) for of_one in seconds]
        metrics: dict[str, tuple[list[float], Row]] = {"latency_ms": (medians, target)}
        if case.facts.flops:
            metrics["tflops"] = ([case.facts.flops / 1e9 / ms for ms in medians], {})
        if c := result.comparison:
            values = [math.exp(centre.theta.mean) for centre in c.centres]
            metrics[f"speedup_vs_{c.baseline}"] = (values, {"extra_info": _verdict(c)})
        for name, (values, more) in metrics.items():
            lines.append(dump({**about, "metric": {"name": name, "benchmark_values": values, **more}}) + "\n")
    return "".join(lines)


def to_nvbench(judgement: Judgement, identity: str) -> str:
    """For nvbench's scripts: a benchmark for each contender, a state for each case that was timed as nvbench does, on
    the device with a cold cache."""
    cases = [case for case in judgement.cases if case.clock == DEFAULT_CLOCK]
    if judgement.record.run.device != "cuda" or not cases:
        raise BadInput(
            "nvbench's format is for times on a GPU with a cold cache, and this bundle has none; take --json or --csv"
        )
    figures = {(one.case.facts.name, one.result.contender): one for one in _passed(judgement)}
    names = list(dict.fromkeys(key for case in cases for key in case.facts.params if key != "clock"))
    capability = str(_known(judgement.record.environment, "gpu", "compute_capability"))
    device = {
        "id": 0,
        "name": judgement.device_name,
        "sm_version": round(100 * float(capability)) if re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability) else 0,
        "global_memory_size": _whole(judgement.record.environment, "gpu", "memory_bytes"),
    }
    json_version = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}
    benchmarks = [
        {
            "name": f"{judgement.record.run.suite}/{contender.name}",
            "index": index,
            "devices": [0],
            "axes": [_axis(name, cases) for name in names],
            "states": [_state(case, figures.get((case.facts.name, contender.name)), names) for case in cases],
        }
        for index, contender in enumerate(judgement.record.measured)
    ]
    meta = {"argv": ["groundspeed", "report", identity], "version": {"json": json_version}}
    return dump({"meta": meta, "devices": [device], "benchmarks": benchmarks}, indent=1)


def _axis(name: str, cases: Sequence[CaseJudgement]) -> Row:
    values = dict.fromkeys(str(case.facts.params.get(name, "")) for case in cases)
    described = [{"input_string": value, "description": "", "value": value} for value in values]
    return {"name": name, "type": "string", "flags": "", "values": described}


def _state(case: CaseJudgement, one: _Passed | None, names: Sequence[str]) -> Row:
    values = {name: str(case.facts.params.get(name, "")) for name in names}
    state = {
        "name": " ".join(("Device=0", *(f"{name}={value}" for name, value in values.items()))),
        "device": 0,
        "type_config_index": 0,
        "axis_values": [{"name": name, "type": "string", "value": value} for name, value in values.items()],
    }
    if one is None:
        return {**state, "summaries": None, "is_skipped": True, "skip_reason": "it has no time; see the bundle"}
    mean, std = one.latency.mean, one.latency.std
    summaries = [
        _summary("sample_size", "Samples", "sample_size", "int64", one.latency.samples),
        _summary("time/gpu/mean", "GPU Time", "duration", "float64", mean),
        _summary("time/gpu/stdev/relative", "Noise", "percentage", "float64", std / mean),
    ]
    return {**state, "summaries": summaries, "is_skipped": False}


def _summary(tag: str, name: str, hint: str, kind: str, value: float) -> Row:
    data = [{"name": "value", "type": kind, "value": repr(value)}]
    return {"tag": f"nv/cold/{tag}", "name": name, "hint": hint, "data": data}
