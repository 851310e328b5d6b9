"""A grade on the screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groundspeed.judge.grading.grade import Grade, Graded
from groundspeed.report import text
from groundspeed.report.grade import (
    AIMS,
    GATES,
    ITEMS,
    UNDECIDED,
    aim_rows,
    answer,
    beyond,
    column,
    facts,
    failures,
    letters,
    measured,
    reason,
    seen,
    title,
    ungated,
    unknown,
    unknown_of_all,
    unmeasured,
    used_rows,
    utilisation,
)
from groundspeed.report.layout import hanging

STYLES = {"passed": "green", "failed": "bold red", "yes": "green", "no": "red"}
UNKNOWN = "yellow"


def show(console: Console, grade: Grade) -> None:
    console.print(Text(title(grade), style="bold"))
    console.print(Text(column(grade)))
    console.print()
    if aims := measured(grade):
        _table(console, AIMS, aim_rows(aims))
        console.print()
    for suite, wanted in unmeasured(grade).items():
        if suite in grade.beyond:
            continue
        line = text.safe(f"{suite}, not measured: {wanted}")
        console.print(hanging(console, Text("target   ", style=UNKNOWN), Text(line)))
    if grade.beyond:
        console.print(hanging(console, Text("missing  ", style=UNKNOWN), Text(text.safe(beyond(grade)))))
    if grade.ungated:
        console.print(hanging(console, Text("grade    ", style="bold"), Text(ungated(grade))))
    if grade.column and not grade.aims:
        console.print(Text("There are no targets.", style="dim"))
    for graded in grade.contenders:
        console.print()
        _contender(console, graded, grade.beyond, alone=len(grade.contenders) == 1)
    if len(grade.contenders) > 1:
        console.print()
        _unknown(console, unknown_of_all(grade.contenders, grade.beyond))
    if rows := list(used_rows(grade)):
        console.print()
    for word, line in utilisation(rows):
        console.print(hanging(console, Text("used     ", style=STYLES.get(word, UNKNOWN)), Text(text.safe(line))))
    console.print()
    console.print(Text(f"gates: {answer(grade)}{failures(grade)}", style=STYLES.get(grade.answer, UNKNOWN)))


def _contender(console: Console, graded: Graded, without: Collection[str], alone: bool) -> None:
    console.print(Text(text.safe(graded.contender), style="bold"))
    console.print()
    if rulings := [r for r in graded.rulings if r.suite not in without]:
        _table(console, GATES, ([r.gate, r.wanted, r.answer, reason(r)] for r in rulings))
        console.print()
    if told := list(letters(graded, without=without)):
        for said in told:
            console.print(hanging(console, Text("grade    ", style="bold"), Text(said)))
        console.print()
    if known := [item for item in graded.checklist if item.tick != UNDECIDED]:
        _table(console, ITEMS, ([i.part, i.item, i.tick, facts(i.facts)] for i in known))
        console.print()
    if alone:
        _unknown(console, unknown(item for item in graded.checklist if item.part not in without))
    if graded.findings:
        console.print()
    for finding in graded.findings:
        console.print(
            hanging(console, Text("symptom  ", style="cyan"), Text(f"{finding.rule.symptom} ({seen(finding)})"))
        )
        for word, lines in (("causes", finding.causes), ("try", finding.tries)):
            console.print(hanging(console, Text(f"{word:>9}", style="dim"), Text("; ".join(lines), style="dim")))


def _unknown(console: Console, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        console.print(hanging(console, Text("unknown  ", style=UNKNOWN), Text(sentence)))


def _table(console: Console, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("answer", "gate", "list"))
    for row in rows:
        table.add_row(*(Text(text.safe(cell), style=STYLES.get(cell, "")) for cell in row))
    console.print(table)
