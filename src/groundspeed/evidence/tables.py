"""Facts as the JSON of their file. Long lists become tables, column names once and then one row per line, which halves
the size."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from groundspeed.errors import BadInput
from groundspeed.evidence.record import SCHEMA, Facts

TABLES = ("processes", "outcomes", "stops", "launched", "usage")


def tabulate(facts: dict[str, Any], tables: Collection[str] = TABLES) -> dict[str, Any]:
    return {key: _table(value) if key in tables else value for key, value in facts.items()}


def _table(found: list[dict[str, Any]]) -> dict[str, Any]:
    columns = list(found[0]) if found else []
    return {"columns": columns, "rows": [[entry[column] for column in columns] for entry in found]}


def expand(facts: Any, where: str) -> Any:
    """Return the facts with tables turned back into lists of objects. The first schema has no tables and those of a
    newer schema are unknown, so such facts stay as they are. A value that is neither a table nor a list stays as it
    is too: the reader of the record refuses it."""
    schema = facts.get("schema") if isinstance(facts, dict) else None
    if schema is None or schema == 1 or (isinstance(schema, int) and schema > SCHEMA):
        return facts
    return {key: entries(value, f"{where}.{key}") if key in TABLES else value for key, value in facts.items()}


def entries(table: Any, where: str) -> Any:
    if isinstance(table, list):
        raise BadInput(f"{where}: expected a table, found list")
    if not isinstance(table, dict) or table.keys() != {"columns", "rows"}:
        return table
    columns, rows = table["columns"], table["rows"]
    named = isinstance(columns, list) and all(isinstance(column, str) for column in columns)
    if not named or len(set(columns)) != len(columns) or not isinstance(rows, list):
        raise BadInput(f"{where}: a table needs rows, and columns with different names")
    if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
        raise BadInput(f"{where}: a row does not have one value for each column")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def to_facts(record: Facts) -> dict[str, Any]:
    """Return the JSON object of `facts.json`."""
    return {f.name: plain(getattr(record, f.name)) for f in dataclasses.fields(Facts)}


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
