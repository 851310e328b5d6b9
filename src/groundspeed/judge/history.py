"""Runs one after another: what each found, and where a line through them changed its level.

A time is that of one device model, and moves with everything that moves the machine. A speed-up is a contender against
the baseline of its own run, block by block, so what hits both alike cancels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from groundspeed.case import CLOCKS, DEFAULT_CLOCK, FUNCTIONS
from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.protocol import BEFORE_FOURTH
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import Revision, packages_of, revisions_of
from groundspeed.judge.changes import ENOUGH, Change, find_changes, scatter_of
from groundspeed.judge.claims import conditions
from groundspeed.judge.floors import default_floor, floor_for
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.statistics import t_quantile

Kind = Literal["time", "speed-up"]

UNMEASURED = ("ABSENT", "SKIPPED")
"""Who ends so was never to be measured, and is no point of a line."""
CALIBRATION = "calibration"
"""The suite of a machine's own lines, which nobody opens a history for: they come last."""
LARGE = 0.1
"""Of a step on the log scale: two runs of the same code were seen to differ by some percent on a busy machine."""
_Z = 1.96
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


@dataclass(frozen=True)
class Point:
    run: int
    """Its place among the runs of the history."""
    status: str
    version: str
    """Of the contender."""
    figure: Figure | None
    """None for a contender that failed."""


@dataclass(frozen=True)
class Step:
    """From the run before to the latest, on the log scale."""

    shift: float
    beyond: bool
    """Whether it is more than the floor, than both intervals together, and than runs scatter."""
    early: bool = False
    """Whether it would be, were it known how runs scatter: by more than the processes of one tell, which only earlier
    runs show; a large step of a speed-up, which what moves the machine does not move, need not wait for them."""


@dataclass(frozen=True)
class Line:
    """One contender on one case on one device model, run by run."""

    kind: Kind
    suite: str
    device: str
    latest: Measured
    baseline: str
    """Of a speed-up; empty for a time."""
    floor: float
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    """Places count the points that have a figure."""

    @property
    def counted(self) -> list[tuple[Point, Figure]]:
        return [(point, point.figure) for point in self.points if point.figure]

    @property
    def step(self) -> Step | None:
        figures = [figure for _, figure in self.counted]
        if len(figures) < 2:
            return None
        shift = math.log(figures[-1].value / figures[-2].value)
        scatter = scatter_of([math.log(f.value) for f in figures[:-1]], [_error(f) for f in figures], self.floor)
        beyond = abs(shift) > max(self.floor, _Z * math.hypot(*scatter[-2:]))
        known = len(figures) > ENOUGH or (self.kind == "speed-up" and abs(shift) > LARGE)
        return Step(shift, beyond and known, beyond and not known)


def _error(figure: Figure) -> float:
    return math.nan if figure.error is None else figure.error


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Oldest first, each bundle once."""
    return sorted({run.identity: run for run in runs}.values(), key=lambda run: (run.started, run.identity))


def lines(runs: Sequence[Run]) -> list[Line]:
    """All lines through runs in order, calibrations and then single points last and else those of the latest run first;
    a case is known by its parameters, and called what the latest run calls it. Of a run that was interrupted and gone
    on with, which leaves a bundle each time, the one that has most is in them."""
    most: dict[tuple[str | int, ...], tuple[int, int]] = {}
    for i, run in enumerate(runs):
        same = (run.started, run.seed, run.suite, run.device, run.baseline)
        most[same] = max((run.processes, i), most.get(same, (0, 0)))
    found: dict[tuple[str, ...], list[tuple[int, Measured]]] = {}
    for _, i in sorted(most.values(), key=lambda one: one[1]):
        run = runs[i]
        for measured in run.measured:
            about = (run.suite, run.device, measured.params, measured.contender)
            found.setdefault(("time", *about, ""), []).append((i, measured))
            if measured.contender != run.baseline and "revision" not in run.surroundings:
                found.setdefault(("speed-up", *about, run.baseline), []).append((i, measured))
    made = (_line(key, entries) for key, entries in found.items())
    return sorted(made, key=lambda line: (line.suite == CALIBRATION, len(line.points) == 1, -line.points[-1].run))


def _line(key: tuple[str, ...], entries: Sequence[tuple[int, Measured]]) -> Line:
    kind: Kind = "time" if key[0] == "time" else "speed-up"
    points = tuple(Point(i, m.status, m.version, m.time if kind == "time" else m.speed_up) for i, m in entries)
    floors = sorted(m.floor for _, m in entries if m.time) or [0.0]
    floor = floors[len(floors) // 2]
    figures = [point.figure for point in points if point.figure]
    changes = find_changes([math.log(f.value) for f in figures], [_error(f) for f in figures], floor)
    return Line(kind, key[1], key[2], entries[-1][1], key[5], floor, points, tuple(changes))
