"""The format of nvbench's scripts."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

import numpy as np

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.errors import BadInput
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.report.formats.passed import Passed, Row, known, passed, whole
from groundspeed.report.formats.pytest_benchmark import stats_of
from groundspeed.report.plain_json import dump


def to_nvbench(judgement: Judgement, identity: str) -> str:
    """Return JSON for nvbench's scripts: a benchmark for each contender, and in it a state for each case that was timed
    as nvbench does, on the device with a cold cache."""
    cases = [case for case in judgement.cases if case.clock == DEFAULT_CLOCK]
    if judgement.record.run.device != "cuda" or not cases:
        raise BadInput(
            "nvbench's format is for times on a GPU with a cold cache, and this bundle has none; use --json or --csv"
        )
    figures = {(one.case.facts.name, one.result.contender): one for one in passed(judgement)}
    clocks = _clocks(judgement.record)
    names = list(dict.fromkeys(key for case in cases for key in case.facts.params if key != "clock"))
    capability = str(known(judgement.record.environment, "gpu", "compute_capability"))
    device = {
        "id": 0,
        "name": judgement.device_name,
        "sm_version": round(100 * float(capability)) if re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability) else 0,
        "global_memory_size": whole(judgement.record.environment, "gpu", "memory_bytes"),
    }
    json_version = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}
    benchmarks = [
        {
            "name": f"{judgement.record.run.suite}/{contender.name}",
            "index": index,
            "devices": [0],
            "axes": [_axis(name, cases) for name in names],
            "states": [
                _state(case, figures.get(key := (case.facts.name, contender.name)), names, clocks.get(key))
                for case in cases
            ],
        }
        for index, contender in enumerate(judgement.record.measured)
    ]
    meta = {"argv": ["groundspeed", "report", identity], "version": {"json": json_version}}
    return dump({"meta": meta, "devices": [device], "benchmarks": benchmarks}, indent=1)


def _axis(name: str, cases: Sequence[CaseJudgement]) -> Row:
    values = dict.fromkeys(str(case.facts.params.get(name, "")) for case in cases)
    described = [{"input_string": value, "description": "", "value": value} for value in values]
    return {"name": name, "type": "string", "flags": "", "values": described}


def _clocks(record: Record) -> dict[tuple[str, str], float]:
    """Return the mean SM clock in Hz of each contender on each case, over the samples that count and have a reading."""
    columns, finished = record.samples, record.finished_attempts
    last = np.array([finished.get(process, -1) for process in columns["process"].tolist()])
    keep = (columns["phase"] == TIMED) & (columns["attempt"] == last) & np.isfinite(columns["sm_clock_mhz"])
    found: dict[tuple[str, str], list[float]] = {}
    for case, contender, mhz in zip(
        *(columns[n][keep].tolist() for n in ("case", "contender", "sm_clock_mhz")), strict=True
    ):
        found.setdefault((record.cases[case].name, record.contenders[contender].name), []).append(mhz)
    return {key: 1e6 * statistics.fmean(clocks) for key, clocks in found.items()}


def _state(case: CaseJudgement, one: Passed | None, names: Sequence[str], clock: float | None) -> Row:
    values = {name: str(case.facts.params.get(name, "")) for name in names}
    state = {
        "name": " ".join(("Device=0", *(f"{name}={value}" for name, value in values.items()))),
        "device": 0,
        "type_config_index": 0,
        "axis_values": [{"name": name, "type": "string", "value": value} for name, value in values.items()],
    }
    if one is None:
        return {**state, "summaries": [], "is_skipped": True, "skip_reason": "it has no time; see the bundle"}
    stats = stats_of(one.all_seconds)
    summaries = [
        _summary("sample_size", "Samples", "sample_size", stats["rounds"]),
        _summary("time/gpu/mean", "GPU Time", "duration", stats["mean"]),
        _summary("time/gpu/stdev/relative", "Noise", "percentage", stats["stddev"] / stats["mean"]),
        _summary("time/gpu/stdev/absolute", "Deviation", "duration", stats["stddev"], hide=True),
        _summary("time/gpu/min", "Least GPU Time", "duration", stats["min"], hide=True),
        _summary("time/gpu/q1", "Lower Quartile", "duration", stats["q1"], hide=True),
        _summary("time/gpu/median", "Median GPU Time", "duration", stats["median"], hide=True),
        _summary("time/gpu/q3", "Upper Quartile", "duration", stats["q3"], hide=True),
        _summary("time/gpu/max", "Most GPU Time", "duration", stats["max"], hide=True),
        _summary("time/gpu/iqr/absolute", "Between Quartiles", "duration", stats["iqr"], hide=True),
        _summary("time/gpu/iqr/relative", "Its Part", "percentage", stats["iqr"] / stats["median"], hide=True),
    ]
    if clock is not None:
        summaries.append(_summary("sm_clock_rate/mean", "Clock", "frequency", clock, hide=True))
    return {**state, "summaries": summaries, "is_skipped": False}


def _summary(tag: str, name: str, hint: str, value: float, *, hide: bool = False) -> Row:
    """Return a summary. With `hide`, nvbench leaves it out of its tables and uses it only to compare."""
    data = [{"name": "value", "type": "int64" if isinstance(value, int) else "float64", "value": repr(value)}]
    hidden = {"hide": "for comparing"} if hide else {}
    return {"tag": f"nv/cold/{tag}", "name": name, "hint": hint, **hidden, "data": data}
