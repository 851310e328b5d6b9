"""Records of older schemas, brought to the present one: what they could not say is said to be unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from groundspeed.evidence.samples import COLUMNS, UNKNOWN, Samples

NEW_IN_2: dict[str, dict[str, Any]] = {
    "run": {"extended": False},
    "protocol": {"sequential": 0, "extension": None},
    "processes": {"gpu_users": []},
    "outcomes": {"device_peak_bytes": None, "device_extra_bytes": None},
}


def upgrade(facts: Any, samples: Samples) -> tuple[Any, Samples]:
    """Facts and samples as the present schema has them; whatever is not of schema 1 comes back as it is."""
    if not isinstance(facts, dict) or not _is_first(facts.get("schema")):
        return facts, samples
    if "launched" in facts or set(samples) & set(UNKNOWN):
        return facts, samples
    new = {**facts, "schema": 2, "launched": []}
    for part, defaults in NEW_IN_2.items():
        new[part] = _with(new.get(part), defaults)
    rows = len(next(iter(samples.values()), ()))
    return new, {**samples, **{name: np.full(rows, value, COLUMNS[name]) for name, value in UNKNOWN.items()}}


def _is_first(schema: Any) -> bool:
    return isinstance(schema, int) and not isinstance(schema, bool) and schema == 1


def _with(part: Any, defaults: dict[str, Any]) -> Any:
    """What is there already is not overwritten: it would be a key that schema 1 does not know."""
    if isinstance(part, list):
        return [_with(item, defaults) for item in part]
    if not isinstance(part, dict) or set(part) & set(defaults):
        return part
    return {**part, **defaults}
