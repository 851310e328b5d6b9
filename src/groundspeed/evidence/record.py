"""The record of a run: facts only, as dataclasses.

Medians, intervals, TFLOP/s, verdicts and warnings are computed from a record by `judge`, so that better
statistics can judge old evidence again.

Schema history
  1  2026-11  first
  2  2026-11  sequential samples, declared extension; on a GPU: telemetry, memory, kernels, other users
  3  2026-11  the calibration whose floors apply, or why there is none; whether contenders shared a process; which run
              is repeated; how contenders were tuned; the same calls by two timers
  4  2026-11  the time that the gate took
  5  2026-11  how the work of a case was spread over its experts
  6  2026-11  how often each kernel of a call ran and how long it took, and what is moved without a kernel
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from groundspeed.evidence.calibration import Calibration
from groundspeed.evidence.launched import Launched
from groundspeed.evidence.names import check_names
from groundspeed.evidence.protocol import MAX_NUMBER, Protocol, declared_seed
from groundspeed.evidence.samples import SEQUENTIAL, TIMED, Samples, Seconds, seconds_of
from groundspeed.evidence.usage import Usage

SCHEMA = 6

Status = Literal["PASSED", "INCORRECT", "ERROR", "OOM", "TIMEOUT", "ABSENT", "SKIPPED"]
StopReason = Literal["width", "last look", "budget", "no pair left"]
Scalar = str | int | float | bool

ERRORS = ("max_abs", "mean_abs", "max_rel", "rms_rel")
"""The errors against the oracle that an outcome reports and a tolerance may bound."""

MEMORY = ("host_peak_bytes", "host_extra_bytes", "device_peak_bytes", "device_extra_bytes")
"""The amounts of memory that an outcome reports."""


@dataclass(frozen=True)
class RunFacts:
    suite: str
    version: str
    commit: str | None
    started: str
    finished: str
    device: Literal["cpu", "cuda"]
    baseline: str
    baseline_origin: Literal["declared", "asked", "chosen afterwards"]
    """`chosen afterwards` marks a second look at a finished run; no bundle contains it."""
    judged: tuple[str, ...]
    with_files: tuple[str, ...]
    extended: bool | None
    """Whether the declared extension was taken; None while that is undecided, or if none was declared."""
    reproduces: str | None
    """The identity of the bundle whose run this one repeats; None if it repeats none."""


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
        check_names("case", self.name, *self.aliases)
        check_names("parameter", *self.params, *(v for v in self.params.values() if isinstance(v, str)))
        if min(self.flops, self.bytes, *self.counts.values()) < 0:
            raise ValueError("a number of flops, bytes or items is negative")
        if strangers := sorted(set(self.tolerance) - set(ERRORS)):
            raise ValueError(f"a tolerance bounds an unknown error measure {strangers[0]!r:.80}")


@dataclass(frozen=True)
class ContenderFacts:
    name: str
    description: str
    version: str
    tuning: str
    """What was chosen for the work at hand, by whom and when; empty if not stated."""
    source_sha256: str | None
    status: Literal["ABSENT", "SKIPPED"] | None
    """None for a contender that is measured."""
    reason: str | None

    def __post_init__(self) -> None:
        check_names("contender", self.name)
        if (self.status is None) != (self.reason is None):
            raise ValueError("a contender that is not measured needs a reason, and a measured one has none")


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
    """The block in which it dropped out; None if it never entered one or stayed to the end."""
    lost_worker: bool = False
    """Whether it took the worker with it; it is then not tried on this case again."""
    max_abs: float | None = None
    mean_abs: float | None = None
    max_rel: float | None = None
    rms_rel: float | None = None
    host_peak_bytes: int | None = None
    host_extra_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_extra_bytes: int | None = None
    prepare_s: float | None = None
    """From the first call to a correct result, including compilation."""
    warmup_stable: bool | None = None

    def __post_init__(self) -> None:
        if (self.status == "PASSED") != (self.reason is None):
            raise ValueError("every status but PASSED needs a reason, and PASSED has none")
        if self.status == "PASSED" and (self.block is not None or self.lost_worker):
            raise ValueError("a contender that passed cannot have dropped out")
        names = ("block", *MEMORY, *ERRORS)
        amounts = [getattr(self, name) for name in names]
        if any(amount is not None and amount < 0 for amount in amounts):
            raise ValueError("a block, a number of bytes or an error is negative")


@dataclass(frozen=True)
class ProcessFacts:
    process: int
    attempt: int
    started: float
    finished: float | None
    """`started` and `finished` are seconds on the machine's monotonic clock. None for an interrupted attempt, whose
    samples are kept but not judged."""
    workers: int
    """How many workers it used."""
    gpu: str | None
    """Which GPU of its model, as a hash of its UUID; None on a CPU."""
    gpu_users: tuple[str, ...]
    """Other programs that held the GPU when the process began."""
    gate_s: float | None
    """Seconds of its time that its workers spent on work that only checking needs; None if not recorded or if the
    process was interrupted."""

    def __post_init__(self) -> None:
        if self.gate_s is not None and (self.finished is None or not 0 <= self.gate_s <= self.finished - self.started):
            raise ValueError("the gate has an impossible time")
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
    launched: tuple[Launched, ...]
    usage: tuple[Usage, ...]
    """Of the cases with experts that were begun."""
    calibration: Calibration | None
    uncalibrated: str | None
    """Why there is no calibration; None if there is one."""

    def __post_init__(self) -> None:
        if (self.calibration is None) == (self.uncalibrated is None):
            raise ValueError("a run has either a calibration or a reason why it has none")


@dataclass(frozen=True)
class Record(Facts):
    """The facts and the samples."""

    samples: Samples = dataclasses.field(default_factory=dict)
    declared: RunFacts | None = None
    """How the run was declared, if `run` has another baseline for a second look. All draws follow from this."""

    @cached_property
    def case_index(self) -> dict[str, int]:
        return {case.name: i for i, case in enumerate(self.cases)}

    @cached_property
    def contender_index(self) -> dict[str, int]:
        return {contender.name: i for i, contender in enumerate(self.contenders)}

    @cached_property
    def finished_attempts(self) -> dict[int, int]:
        """Process → the attempt that finished."""
        return {p.process: p.attempt for p in self.processes if p.finished is not None}

    @property
    def complete(self) -> bool:
        decided = self.protocol.extension is None or self.run.extended is not None
        return decided and len(self.finished_attempts) == self.declared_processes

    @cached_property
    def draw_seed(self) -> int:
        """The seed of all draws of this run."""
        cases, contenders = [case.name for case in self.cases], [contender.name for contender in self.measured]
        run, floors = self.declared or self.run, (self.calibration.identity,) if self.calibration else ()
        return declared_seed(self.protocol, cases, contenders, (run.device, run.baseline, *run.judged, *floors))

    @property
    def declared_processes(self) -> int:
        """How many processes the run has so far, including its extension if that was taken."""
        extension = self.protocol.extension
        return extension if extension and self.run.extended else self.protocol.processes

    @property
    def measured(self) -> list[ContenderFacts]:
        return [c for c in self.contenders if c.status is None]

    @cached_property
    def outcomes_of_case(self) -> dict[tuple[int, int, str], list[Outcome]]:
        """(process, attempt, case) → the outcomes of its contenders."""
        result: dict[tuple[int, int, str], list[Outcome]] = {}
        for o in self.outcomes:
            result.setdefault((o.process, o.attempt, o.case), []).append(o)
        return result

    @cached_property
    def outcomes_of_contender(self) -> dict[tuple[str, str], list[Outcome]]:
        """(case, contender) → its outcomes in all attempts."""
        result: dict[tuple[str, str], list[Outcome]] = {}
        for o in self.outcomes:
            result.setdefault((o.case, o.contender), []).append(o)
        return result

    @cached_property
    def seconds(self) -> Seconds:
        """Seconds per call in the blocks of finished attempts."""
        return self._seconds(TIMED)

    @cached_property
    def sequential_seconds(self) -> Seconds:
        """Seconds per call in the rows after the blocks; the number in the row takes the place of the block."""
        return self._seconds(SEQUENTIAL)

    @cached_property
    def throttle(self) -> dict[tuple[int, str], dict[int, int]]:
        """(process, case) → block → throttle reasons of its samples as bits, in finished attempts; blocks without any
        are left out."""
        columns, names = self.samples, [case.name for case in self.cases]
        keep = (columns["phase"] == TIMED) & (columns["throttle"] > 0)
        result: dict[tuple[int, str], dict[int, int]] = {}
        keys = (columns[key][keep].tolist() for key in ("process", "attempt", "case", "block", "throttle"))
        for process, attempt, case, block, bits in zip(*keys, strict=True):
            if self.finished_attempts.get(process) == attempt:
                blocks = result.setdefault((process, names[case]), {})
                blocks[block] = blocks.get(block, 0) | bits
        return result

    def _seconds(self, phase: int) -> Seconds:
        cases, contenders = [case.name for case in self.cases], [contender.name for contender in self.contenders]
        return seconds_of(self.samples, phase, self.finished_attempts, cases, contenders)
