"""What a user asks `run` for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from groundspeed.case import FUNCTIONS
from groundspeed.errors import BadInput
from groundspeed.evidence import store
from groundspeed.evidence.protocol import DEFAULT_PRESET
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import Installed, Revision
from groundspeed.report.commands import compared_again


@dataclass(frozen=True)
class Request:
    """What a user asks `run` for; the fields are the flags."""

    suite: str
    preset: str = DEFAULT_PRESET
    case: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    with_files: tuple[str, ...] = ()
    baseline: str | None = None
    judge: tuple[str, ...] = ()
    device: str | None = None
    timeout_s: float = 30.0
    processes: int | None = None
    warmup_s: float | None = None
    seed: int | None = None
    sequential: bool = False
    extend: bool = False
    isolated: bool = False
    calibration: str | None = None
    again: Record | None = None
    """The run whose cases these are, whatever else is asked for."""
    reproduces: str | None = None
    """The identity of its bundle."""
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    """By contender, where these are of revisions that are compared."""
    installed: Mapping[str, Installed] = field(default_factory=dict)
    """And what of their dependencies they have, where these differ."""
    out: Path = field(default=store.RUNS)


def repetition(record: Record, identity: str, device: str | None, calibration: str | None, out: Path) -> Request:
    """What asks for the same again: cases, contenders, baseline, family and protocol; draws are new."""
    refuse_gone(record)
    need_files(record)
    return Request(
        record.run.suite,
        record.protocol.preset,
        only=tuple(contender.name for contender in record.measured),
        with_files=record.run.with_files,
        baseline=record.run.baseline,
        judge=record.run.judged,
        device=device or record.run.device,
        timeout_s=record.protocol.timeout_s,
        processes=record.protocol.processes,
        warmup_s=record.protocol.warmup_s,
        sequential=record.protocol.sequential > 0,
        extend=record.protocol.extension is not None,
        isolated=record.protocol.isolated,
        calibration=calibration,
        again=record,
        reproduces=identity,
        out=out,
    )


def need_files(record: Record) -> None:
    """Who goes on or measures again gave no --with, and need not know of one."""
    for file in record.run.with_files:
        if not Path(file).is_file():
            raise BadInput(
                f"this run measured contenders of {file!r:.200}, and there is no such file from here; go to the folder "
                "where the run began, or put the file there"
            )


def refuse_gone(record: Record) -> None:
    """Revisions were checked out for the run, and functions were given to it."""
    if record.run.suite == FUNCTIONS:
        raise BadInput("this run compared functions that gs.compare was given, and they are gone; call it again")
    if again := compared_again(record):
        raise BadInput(f"this run compared revisions; measure them again with: {again}")
