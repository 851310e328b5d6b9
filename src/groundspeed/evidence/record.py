"""The record of a run: facts only, as dataclasses.

Medians, intervals, TFLOP/s, verdicts and warnings are computed from a record by `judge`, so that better
statistics can judge old evidence again.

Schema history
  1  2026-11  first
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.protocol import Protocol

SCHEMA = 1

Status = Literal["PASSED", "INCORRECT", "ERROR", "OOM", "TIMEOUT", "ABSENT", "SKIPPED"]
StopReason = Literal["width", "last look", "budget", "no pair left"]
Scalar = str | int | float | bool

WARMUP, TIMED = 0, 1

COLUMNS: dict[str, str] = {
    "process": "<i2",
    "attempt": "<i2",  # 0, or more where the process was begun again after an interruption
    "worker": "<i2",  # 0, or more where the worker of the process had to be replaced
    "case": "<i2",
    "contender": "<i2",
    "phase": "|u1",  # WARMUP or TIMED
    "block": "<i4",
    "position": "<i2",  # in the order of its block
    "start": "<f8",  # seconds since the process began
    "seconds": "<f8",  # the interval, of `launches` calls
    "launches": "<i4",
    "checked": "|u1",  # 1 where the output of this very call was compared with the oracle
}
"""The columns of the samples file, one row per sample in the order they were taken."""


@dataclass(frozen=True)
class RunFacts:
    suite: str
    version: str
    commit: str | None
    started: str
    finished: str
    device: str
    baseline: str
    baseline_origin: Literal["declared", "asked"]
    judged: tuple[str, ...]
    with_files: tuple[str, ...]


@dataclass(frozen=True)
class CaseFacts:
    name: str
    aliases: tuple[str, ...]
    params: dict[str, Scalar]
    flops: int
    bytes: int
    counts: dict[str, int]
    """What one call processes: tokens, queries, samples."""
    tolerance: dict[str, float]

    def __post_init__(self) -> None:
        if min(self.flops, self.bytes, *self.counts.values()) < 0:
            raise ValueError("flops, bytes and counts are not negative")


@dataclass(frozen=True)
class ContenderFacts:
    name: str
    description: str
    version: str
    source_sha256: str | None
    status: Literal["ABSENT", "SKIPPED"] | None
    """None for one that is measured."""
    reason: str | None


@dataclass(frozen=True)
class Outcome:
    """How a contender ended on a case in one process."""

    process: int
    attempt: int
    case: str
    contender: str
    status: Status
    reason: str | None
    block: int | None
    """The block it fell out in; None where it never entered one, or stayed to the end."""
    lost_worker: bool = False
    """Whether it took the worker with it: then it is not tried on this case again."""
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    rms_rel: float | None = None
    host_peak_bytes: int | None = None
    host_extra_bytes: int | None = None
    prepare_s: float | None = None
    """First call to correct result, compilation included."""
    warmup_stable: bool | None = None

    def __post_init__(self) -> None:
        if (self.status == "PASSED") != (self.reason is None):
            raise ValueError("a reason goes with every status but PASSED")


@dataclass(frozen=True)
class ProcessFacts:
    process: int
    attempt: int
    started: float
    finished: float | None
    """None for an attempt that was interrupted: its samples are kept and not judged."""
    workers: int


@dataclass(frozen=True)
class Stop:
    process: int
    attempt: int
    case: str
    blocks: int
    why: StopReason
    elapsed_s: float
    """Measuring time of the process so far."""


@dataclass(frozen=True)
class Facts:
    """What `facts.json` holds."""

    schema: int
    run: RunFacts
    protocol: Protocol
    environment: dict[str, Any]
    cases: tuple[CaseFacts, ...]
    contenders: tuple[ContenderFacts, ...]
    processes: tuple[ProcessFacts, ...]
    outcomes: tuple[Outcome, ...]
    stops: tuple[Stop, ...]


@dataclass(frozen=True)
class Record(Facts):
    """The facts and the samples."""

    samples: dict[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict)

    @cached_property
    def case_index(self) -> dict[str, int]:
        return {case.name: i for i, case in enumerate(self.cases)}

    @cached_property
    def contender_index(self) -> dict[str, int]:
        return {contender.name: i for i, contender in enumerate(self.contenders)}

    @cached_property
    def finished_attempts(self) -> dict[int, int]:
        """Process → the attempt that reached its end."""
        return {p.process: p.attempt for p in self.processes if p.finished is not None}

    @property
    def complete(self) -> bool:
        return len(self.finished_attempts) == self.protocol.processes

    @property
    def measured(self) -> list[ContenderFacts]:
        return [c for c in self.contenders if c.status is None]

    @cached_property
    def seconds(self) -> dict[tuple[int, str, str], dict[int, float]]:
        """(process, case, contender) → block → seconds a call, of finished attempts."""
        columns = self.samples
        finished = np.full(max([0, *self.finished_attempts]) + 1, -1, np.int64)
        for process, attempt in self.finished_attempts.items():
            finished[process] = attempt
        known = columns["process"] < len(finished)
        keep = known & (columns["phase"] == TIMED)
        keep[known] &= finished[columns["process"][known]] == columns["attempt"][known]
        result: dict[tuple[int, str, str], dict[int, float]] = {}
        per_call = columns["seconds"][keep] / columns["launches"][keep]
        names = [case.name for case in self.cases], [contender.name for contender in self.contenders]
        rows = zip(
            *(columns[name][keep].tolist() for name in ("process", "case", "contender", "block")),
            per_call.tolist(),
            strict=True,
        )
        for process, case, contender, block, value in rows:
            result.setdefault((process, names[0][case], names[1][contender]), {})[block] = value
        return result


def to_facts(record: Facts) -> dict[str, Any]:
    """The JSON object of `facts.json`."""
    return {f.name: _plain(getattr(record, f.name)) for f in dataclasses.fields(Facts)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def from_facts(value: Any, samples: Mapping[str, npt.NDArray[Any]], where: str) -> Record:
    """A record from parsed JSON and columns, or BadInput that names what is wrong with them."""
    if isinstance(value, dict) and isinstance(value.get("schema"), int) and value["schema"] > SCHEMA:
        raise BadInput(
            f"{where}: written by a newer groundspeed (schema {value['schema']}, this one reads up to {SCHEMA}); "
            "upgrade groundspeed to read it"
        )
    facts = decode(Facts, value, where)
    if facts.schema != SCHEMA:
        raise BadInput(f"{where}: schema {facts.schema} does not exist")
    record = Record(**{f.name: getattr(facts, f.name) for f in dataclasses.fields(Facts)}, samples=dict(samples))
    _check_references(record, where)
    return record


def _check_references(record: Record, where: str) -> None:
    """Names and numbers that refer to each other do; otherwise BadInput."""
    for kind, names in (("case", [c.name for c in record.cases]), ("contender", [c.name for c in record.contenders])):
        if len(set(names)) != len(names):
            raise BadInput(f"{where}: a {kind} appears twice")
    if record.run.baseline not in record.contender_index:
        raise BadInput(f"{where}: the baseline {record.run.baseline!r} is not among the contenders")
    if strangers := set(record.run.judged) - set(record.contender_index):
        raise BadInput(f"{where}: judged contender {min(strangers)!r} is not among the contenders")
    entries: list[Outcome | Stop] = [*record.outcomes, *record.stops]
    for entry in entries:
        if entry.case not in record.case_index:
            raise BadInput(f"{where}: unknown case {entry.case!r}")
    attempts = {(p.process, p.attempt) for p in record.processes}
    if len(attempts) != len(record.processes):
        raise BadInput(f"{where}: an attempt of a process appears twice")
    if sum(p.finished is not None for p in record.processes) != len(record.finished_attempts):
        raise BadInput(f"{where}: a process finished twice")
    keys = {(o.process, o.attempt, o.case, o.contender) for o in record.outcomes}
    if len(keys) != len(record.outcomes):
        raise BadInput(f"{where}: a contender has two outcomes on one case in one process")
    for outcome in record.outcomes:
        if outcome.contender not in record.contender_index:
            raise BadInput(f"{where}: unknown contender {outcome.contender!r}")
    for entry in entries:
        if (entry.process, entry.attempt) not in attempts:
            raise BadInput(f"{where}: process {entry.process}, attempt {entry.attempt} was never begun")
    if any(not 0 <= p.process < record.protocol.processes or p.attempt < 0 for p in record.processes):
        raise BadInput(f"{where}: a process number is out of range")
    _check_samples(record, attempts, where)


def _check_samples(record: Record, attempts: set[tuple[int, int]], where: str) -> None:
    columns = record.samples
    if set(columns) != set(COLUMNS):
        raise BadInput(f"{where}: the samples have the columns {sorted(columns)}, not {sorted(COLUMNS)}")
    if not len(columns["process"]):
        return
    for name, count in (("case", len(record.cases)), ("contender", len(record.contenders))):
        if columns[name].min() < 0 or columns[name].max() >= count:
            raise BadInput(f"{where}: a sample refers to {name} number {columns[name].max()}, which does not exist")
    taken = set(zip(columns["process"].tolist(), columns["attempt"].tolist(), strict=True))
    if taken - attempts:
        raise BadInput(f"{where}: a sample belongs to a process that was never begun")
    if not np.isfinite(columns["seconds"]).all() or columns["seconds"].min() <= 0:
        raise BadInput(f"{where}: a sample is not a positive time")
    if not np.isfinite(columns["start"]).all():
        raise BadInput(f"{where}: a sample has no start")
    if columns["launches"].min() < 1 or columns["block"].min() < 0 or columns["position"].min() < 0:
        raise BadInput(f"{where}: a sample has an impossible block, position or number of launches")
    if columns["phase"].max() > TIMED or columns["checked"].max() > 1:
        raise BadInput(f"{where}: a sample has an unknown mark")
    timed = columns["phase"] == TIMED
    key = np.stack([columns[n][timed] for n in ("process", "attempt", "case", "contender", "block")], axis=1)
    if len(np.unique(key, axis=0)) != len(key):
        raise BadInput(f"{where}: a contender was timed twice in one block")


def empty_samples() -> dict[str, npt.NDArray[Any]]:
    return {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
