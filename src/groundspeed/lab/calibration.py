"""The calibration of this machine: measured once, kept outside any project, and looked up by every run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import store
from groundspeed.evidence.bundle import Bundle
from groundspeed.evidence.calibration import LEAST_PROCESSES, Calibration
from groundspeed.evidence.protocol import Protocol
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import installed_of
from groundspeed.judge.calibration import calibration_of
from groundspeed.judge.warnings import calibrate_command
from groundspeed.lab.check import verify

SUITE = "calibration"
NONE = "none"
MOST_DAYS = 30
"""The age up to which a calibration holds. Drivers, dust and other programs change a machine."""
ALONE = "a run of one process has no verdicts and needs no floors"
TRIED = 8
"""How many of the newest calibrations are tried."""


def refuse_one_process(protocol: Protocol) -> None:
    if protocol.processes < LEAST_PROCESSES:
        raise BadInput(
            f"--processes {protocol.processes}: a calibration measures the noise between processes; give 2 or more"
        )


def look_up(
    name: str | None, device: str, protocol: Protocol, environment: Mapping[str, Any]
) -> tuple[Calibration | None, str | None]:
    """Return the calibration that a run uses, or why there is none. Raise BadInput if a calibration was named and does
    not fit."""
    if name == NONE:
        return None, "calibrations were turned off for this run"
    if protocol.processes < LEAST_PROCESSES:
        if name is not None:
            raise BadInput(f"--calibration {name}: {ALONE}; leave it out, or use --processes 2 or more")
        return None, ALONE
    if name is not None:
        found, calibration = _read(store.find(name, store.calibrations()))
        if why := why_not(found.record, device, protocol, environment):
            command = calibrate_command(protocol, device, environment)
            raise BadInput(f"--calibration {name}: {why}; make one with: {command}")
        return calibration, None
    reasons = []
    for path in store.finished(store.calibrations())[: -TRIED - 1 : -1]:
        try:
            found, calibration = _read(path)
        except GroundspeedError as error:
            reasons.append(f"the newest calibration cannot be read ({error!s:.200})")
            continue
        why = why_not(found.record, device, protocol, environment)
        if why is None:
            return calibration, None
        reasons.append(f"the newest calibration does not fit: {why}")
    return None, reasons[0] if reasons else "this machine was never calibrated"


def kept(most: int) -> list[tuple[Bundle, Calibration]]:
    """Return the newest calibrations that can be read, at most this many, the newest first. Not all of them need fit
    the next run."""
    found: list[tuple[Bundle, Calibration]] = []
    for path in reversed(store.finished(store.calibrations())):
        if len(found) == most:
            break
        with suppress(GroundspeedError):
            found.append(_read(path))
    return found


def _read(path: Path) -> tuple[Bundle, Calibration]:
    found, replay = verify(path)
    if found.record.run.suite != SUITE:
        raise BadInput(f"{path} is not a calibration but a run of {found.record.run.suite}")
    return found, calibration_of(replay.judgement, found.identity)


def why_not(record: Record, device: str, protocol: Protocol, environment: Mapping[str, Any]) -> str | None:
    """Return why this calibration does not hold for a run of this protocol, here and now, or None if it does."""
    if not record.complete:
        return "it was interrupted"
    if (record.run.device, *_machine(record.environment, device)) != (device, *_machine(environment, device)):
        return "it is from another machine"
    mine, wanted = ((p.processes, p.looks, p.half_width) for p in (record.protocol, protocol))
    if mine != wanted:
        return f"it is for preset {record.protocol.preset} with {record.protocol.processes} processes"
    if record.protocol.name != protocol.name:
        return f"it was measured by protocol {record.protocol.name}, and this run uses {protocol.name}"
    if record.protocol.isolated != protocol.isolated:
        return f"it was measured {'with' if record.protocol.isolated else 'without'} --isolate"
    if device == "cpu" and record.protocol.threads != protocol.threads:
        return f"it was measured with {record.protocol.threads} threads"
    for what, then, now in _changes(record.environment, environment):
        if then != now:
            return f"{what} was {then!s:.60} then and is {now!s:.60} now"
    age = datetime.now(UTC) - _date(record.run.finished)
    if not timedelta(0) <= age + timedelta(days=1) <= timedelta(days=MOST_DAYS + 1):
        return f"it is from {record.run.finished[:10]}, and a calibration is valid for {MOST_DAYS} days"
    return None


def _machine(environment: Mapping[str, Any], device: str) -> tuple[Any, ...]:
    if device == "cuda":
        return _at(environment, "gpu", "name"), _at(environment, "gpu", "id")
    return _at(environment, "cpu", "name"), _at(environment, "cpu", "cores")


def _changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    facts = {
        "the driver": ("gpu", "driver"),
        "the power limit": ("gpu", "power_limit_w"),
        "the governor": ("cpu", "governor"),
        "torch": ("packages", "torch"),
    }
    found = [(what, _at(then, *path), _at(now, *path)) for what, path in facts.items()]
    own = {name: one.packages["torch"] for name, one in installed_of(now).items() if "torch" in one.packages}
    return found + [(f"torch of {name}", _at(then, "packages", "torch"), version) for name, version in own.items()]


def _at(environment: Mapping[str, Any], part: str, key: str) -> Any:
    found = environment.get(part)
    return found.get(key) if isinstance(found, Mapping) else None


def _date(text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return date if date.tzinfo else date.replace(tzinfo=UTC)
