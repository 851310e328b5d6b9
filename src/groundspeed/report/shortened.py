"""Tables of a large run, cut to what a reader of Markdown needs first; the data for machines has all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groundspeed.evidence.record import Record
from groundspeed.report.escape import code
from groundspeed.report.page import Table

WHOLE = 320
"""A run of so many results, forty cases by eight contenders, is told in full."""
MOST = 240
"""Rows of each table of a larger one: with 200 cases a report stays under 300 kB."""
FAILED = ("INCORRECT", "INVALID", "ERROR", "TIMEOUT", "OOM")
AGAINST = ("SLOWER", "UNCLEAR")


def is_large(record: Record) -> bool:
    return len(record.cases) * len(record.measured) > WHOLE


def shortened(table: Table, record: Record, identity: str, form: str = "csv") -> Table:
    """What failed stays, then who is judged, with what speaks against them first, then the baseline, then the others.
    `form` is the flag by which all of it is written."""
    if not is_large(record) or len(table.rows) <= MOST:
        return table
    who = next(i for i, column in enumerate(table.columns) if column.title == "contender")
    words = [i for i, column in enumerate(table.columns) if column.word]

    def rank(row: Sequence[str]) -> tuple[bool, int, bool]:
        said = {row[i] for i in words}
        judged = record.run.judged
        place = 0 if row[who] in judged else 1 if row[who] == record.run.baseline else 2
        return said.isdisjoint(FAILED), place, said.isdisjoint(AGAINST)

    kept = set(sorted(range(len(table.rows)), key=lambda i: rank(table.rows[i]))[:MOST])
    command = code(f"groundspeed report {identity[:12]} --{form} FILE")
    said = (
        f"{MOST:,} of {len(table.rows):,} rows: what failed, then who is judged, slower and unclear first, then the "
        f"baseline, then others; {command} writes all of them."
    )
    rows = [row for i, row in enumerate(table.rows) if i in kept]
    return replace(table, rows=rows, note=f"{table.note}\n\n{said}".strip())
