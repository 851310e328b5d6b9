"""The journal: what happens while a run measures, one JSON line per event, on disk before the next block.

The bundle is the journal in its final form and nothing else, so a killed run can be finished later into the bundle
that it would have left. A torn last line (the machine went down while writing) is dropped; damage anywhere else is an
error.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.decode import parse_json
from groundspeed.evidence.record import SCHEMA, Record
from groundspeed.evidence.samples import COLUMNS, SEQUENTIAL, TIMED, UNKNOWN, WARMUP
from groundspeed.evidence.tables import to_facts
from groundspeed.evidence.upgrade import PARTS_NEW_IN_6

FILE = "journal.jsonl"
HEADER = ("run", "protocol", "environment", "cases", "contenders", "calibration", "uncalibrated")
"""What is declared before the first sample."""
SAMPLE_FIELDS = ("contender", "position", "start", "seconds", "launches", "checked")
"""Fields of a sample in a line; telemetry follows as a list, or null if there is none."""
PHASES = {"warmup": WARMUP, "block": TIMED, "sequence": SEQUENTIAL}


class Journal:
    """Appends events; each is on disk when `write` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / FILE
        try:
            self._file = path.open("ab")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _cut_torn_line(path)
        except BlockingIOError:
            self._file.close()
            raise GroundspeedError(f"another groundspeed is writing to {path}; wait until it has finished") from None
        except OSError as error:
            raise GroundspeedError(
                f"cannot write to {path}: {error.strerror}; choose another folder with --out"
            ) from None

    def write(self, kind: str, **event: Any) -> None:
        line = _line(kind=kind, **event)
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise GroundspeedError(
                f"cannot write to {self.folder / FILE}: {error.strerror}; what was measured before is kept there: "
                f"make room, then continue with --resume {self.folder}"
            ) from None

    def close(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # a failed write has been reported already, and every acknowledged event is on disk


def _line(**event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def read_events(folder: Path) -> list[dict[str, Any]]:
    path = folder / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    lines = content.split(b"\n")
    events = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is empty or torn
        event = parse_json(line, f"{path}, line {number}")
        if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
            raise BadInput(f"{path}, line {number}: not an event")
        events.append(event)
    if not events or events[0]["kind"] != "run":
        raise BadInput(f"{path}: nothing was measured yet; start the run again without --resume")
    return events


def to_record(events: Iterable[dict[str, Any]], where: str) -> Record:
    """Return the record that these events amount to. The same events always give the same record."""
    header, *rest = events
    try:
        return _collect(header, rest, where)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadInput(f"{where}: an event is damaged ({error!r:.80})") from None


def _collect(header: dict[str, Any], rest: list[dict[str, Any]], where: str) -> Record:
    facts = header["facts"]
    environment: dict[str, Any] = dict(facts["environment"])
    case_index = {case["name"]: i for i, case in enumerate(facts["cases"])}
    contender_index = {contender["name"]: i for i, contender in enumerate(facts["contenders"])}
    processes: dict[tuple[int, int], dict[str, Any]] = {}
    outcomes: dict[tuple[int, int, str, str], dict[str, Any]] = {}
    stops: list[dict[str, Any]] = []
    launched: list[dict[str, Any]] = []
    usage: list[dict[str, Any]] = []
    extended: bool | None = None
    rows: list[tuple[Any, ...]] = []
    finished = facts["run"]["started"]
    for event in rest:
        kind, body = event["kind"], {key: value for key, value in event.items() if key != "kind"}
        if kind == "process":
            processes[body["process"], body["attempt"]] = {**body, "finished": None, "workers": 0, "gate_s": None}
        elif kind == "worker":
            processes[body["process"], body["attempt"]]["workers"] += 1
            environment.setdefault("worker", body["environment"])
        elif kind == "outcome":
            outcomes[body["process"], body["attempt"], body["case"], body["contender"]] = body
        elif kind in PHASES:
            rows += _rows(body, PHASES[kind], case_index, contender_index)
        elif kind == "launched":
            launched.append({**PARTS_NEW_IN_6["launched"], **body})  # older journals lack these
        elif kind == "usage":
            usage.append(body)
        elif kind == "extended":
            extended = body["extended"]
        elif kind == "stop":
            stops.append(body)
        elif kind == "process end":
            ended = {"finished": body["finished"], "gate_s": body.get("gate_s")}  # older journals lack gate_s
            processes[body["process"], body["attempt"]] |= ended
            finished = body["date"]
        elif kind == "interrupted":
            finished = body["date"]
        else:
            raise ValueError(f"unknown event {kind!r}")
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    with np.errstate(over="ignore"):  # a value that is too large becomes infinite and is refused later
        samples = {
            name: np.asarray(column, np.dtype(dtype))
            for (name, dtype), column in zip(COLUMNS.items(), columns, strict=True)
        }
    whole = {
        **facts,
        "schema": SCHEMA,
        "run": {**facts["run"], "finished": finished, "extended": extended},
        "environment": environment,
        "processes": list(processes.values()),
        "outcomes": list(outcomes.values()),
        "stops": stops,
        "launched": launched,
        "usage": usage,
    }
    return from_facts(whole, samples, where)


def _rows(
    body: dict[str, Any], phase: int, case_index: dict[str, int], contender_index: dict[str, int]
) -> list[tuple[Any, ...]]:
    head = (body["process"], body["attempt"], body["worker"], case_index[body["case"]])
    return [
        (*head, contender_index[name], phase, body["block"], *figures, *_telemetry_columns(telemetry))
        for name, *figures, telemetry in body["samples"]
    ]


def _telemetry_columns(telemetry: list[float | None] | None) -> list[float]:
    values = [None] * len(UNKNOWN) if telemetry is None else telemetry
    pairs = zip(UNKNOWN.values(), values, strict=True)
    return [unknown if value is None else value for unknown, value in pairs]


def _telemetry_line(sample: dict[str, Any]) -> list[float | None] | None:
    values = [sample[name] for name in UNKNOWN]
    known = [None if value != value or value == -1 else value for value in values]  # NaN is not equal to itself
    return None if known == [None] * len(UNKNOWN) else known


def restore(folder: Path, record: Record) -> None:
    """Write the journal of an unfinished bundle, whole or not at all."""
    lines = b"".join(_line(**event) for event in from_record(record))
    scratch = folder / f"{FILE}.unfinished"
    with scratch.open("wb") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, folder / FILE)


def from_record(record: Record) -> list[dict[str, Any]]:
    """Return the events of an unfinished bundle, so that its run can be resumed."""
    facts = to_facts(record)
    header = {k: facts[k] for k in HEADER}
    header["run"] = {k: v for k, v in facts["run"].items() if k not in ("finished", "extended")}
    header["environment"] = {k: v for k, v in facts["environment"].items() if k != "worker"}
    events: list[dict[str, Any]] = [{"kind": "run", "facts": header}]
    events += [{"kind": "launched", **one} for one in facts["launched"]]
    events += [{"kind": "usage", **one} for one in facts["usage"]]
    if record.run.extended is not None:
        events.append({"kind": "extended", "extended": record.run.extended})
    worker_environment, date = facts["environment"].get("worker", {}), facts["run"]["finished"]
    for process in facts["processes"]:
        key = {"process": process["process"], "attempt": process["attempt"]}
        begun = {name: process[name] for name in ("started", "gpu", "gpu_users")}
        events.append({"kind": "process", **key, **begun})
        events += [{"kind": "worker", **key, "environment": worker_environment}] * process["workers"]
        events += _sample_events(record, **key)
        events += [{"kind": "outcome", **o} for o in facts["outcomes"] if key.items() <= o.items()]
        events += [{"kind": "stop", **s} for s in facts["stops"] if key.items() <= s.items()]
        if process["finished"] is not None:
            ended = {name: process[name] for name in ("finished", "gate_s")}
            events.append({"kind": "process end", **key, **ended, "date": date})
    if not record.complete:
        events.append({"kind": "interrupted", "date": date})
    return events


def _sample_events(record: Record, process: int, attempt: int) -> list[dict[str, Any]]:
    columns = record.samples
    keep = (columns["process"] == process) & (columns["attempt"] == attempt)
    cases, contenders = [c.name for c in record.cases], [c.name for c in record.contenders]
    events: list[dict[str, Any]] = []
    for row in zip(*(columns[name][keep].tolist() for name in COLUMNS), strict=True):
        sample = dict(zip(COLUMNS, row, strict=True))
        head = {
            "kind": next(kind for kind, phase in PHASES.items() if phase == sample["phase"]),
            **{name: sample[name] for name in ("process", "attempt", "worker", "block")},
            "case": cases[sample["case"]],
        }
        figures = [sample[name] for name in SAMPLE_FIELDS[1:]]
        values = [contenders[sample["contender"]], *figures, _telemetry_line(sample)]
        if events and head.items() <= events[-1].items():
            events[-1]["samples"].append(values)
        else:
            events.append({**head, "samples": [values]})
    return events
