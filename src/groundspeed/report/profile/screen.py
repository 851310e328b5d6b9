"""A profile on the screen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table as Grid
from rich.text import Text

from groundspeed.judge.profile import Picture
from groundspeed.report import page, table, text
from groundspeed.report.layout import hanging
from groundspeed.report.page import Table
from groundspeed.report.profile import counted, views

FEW = 5
NAME_WIDTH, BETWEEN = 24, 3


def show(console: Console, picture: Picture, path: Path, name: str) -> None:
    """Print a profile. `name` is the name of the bundle on the command line."""
    console.print(Text(views.title(picture), style="bold"))
    console.print(Text(views.lead(picture), style="dim"))
    console.print()
    for sentence in views.which(picture):
        console.print(hanging(console, Text("picture  ", style="cyan"), Text(f"{sentence}.")))
    console.print()
    _print(console, views.summary(picture), note=True)
    if picture.counted:
        _print(console, counted.side_by_side(picture), heading=True, note=True)
    for look in picture.looks:
        if look.tops:
            _print(console, views.tops(picture, look, FEW), heading=True, note=True)
        if (every := counted.kernels(look)).rows:
            _print(console, every, heading=True, note=True)
    for word, sentence in views.notes(picture):
        console.print(hanging(console, Text(f"{word:<9}", style=table.STYLES.get(word, "dim")), Text(sentence)))
    console.print(Text(views.NO_CLAIM, style="dim"))
    console.print()
    quoted = shlex.quote(text.safe(name))
    for what, line in (
        ("evidence", text.safe(path)),
        ("check it", f"groundspeed verify {quoted}"),
        ("report", page.advice(quoted, "profile")),
    ):
        console.print(Text(f"{what:<9} {line}", style="dim"), soft_wrap=True)


def _print(console: Console, found: Table, *, heading: bool = False, note: bool = False) -> None:
    if heading:
        console.print(Text(text.safe(found.title), style="bold"))
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in found.columns:
        side: JustifyMethod = "right" if column.number else "left"
        grid.add_column(Text(text.safe(column.title)), justify=side, overflow="fold", no_wrap=column.number)
    for row in found.rows:
        grid.add_row(*(Text(text.safe(cell), style=_style(cell)) for cell in row))
    if _least_width(found) <= console.width:
        console.print(grid)
    else:
        for row in found.rows:
            _print_line(console, found, row)
    if note and found.note:
        console.print(Text(found.note, style="dim"))
    console.print()


def _least_width(found: Table) -> int:
    """Return the width that a table needs with unbroken numbers, and with names wrapped but still readable."""
    widths = []
    for i, column in enumerate(found.columns):
        widest = max(len(cell) for cell in (column.title, *(row[i] for row in found.rows)))
        widths.append(widest if column.number else min(widest, NAME_WIDTH))
    return sum(widths) + BETWEEN * (len(widths) - 1)


def _print_line(console: Console, found: Table, row: Sequence[str]) -> None:
    """Print a row as lines, for a terminal that is too narrow for the table. Nothing is left out."""
    told = [f"{column.title} {cell}" for column, cell in zip(found.columns[1:], row[1:], strict=True)]
    console.print(Text(text.safe(row[0]), style="bold"))
    console.print(hanging(console, Text(" "), Text(text.safe("; ".join(told)))))


def _style(cell: str) -> str:
    return table.STYLES.get(cell, "")
