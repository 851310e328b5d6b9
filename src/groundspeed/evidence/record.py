"""The record of a run: facts only, as dataclasses.

Medians, intervals, TFLOP/s, verdicts and warnings are computed from a record by `judge`, so that better
statistics can judge old evidence again.

Schema history
  1  2026-11  first
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groundspeed.evidence.protocol import MAX_NUMBER, Protocol

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

ERRORS = ("max_abs", "mean_abs", "max_rel", "rms_rel")
"""The errors against the oracle that a tolerance may bound and an outcome tells."""

MAX_TEXT = 200
"""Characters of a name or a parameter."""


def _check_names(kind: str, *names: str) -> None:
    """Names are printed, drawn from and compared by people: no empty, endless or invisible ones."""
    for name in names:
        if not name or len(name) > MAX_TEXT or not name.isprintable():
            raise ValueError(f"{name!r:.80} cannot be the name of a {kind}")


@dataclass(frozen=True)
class RunFacts:
    suite: str
    version: str
    commit: str | None
    started: str
    finished: str
    device: Literal["cpu", "cuda"]
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
        _check_names("case", self.name, *self.aliases)
        _check_names("parameter", *self.params, *(v for v in self.params.values() if isinstance(v, str)))
        if min(self.flops, self.bytes, *self.counts.values()) < 0:
            raise ValueError("flops, bytes and counts are not negative")
        if strangers := sorted(set(self.tolerance) - set(ERRORS)):
            raise ValueError(f"there is no error {strangers[0]!r:.80} to bound by a tolerance")


@dataclass(frozen=True)
class ContenderFacts:
    name: str
    description: str
    version: str
    source_sha256: str | None
    status: Literal["ABSENT", "SKIPPED"] | None
    """None for one that is measured."""
    reason: str | None

    def __post_init__(self) -> None:
        _check_names("contender", self.name)
        if (self.status is None) != (self.reason is None):
            raise ValueError("a reason goes with a contender that is not measured, and with no other")


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
        if self.status == "PASSED" and (self.block is not None or self.lost_worker):
            raise ValueError("a contender that passed stayed to the end")
        amounts = (self.block, self.host_peak_bytes, self.host_extra_bytes, *(getattr(self, name) for name in ERRORS))
        if any(amount is not None and amount < 0 for amount in amounts):
            raise ValueError("blocks, bytes and errors are not negative")


@dataclass(frozen=True)
class ProcessFacts:
    process: int
    attempt: int
    started: float
    finished: float | None
    """Both in seconds on the machine's monotonic clock. None for an attempt that was interrupted: its samples are kept
    and not judged."""
    workers: int
    """How many workers it took."""

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MAX_NUMBER or not 0 <= self.attempt <= MAX_NUMBER:
            raise ValueError("a number of workers or attempts is out of range")


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
    def outcomes_of_case(self) -> dict[tuple[int, int, str], list[Outcome]]:
        """(process, attempt, case) → how its contenders ended."""
        result: dict[tuple[int, int, str], list[Outcome]] = {}
        for o in self.outcomes:
            result.setdefault((o.process, o.attempt, o.case), []).append(o)
        return result

    @cached_property
    def outcomes_of_contender(self) -> dict[tuple[str, str], list[Outcome]]:
        """(case, contender) → how it ended in every attempt."""
        result: dict[tuple[str, str], list[Outcome]] = {}
        for o in self.outcomes:
            result.setdefault((o.case, o.contender), []).append(o)
        return result

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


def empty_samples() -> dict[str, npt.NDArray[Any]]:
    return {name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}
