"""The sentences and tables that all forms of a memory profile share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len

from groundspeed.evidence.memory import Allocation, MemoryUse, plain
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.plain_json import dump

WIDTH = 120
LONGEST = 60
"""The most characters of the place where something was allocated. Its end is kept, because the end of a path says more
than its beginning."""


def title(use: MemoryUse) -> str:
    return text.safe(f"memory of {use.device_name}: peak {text.amount_of_bytes(use.peak_bytes)}")


def lead(use: MemoryUse) -> Iterator[str]:
    before, after = text.amount_of_bytes(use.before_bytes), text.amount_of_bytes(use.after_bytes)
    there = f"{before} when it began, " if use.device == "cuda" else ""
    yield f"{there}{signed(use.peak_bytes - use.before_bytes)} at the peak, {after} left at the end"
    if use.reserved_bytes is not None:
        yield f"PyTorch held {text.amount_of_bytes(use.reserved_bytes)} of the GPU, in use or not"
    if use.resident_bytes is not None:
        yield f"the whole process held {text.amount_of_bytes(use.resident_bytes)} of the host"


def signed(size: int) -> str:
    return f"{'+' if size > 0 else '−' if size < 0 else ''}{text.amount_of_bytes(abs(size))}"


def phases(use: MemoryUse) -> Table:
    columns = [Column("phase"), *(Column(name, number=True) for name in ("times", "peak", "added", "kept"))]
    body = [
        [
            text.safe(phase.name),
            f"{phase.times:,}",
            text.amount_of_bytes(phase.peak_bytes),
            signed(phase.added_bytes),
            signed(phase.kept_bytes),
        ]
        for phase in use.phases
    ]
    note = (
        "Added is the peak above what was in use when the phase began; kept is how much more was in use when it ended."
    )
    return Table("Phases", columns, body, note)


def largest(use: MemoryUse) -> Table:
    """Return the largest allocations at the overall peak. The JSON also has those of phases that peak elsewhere."""
    names = ("shape", "dtype", "operator", "allocated at")
    columns = [Column("bytes", number=True), *(Column(name) for name in names)]
    return Table("Largest at the peak", columns, [_cells(one) for one in use.largest])


def _cells(one: Allocation) -> list[str]:
    shape = text.NOTHING if one.shape is None else "×".join(map(str, one.shape)) or "scalar"
    where = text.safe(one.where or text.NOTHING)
    where = where if len(where) <= LONGEST else f"…{where[1 - LONGEST :]}"
    return [text.amount_of_bytes(one.bytes), shape, *(text.safe(s or text.NOTHING) for s in (one.dtype, one.op)), where]


def to_text(use: MemoryUse) -> str:
    said = "; ".join(lead(use))
    lines = [title(use), *textwrap.wrap(f"{said[0].upper()}{said[1:]}.", WIDTH)]
    for table in (phases(use), largest(use)):
        if table.rows:
            lines += ["", *_aligned(table)]
    lines.append("")
    for note in use.notes:
        lines += textwrap.wrap(text.safe(note), WIDTH)
    return "\n".join(lines)


def _aligned(table: Table) -> Iterator[str]:
    rows = [[column.title for column in table.columns], *table.rows]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(table.columns))]
    for row in rows:
        parts = []
        for cell, width, column in zip(row, widths, table.columns, strict=True):
            room = " " * (width - cell_len(cell))
            parts.append(f"{room}{cell}" if column.number else f"{cell}{room}")
        yield "  ".join(parts).rstrip()


def to_json(use: MemoryUse) -> str:
    return dump(plain(use)) + "\n"
