"""A user's request to `run`."""

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
    """The run whose cases are measured again, whatever else is asked for."""
    reproduces: str | None = None
    """The identity of that run's bundle."""
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    """The revision of each contender, if revisions are compared."""
    installed: Mapping[str, Installed] = field(default_factory=dict)
    """The dependencies that each of these contenders has, if the revisions ask for different ones."""
    out: Path = field(default=store.RUNS)


def repetition(record: Record, identity: str, device: str | None, calibration: str | None, out: Path) -> Request:
    """Return a request for the same run again: the same cases, contenders, baseline, family and protocol, with new
    random draws."""
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
    """Raise BadInput if a file of the run's contenders is missing. The message does not mention --with: a user who
    resumes or repeats a run did not give it."""
    for file in record.run.with_files:
        if not Path(file).is_file():
            raise BadInput(
                f"this run measured contenders of {file!r:.200}, and there is no such file here; go to the folder "
                "where the run began, or restore the file"
            )


def refuse_gone(record: Record) -> None:
    """Raise BadInput for a run whose contenders are gone: revisions were checked out only for it, or functions were
    passed to it."""
    if record.run.suite == FUNCTIONS:
        raise BadInput(
            "this run compared functions given to gs.compare, and they no longer exist; call gs.compare again"
        )
    if again := compared_again(record):
        raise BadInput(f"this run compared revisions; measure them again with: {again}")
