"""Cuts the tables of a large run to the rows that a reader of Markdown needs first; JSON and CSV have all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groundspeed.evidence.record import Record
from groundspeed.report.escape import code
from groundspeed.report.page import Table

WHOLE = 320
"""A run with up to this many results (forty cases by eight contenders) is shown in full."""
MOST = 240
"""The most rows of each table of a larger run. The report of 200 cases then stays under 300 kB."""
FAILED = ("INCORRECT", "INVALID", "ERROR", "TIMEOUT", "OOM")
AGAINST = ("SLOWER", "UNCLEAR")


def is_large(record: Record) -> bool:
    return len(record.cases) * len(record.measured) > WHOLE


def shortened(table: Table, record: Record, identity: str, form: str = "csv") -> Table:
    """Cut a table of a large run to MOST rows. The failures are kept first, then the judged contenders, SLOWER and
    UNCLEAR before the rest, then the baseline, then the others. The kept rows stay in order. `form` is the flag of
    `report` that writes all rows."""
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
        f"{MOST:,} of {len(table.rows):,} rows: failures, then the judged contenders (slower and unclear first), the "
        f"baseline and the others; {command} writes all of them."
    )
    rows = [row for i, row in enumerate(table.rows) if i in kept]
    return replace(table, rows=rows, note=f"{table.note}\n\n{said}".strip())
