"""A profile on the screen."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from groundspeed.judge.profile import Picture
from groundspeed.report import table, text
from groundspeed.report.layout import hanging
from groundspeed.report.page import Table
from groundspeed.report.profile import views

FEW = 5


def show(console: Console, picture: Picture, path: Path, name: str) -> None:
    """`name` is what a person calls the bundle on the command line."""
    console.print(Text(views.title(picture), style="bold"))
    console.print(Text(views.lead(picture), style="dim"))
    console.print()
    for sentence in views.which(picture):
        console.print(hanging(console, Text("picture  ", style="cyan"), Text(f"{sentence}.")))
    console.print()
    _print(console, views.summary(picture), note=True)
    for look in picture.looks:
        if look.tops:
            _print(console, views.tops(picture, look, FEW), heading=True, note=True)
        if look.readings:
            _print(console, views.counters(look), heading=True, note=look is picture.counted[-1])
    for word, sentence in views.notes(picture):
        console.print(hanging(console, Text(f"{word:<9}", style=table.STYLES.get(word, "dim")), Text(sentence)))
    console.print(Text(views.NO_CLAIM, style="dim"))
    console.print()
    quoted = shlex.quote(text.safe(name))
    for what, line in (
        ("evidence", text.safe(path)),
        ("check it", f"groundspeed verify {quoted}"),
        ("report", f"groundspeed report {quoted} --html profile.html"),
    ):
        console.print(Text(f"{what:<9} {line}", style="dim"), soft_wrap=True)


def _print(console: Console, found: Table, *, heading: bool = False, note: bool = False) -> None:
    if heading:
        console.print(Text(text.safe(found.title), style="bold"))
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in found.columns:
        grid.add_column(Text(column.title), justify="right" if column.number else "left", overflow="fold")
    for row in found.rows:
        grid.add_row(*(Text(text.safe(cell), style=_style(cell)) for cell in row))
    console.print(grid)
    if note and found.note:
        console.print(Text(found.note, style="dim"))
    console.print()


def _style(cell: str) -> str:
    return table.STYLES.get(cell, "")
