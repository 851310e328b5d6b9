"""A grade as Markdown: every item with a link to the bundle that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from groundspeed.judge.grading.checklist import Ticked
from groundspeed.judge.grading.grade import Aim, Grade, Graded
from groundspeed.judge.grading.traits import Fact
from groundspeed.report.escape import as_markdown, code, definition, escape, joined, markdown_table, reference
from groundspeed.report.grade import (
    AIMS,
    FINDINGS,
    GATES,
    ITEMS,
    USED,
    Where,
    aim_rows,
    answer,
    column,
    fact,
    finding_row,
    letters,
    named,
    not_held,
    reason,
    title,
    ungated,
    used_rows,
)

Ways = Mapping[str, str]
"""Maps the identity of a bundle to the path from the page to its folder; empty if the page is not in a file."""
CASE = AIMS.index("case")


def to_markdown(grade: Grade, ways: Ways | None = None) -> str:
    return "\n".join(_lines(grade, ways or {})) + "\n"


def _lines(grade: Grade, ways: Ways) -> Iterator[str]:
    yield f"# Grade: {escape(title(grade))}"
    yield from ("", f"Gates: **{answer(grade)}**. {escape(column(grade))}")
    yield from ("", escape(ungated(grade))) if grade.ungated else ()
    yield from ("", escape(f"{said[0].upper()}{said[1:]}.")) if (said := not_held(grade)) else ()
    if rows := [row for aim in grade.aims for row in _aim_rows(aim, ways)]:
        yield from ("", "## Targets", "", *markdown_table(AIMS, rows, range(len(AIMS))))
    where = partial(_where, ways)
    for graded in grade.contenders:
        yield from ("", f"## {escape(graded.contender)}", "", *_contender(graded, where, ways))
    if used := list(used_rows(grade, where)):
        yield from ("", "## Utilisation", "", *markdown_table(USED, used, range(len(USED))))
    yield from ("", "## Evidence", "")
    for what, identities in (("bundle", grade.bundles), ("profile", grade.profiles)):
        for one in identities:
            yield f"- {what} {reference(one[:12]) if one in ways else one[:12]}: {code(one)}"
    yield from ("", *(definition(one[:12], way) for one, way in ways.items())) if ways else ()


def _where(ways: Ways, one: Fact) -> str:
    return joined(" in ", [one.case, reference(one.bundle[:12])]) if one.bundle in ways else named(one)


def _contender(graded: Graded, where: Where, ways: Ways) -> Iterator[str]:
    if rulings := [[r.gate, r.wanted, r.answer, reason(r, where)] for r in graded.rulings]:
        yield from (*markdown_table(GATES, rulings, range(len(GATES))), "")
    by = (lambda identity: reference(identity[:12])) if ways else None
    if told := [f"- {as_markdown(said)}" for said in letters(graded, by)]:
        yield from (*told, "")
    items = [[i.part, i.item, i.tick, _evidence(i, where)] for i in graded.checklist]
    yield from ("### Checklist", "", *markdown_table(ITEMS, items, range(len(ITEMS))))
    if graded.findings:
        found = [finding_row(finding, where) for finding in graded.findings]
        yield from ("", "### Diagnosis", "", *markdown_table(FINDINGS, found, range(len(FINDINGS))))


def _evidence(item: Ticked, where: Where) -> str:
    return joined("; ", filter(None, [item.why, *(fact(one, where) for one in item.facts)]))


def _aim_rows(aim: Aim, ways: Ways) -> Iterator[list[str]]:
    """Yield the rows of a target, with a link from its case to the bundle that measured it."""
    for row in aim_rows([aim]):
        if aim.bundle and aim.bundle in ways:
            row[CASE] = joined(" in ", [row[CASE], reference(aim.bundle[:12])])
        yield row
