"""The format of `pytest-benchmark compare`."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from groundspeed.judge.judgement import Judgement
from groundspeed.report.formats.passed import Row, known, passed, verdict
from groundspeed.report.plain_json import dump


def to_pytest_benchmark(judgement: Judgement, identity: str) -> str:
    """Return JSON for `pytest-benchmark compare`: a group for each case, with a benchmark for each contender."""
    record = judgement.record
    environment, (commit, _, changes) = record.environment, (record.run.commit or "").partition("+")
    return dump(
        {
            "machine_info": {
                "node": judgement.device_name,
                "processor": known(environment, "cpu", "name"),
                "machine": known(environment, "os", "machine"),
                "python_implementation": known(environment, "python", "implementation"),
                "python_version": known(environment, "python", "version"),
                "release": known(environment, "os", "kernel"),
                "system": known(environment, "os", "name"),
                "cpu": {"brand_raw": known(environment, "cpu", "name"), "count": known(environment, "cpu", "cores")},
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
                        **verdict(one.result.comparison),
                    },
                    "options": {"timer": one.case.clock, "warmup": True, "min_rounds": record.protocol.looks[0]},
                    "stats": stats_of(one.all_seconds),
                }
                for one in passed(judgement)
            ],
            "datetime": record.run.finished,
            "version": "5.0.0",
        },
        indent=1,
    )


def stats_of(seconds: Sequence[float]) -> Row:
    """Return the statistics by pytest-benchmark's names. The quartiles are the medians of the two halves."""
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
