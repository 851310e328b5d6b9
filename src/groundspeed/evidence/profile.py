"""The facts of a profile: what each contender was seen to do in a few calls of one case, and its hardware counters.

A profile only describes: it has no samples, no draws and no claims. Shares, gaps and rates are computed from it by
`judge`.

Schema history
  1  2026-11  first
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from groundspeed.evidence.names import check_names
from groundspeed.evidence.record import ERRORS, CaseFacts, ContenderFacts, Status

SCHEMA = 1
NAME = "profile/1"
"""The manifest's name for how a profile is made."""

EventKind = Literal["kernel", "copy", "set", "operator"]

MAX_EVENTS = 50_000
"""The most events of all contenders together."""
MAX_CALLS, MAX_COUNTED = 1_000, 12_800
LONGEST_NAME = 2_000
"""The most characters of the name of a kernel or other event; templates make names of kernels long."""
LONGEST_S = 1e5

_METRIC = re.compile(r"[a-z][A-Za-z0-9_.]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _check_time(what: str, *values: float) -> None:
    if any(not 0 <= value <= LONGEST_S for value in values):
        raise ValueError(f"{what} has an impossible time")


@dataclass(frozen=True)
class Seen:
    """How a contender ended in the profile."""

    contender: str
    status: Status
    reason: str | None
    errors: dict[str, float]
    """Errors of the gate, against the oracle."""
    left_out: int
    """Number of events beyond those that a profile keeps."""
    no_counters: str | None
    """Why it has no counters; None if it has some."""
    report_sha256: str | None
    """Hash of Nsight Compute's own report, which is not part of the bundle."""

    def __post_init__(self) -> None:
        if (self.status == "PASSED") != (self.reason is None):
            raise ValueError("every status but PASSED needs a reason, and PASSED has none")
        if strangers := sorted(set(self.errors) - set(ERRORS)):
            raise ValueError(f"unknown error measure {strangers[0]!r:.80}")
        if self.left_out < 0 or any(value < 0 for value in self.errors.values()):
            raise ValueError("an error or a number of events is negative")
        if self.report_sha256 is not None and not _SHA256.fullmatch(self.report_sha256):
            raise ValueError("a sha256 has 64 hexadecimal digits")


@dataclass(frozen=True)
class Call:
    """One call as the host saw it, until the device was done."""

    contender: str
    call: int
    seconds: float

    def __post_init__(self) -> None:
        _check_time("a call", self.seconds)


@dataclass(frozen=True)
class Event:
    """One thing that the profiler saw in a call."""

    contender: str
    call: int
    kind: EventKind
    name: str
    start_s: float
    """Seconds since the call began on the host."""
    seconds: float
    lane: int
    """The stream on a GPU or the thread on a CPU, counted from 0."""
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    registers: int | None
    """Per thread."""
    shared_bytes: int | None
    """Per block."""
    moved_bytes: int | None
    """Of a copy or a set."""

    def __post_init__(self) -> None:
        _check_time("an event", self.start_s, self.seconds)
        if not self.name or len(self.name) > LONGEST_NAME:
            raise ValueError(f"{self.name!r:.80} cannot be the name of an event")
        numbers = [
            self.lane,
            self.registers,
            self.shared_bytes,
            self.moved_bytes,
            *(self.grid or ()),
            *(self.block or ()),
        ]
        if any(number is not None and number < 0 for number in numbers):
            raise ValueError("a number of an event is negative")
        if any(size is not None and len(size) != 3 for size in (self.grid, self.block)):
            raise ValueError("a grid and a block have three sizes")


@dataclass(frozen=True)
class Counted:
    """One launch of a kernel under Nsight Compute."""

    contender: str
    kernel: str
    metrics: dict[str, float]
    """By Nsight Compute's own names, in base units; metrics that it did not report are missing."""

    def __post_init__(self) -> None:
        if not self.kernel or len(self.kernel) > LONGEST_NAME:
            raise ValueError(f"{self.kernel!r:.80} cannot be the name of a kernel")
        if len(self.metrics) > 400 or not all(map(_METRIC.fullmatch, self.metrics)):
            raise ValueError("these are not metrics of Nsight Compute")


@dataclass(frozen=True)
class Profile:
    """The content of a profile's `facts.json`."""

    schema: int
    suite: str
    version: str
    commit: str | None
    started: str
    finished: str
    device: Literal["cpu", "cuda"]
    with_files: tuple[str, ...]
    environment: dict[str, Any]
    case: CaseFacts
    contenders: tuple[ContenderFacts, ...]
    counters_by: str | None
    """Nsight Compute and its version; None if it was not used or is not installed."""
    seen: tuple[Seen, ...]
    calls: tuple[Call, ...]
    events: tuple[Event, ...]
    counted: tuple[Counted, ...]

    def __post_init__(self) -> None:
        check_names("suite", self.suite)
        names = [contender.name for contender in self.contenders]
        measured = [contender.name for contender in self.contenders if contender.status is None]
        if len(set(names)) != len(names) or len(names) > 128:
            raise ValueError("a contender appears twice, or there are too many")
        if [seen.contender for seen in self.seen] != measured:
            raise ValueError("the contenders that were profiled are not those that were declared")
        passed = {seen.contender for seen in self.seen if seen.status == "PASSED"}
        calls = {(call.contender, call.call) for call in self.calls}
        if len(calls) != len(self.calls) or not {name for name, _ in calls} == passed:
            raise ValueError(
                "every contender that passed needs calls, no other may have any, and each call appears once"
            )
        if any((event.contender, event.call) not in calls for event in self.events):
            raise ValueError("an event belongs to an unknown call")
        if any((event.kind == "operator") != (self.device == "cpu") for event in self.events):
            raise ValueError("operators are events of a CPU, kernels and copies of a GPU")
        counted = {one.contender for one in self.counted}
        if counted != {seen.contender for seen in self.seen if seen.no_counters is None} or not counted <= passed:
            raise ValueError("a contender without counters needs a reason, and one without a reason must have passed")
        if len(self.events) > MAX_EVENTS or len(self.calls) > MAX_CALLS or len(self.counted) > MAX_COUNTED:
            raise ValueError("there are more events, calls or counted launches than a profile may hold")
