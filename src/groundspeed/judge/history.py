"""Runs one after another: what each found. The lines through them are in lines.py."""

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
"""Who ends so was never to be measured, and is no point of a line."""
_LONGEST = 80
"""Characters of what a record says about its environment, which may be anything."""


@dataclass(frozen=True)
class Figure:
    value: float
    """Seconds, or a ratio."""
    low: float | None
    high: float | None
    error: float | None
    """Standard error of its logarithm, over processes. None, like the interval, where there was only one."""


@dataclass(frozen=True)
class Measured:
    """One contender on one case of a run."""

    case: str
    params: str
    """All of them, in one form: what tells a case from another, also the protocol where its cold cache was another."""
    work: str
    """The shape, in words."""
    dtype: str
    clock: str
    """In words; empty on a CPU, which has one."""
    flops: int
    contender: str
    version: str
    status: str
    time: Figure | None
    speed_up: Figure | None
    verdict: str | None
    floor: float
    """The least change that is of interest, on the log scale."""


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
    """What may differ between two runs on one model: commit (of groundspeed), revision (of a project of which two were
    compared: the later one), driver, PyTorch, …"""
    measured: tuple[Measured, ...]


def run_of(judgement: Judgement, identity: str) -> Run:
    """BadInput for a run that does not say when it was. Where two revisions of a contender were compared, the run is
    one of the later: the earlier is another in each run, and makes no line."""
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
    """As `asdict` would, but that a tuple is no list, in a tenth of its time."""
    return {**vars(run), "measured": [_plain(measured) for measured in run.measured]}


def _plain(measured: Measured) -> dict[str, Any]:
    figures = {name: figure and vars(figure) for name in ("time", "speed_up") for figure in (getattr(measured, name),)}
    return {**vars(measured), **figures}


def from_json(value: Any) -> Run:
    """BadInput for what `to_json` did not make."""
    return decode(Run, value, "history")


def _moment(said: str) -> str:
    try:
        moment = datetime.fromisoformat(said)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"the run began at {said!r:.40}, which is no date, so it has no place in a history") from None
    return moment.isoformat(timespec="seconds")


def _surroundings(record: Record, revisions: Iterable[Revision]) -> dict[str, str]:
    """As far as the record tells; its environment may hold anything."""

    def at(*keys: str) -> str:
        value: Any = record.environment
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return str(value)[:_LONGEST] if isinstance(value, str | int | float) else ""

    packages = packages_of(record.environment, next(iter(record.run.judged), ""))  # of revisions the later
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
    """The machine's, and never under the default: from one run to the next more changes than inside of one. Nor over 1,
    whatever a calibration says."""
    return min(1.0, max(default_floor(seconds).value, floor_for(record.calibration, clock, seconds, 1).value))


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Oldest first, each bundle once."""
    return sorted({run.identity: run for run in runs}.values(), key=lambda run: (run.started, run.identity))
