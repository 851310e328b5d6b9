"""Upgrades records of older schemas to the present one: what they could not state becomes unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from groundspeed.errors import BadInput
from groundspeed.evidence.samples import COLUMNS, UNKNOWN, Samples

NEW_IN_2: dict[str, dict[str, Any]] = {
    "run": {"extended": None},
    "protocol": {"sequential": 0, "extension": None},
    "processes": {"gpu": None, "gpu_users": []},
    "outcomes": {"device_peak_bytes": None, "device_extra_bytes": None},
}


NEW_IN_3: dict[str, Any] = {"calibration": None, "uncalibrated": "the run is older than calibrations"}
PARTS_NEW_IN_3: dict[str, dict[str, Any]] = {
    "run": {"reproduces": None},
    "protocol": {"isolated": False},
    "contenders": {"tuning": ""},
    "launched": {"timings": []},
}
PARTS_NEW_IN_4: dict[str, dict[str, Any]] = {"processes": {"gate_s": None}}
NEW_IN_5: dict[str, Any] = {"usage": []}
PARTS_NEW_IN_6: dict[str, dict[str, Any]] = {"launched": {"moves": [], "times": [], "seconds": []}}


def upgrade(facts: Any, samples: Samples, where: str) -> tuple[Any, Samples]:
    """Return facts and samples in the form of the present schema. Facts that are not of an earlier schema come back
    unchanged, for the reader of the record to accept or refuse. BadInput if facts of one schema contain what only the
    next one has."""
    facts, samples = _from_1(facts, samples, where)
    for step in (_from_2, _from_3, _from_4, _from_5):
        facts = step(facts, where)
    return facts, samples


def _is_of(facts: Any, schema: int) -> bool:
    found = facts.get("schema") if isinstance(facts, dict) else None
    return type(found) is int and found == schema  # in Python True and 1.0 equal 1, too


def _from_5(facts: Any, where: str) -> Any:
    if not _is_of(facts, 5):
        return facts
    _refuse(_known_of_parts(facts, PARTS_NEW_IN_6), 5, where)
    return _with_parts({**facts, "schema": 6}, PARTS_NEW_IN_6)


def _from_4(facts: Any, where: str) -> Any:
    if not _is_of(facts, 4):
        return facts
    _refuse(_known(facts, NEW_IN_5), 4, where)
    return {**facts, "schema": 5, **NEW_IN_5}


def _from_3(facts: Any, where: str) -> Any:
    if not _is_of(facts, 3):
        return facts
    _refuse(_known_of_parts(facts, PARTS_NEW_IN_4), 3, where)
    return _with_parts({**facts, "schema": 4}, PARTS_NEW_IN_4)


def _from_2(facts: Any, where: str) -> Any:
    if not _is_of(facts, 2):
        return facts
    _refuse([*_known(facts, NEW_IN_3), *_known_of_parts(facts, PARTS_NEW_IN_3)], 2, where)
    return _with_parts({**facts, "schema": 3, **NEW_IN_3}, PARTS_NEW_IN_3)


def _from_1(facts: Any, samples: Samples, where: str) -> tuple[Any, Samples]:
    if not _is_of(facts, 1):
        return facts, samples
    telemetry = [f"samples of {name}" for name in UNKNOWN if name in samples]
    _refuse([*_known(facts, ("launched",)), *_known_of_parts(facts, NEW_IN_2), *telemetry], 1, where)
    if isinstance(facts.get("run"), dict) and facts["run"].get("device") == "cuda":
        raise BadInput(f"{where}: a record of schema 1 must be of a CPU, and this one is of a GPU")
    new = _with_parts({**facts, "schema": 2, "launched": []}, NEW_IN_2)
    rows = len(next(iter(samples.values()), ()))
    return new, {**samples, **{name: np.full(rows, value, COLUMNS[name]) for name, value in UNKNOWN.items()}}


def _refuse(newer: list[str], schema: int, where: str) -> None:
    if newer:
        raise BadInput(f"{where}: it says schema {schema}, but has {newer[0]}, which is new in schema {schema + 1}")


def _known(facts: dict[str, Any], new: Iterable[str]) -> list[str]:
    return [key for key in new if key in facts]


def _known_of_parts(facts: dict[str, Any], new: dict[str, dict[str, Any]]) -> list[str]:
    return [f"{part}.{key}" for part, of in new.items() for key in of if _knows(facts.get(part), key)]


def _with_parts(facts: dict[str, Any], new: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {**facts, **{part: _with(facts[part], defaults) for part, defaults in new.items() if part in facts}}


def _knows(part: Any, key: str) -> bool:
    if isinstance(part, list):
        return any(_knows(item, key) for item in part)
    return isinstance(part, dict) and key in part


def _with(part: Any, defaults: dict[str, Any]) -> Any:
    if isinstance(part, list):
        return [_with(item, defaults) for item in part]
    return {**part, **defaults} if isinstance(part, dict) else part
