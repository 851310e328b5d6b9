"""The history of runs: what each run found. The lines through the runs are in lines.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from groundspeed.case import CLOCKS, DEFAULT_CLOCK, FUNCTIONS
from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.protocol import BEFORE_FOURTH
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import Revision, packages_of, revisions_of
from groundspeed.judge.claims import conditions
from groundspeed.judge.floors import default_floor, floor_for
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.statistics import t_quantile

UNMEASURED = ("ABSENT", "SKIPPED")
"""Statuses of contenders that were never meant to be measured. They are not points of a line."""
_LONGEST = 80
"""The most characters kept of a value from a record's environment, which may hold anything."""


@dataclass(frozen=True)
class Figure:
    value: float
    """Seconds, or a ratio."""
    low: float | None
    high: float | None
    error: float | None
    """The standard error of its logarithm over processes. None, like the interval, if there was only one process."""


@dataclass(frozen=True)
class Measured:
    """One contender on one case of a run."""

    case: str
    params: str
    """All parameters as sorted JSON, the key of the case. It includes the protocol if that protocol's cold cache was a
    different one, and the run if functions without a name were compared, which no other run has."""
    work: str
    """The shape, in words."""
    dtype: str
    clock: str
    """In words; empty on a CPU, which has only one clock."""
    flops: int
    contender: str
    version: str
    status: str
    time: Figure | None
    speed_up: Figure | None
    verdict: str | None
    floor: float
    """The smallest change of interest, on the log scale."""


@dataclass(frozen=True)
class Run:
    identity: str
    suite: str
    preset: str
    device: str
    """The model, in words."""
    started: str
    """In UTC."""
    seed: int
    processes: int
    declared: int
    baseline: str
    reproduces: str | None
    surroundings: dict[str, str]
    """What may differ between two runs on one device model: commit (of groundspeed), revision (the later one of a
    project if two were compared), driver, PyTorch, …"""
    measured: tuple[Measured, ...]


def run_of(judgement: Judgement, identity: str) -> Run:
    """Return what a judged run found. Raise BadInput if its start is not a date. If the run compared two revisions of a
    contender, it counts as a run of the later one: the earlier differs from run to run and makes no line."""
    record = judgement.record
    revisions = revisions_of(record.environment)
    bases = {name for name, revision in revisions.items() if revision.side == "base"}
    return Run(
        identity=identity,
        suite=record.run.suite,
        preset=record.protocol.preset,
        device=judgement.device_name,
        started=_moment(record.run.started),
        seed=record.protocol.seed,
        processes=len(record.finished_attempts),
        declared=record.declared_processes,
        baseline=record.run.baseline,
        reproduces=record.run.reproduces,
        surroundings=_surroundings(record, revisions.values()),
        measured=tuple(
            _measured(record, case, result, revisions.get(result.contender))
            for case in judgement.cases
            for result in case.results
            if result.status not in UNMEASURED and result.contender not in bases
        ),
    )


def to_json(run: Run) -> dict[str, Any]:
    """Convert a run to plain data as `asdict` would, but with a list for the tuple, and in a tenth of the time."""
    return {**vars(run), "measured": [_plain(measured) for measured in run.measured]}


def _plain(measured: Measured) -> dict[str, Any]:
    figures = {name: figure and vars(figure) for name in ("time", "speed_up") for figure in (getattr(measured, name),)}
    return {**vars(measured), **figures}


def from_json(value: Any) -> Run:
    """Rebuild a run from plain data. Raise BadInput for data that `to_json` did not make."""
    return decode(Run, value, "history")


def _moment(said: str) -> str:
    try:
        moment = datetime.fromisoformat(said)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"the start of the run, {said!r:.40}, is not a date, so it has no place in a history") from None
    return moment.isoformat(timespec="seconds")


def _surroundings(record: Record, revisions: Iterable[Revision]) -> dict[str, str]:
    """Return the surroundings that the record tells. Its environment may hold anything, so nothing is assumed of it."""

    def at(*keys: str) -> str:
        value: Any = record.environment
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return str(value)[:_LONGEST] if isinstance(value, str | int | float) else ""

    packages = packages_of(record.environment, next(iter(record.run.judged), ""))  # the later of two revisions
    said = {
        "commit": (record.run.commit or "")[:_LONGEST],
        "revision": ", ".join(dict.fromkeys(r.short for r in revisions if r.side == "head"))[:_LONGEST],
        "groundspeed": record.run.version[:_LONGEST],
        "driver": at("gpu", "driver"),
        "PyTorch": packages.get("torch", "")[:_LONGEST],
        "Triton": packages.get("triton", "")[:_LONGEST],
        "GPU": at("gpu", "id"),
        "preset": record.protocol.preset,
        "isolated": "yes" if record.protocol.isolated else "",
    }
    return {key: value for key, value in said.items() if value}


def _measured(record: Record, case: CaseJudgement, result: Result, revision: Revision | None) -> Measured:
    facts, latency, c = case.facts, result.latency, result.comparison
    time = ratio = None
    if latency:
        counted = sum((p, facts.name, result.contender) in record.seconds for p in record.finished_attempts)
        time = _figure(latency.median, latency.low, latency.high, counted, record.protocol.confidence)
    if c:
        ratio = _figure(c.ratio, c.low, c.high, c.interval.n, record.protocol.confidence)
    on_gpu, protocol = record.run.device == "cuda", record.protocol.name
    alone = {"run": record.draw_seed} if record.run.suite == FUNCTIONS and "name" not in facts.params else {}
    earlier = {"protocol": protocol} if on_gpu and case.clock == DEFAULT_CLOCK and protocol in BEFORE_FOURTH else {}
    return Measured(
        case=facts.name,
        params=json.dumps(facts.params | earlier | alone, sort_keys=True),
        work=conditions(facts),
        dtype=str(facts.params.get("dtype", "")),
        clock=", ".join([CLOCKS.get(case.clock, case.clock), *earlier.values()]) if on_gpu else "",
        flops=facts.flops,
        contender=revision.contender if revision else result.contender,
        version=record.contenders[record.contender_index[result.contender]].version[:_LONGEST],
        status=result.status,
        time=time,
        speed_up=ratio,
        verdict=c.verdict if c else None,
        floor=_floor(record, case.clock, latency.median) if latency else 0.0,
    )


def _figure(value: float, low: float, high: float, processes: int, confidence: float) -> Figure:
    if processes < 2 or not (0 < low <= high < math.inf):
        return Figure(value, None, None, None)
    error = math.log(high / low) / 2 / t_quantile((1 + confidence) / 2, processes - 1)
    return Figure(value, low, high, error)


def _floor(record: Record, clock: str, seconds: float) -> float:
    """Return the machine's floor, but not below the default, because more changes from run to run than within one run,
    and not above 1, whatever a calibration says."""
    return min(1.0, max(default_floor(seconds).value, floor_for(record.calibration, clock, seconds, 1).value))


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return the runs oldest first, each bundle once."""
    return sorted({run.identity: run for run in runs}.values(), key=lambda run: (run.started, run.identity))
