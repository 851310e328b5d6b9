"""The report of a run as Markdown, readable from top to bottom without knowing anything else about the run."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import quote

from groundspeed.judge.beside import Beside
from groundspeed.judge.cost import cost_of
from groundspeed.judge.grading.traits import Fact
from groundspeed.judge.judgement import Judgement
from groundspeed.report import (
    attempts,
    commands,
    experts,
    fairness,
    lengths,
    overheads,
    reader,
    recommendations,
    rivals,
    rows,
    words,
)
from groundspeed.report.calibration import noise_lines, roof_lines
from groundspeed.report.environment import environment_lines
from groundspeed.report.escape import anchor, code, escape, link, markdown_table, paragraph
from groundspeed.report.graded import Section, graded
from groundspeed.report.interpretation import interpretation
from groundspeed.report.overview import overview
from groundspeed.report.page import Table
from groundspeed.report.pivot import pivot
from groundspeed.report.profile import section
from groundspeed.report.protocol import protocol_lines
from groundspeed.report.shortened import is_large, shortened

REPRODUCE = "Recheck every figure here, offline, from the raw samples; repeat the measurement; write this report again."
NO_PAIR = "There is no pair to compare."
RESULTS = "Results"
CALIBRATION = "Calibration"
SHOWN = (
    ("time in copies", overheads.TITLE),
    ("kernel by kernel", overheads.TITLE),
    ("eager", overheads.TITLE),
    ("speed against", "Speed-ups"),
    ("throttled blocks", "Speed-ups"),
    ("share of tolerance", "Correctness"),
    ("failed cases", "Correctness"),
    ("expert usage", experts.TITLE),
    ("kernels per call", "Kernels"),
    ("slowest process over fastest", "Every process"),
    ("between the timers", "Notes"),
    ("warm-up settled", "Notes"),
    ("did not settle", "Notes"),
    ("first call", "Fairness record"),
    ("comparisons of a contender with itself", CALIBRATION),
)
"""Pairs of text in a figure's name and the part of the report that shows the figure; other figures are in Results."""


class Picture(NamedTuple):
    """A chart in files beside the report."""

    says: str
    light: str
    dark: str


def to_markdown(
    judgement: Judgement,
    identity: str,
    price_per_hour: float | None = None,
    pictures: Sequence[Picture] = (),
    profiles: Sequence[Beside] = (),
    log: str = "",
) -> str:
    return "\n".join(_lines(judgement, identity, price_per_hour, pictures, profiles, log)) + "\n"


def _lines(
    judgement: Judgement,
    identity: str,
    price_per_hour: float | None,
    pictures: Sequence[Picture],
    profiles: Sequence[Beside],
    log: str,
) -> Iterator[str]:
    yield f"# {escape(judgement.record.run.suite)} on {escape(judgement.device_name)}"
    yield ""
    for supported, sentence in words.claim_lines(judgement):
        yield f"**{escape(sentence)}**" if supported else paragraph(sentence)
        yield ""
    for line in rivals.lines(judgement):
        yield from (paragraph(line), "")
    yield f"{paragraph(words.title(judgement))}. Evidence: bundle {code(identity)}."

    large = is_large(judgement.record)

    def cut(table: Table, empty: str = "", form: str = "csv") -> Iterator[str]:
        return _table(shortened(table, judgement.record, identity, form), empty)

    grade = graded(judgement, identity, partial(_shown, judgement, identity), profiles)
    for name, part in (
        ("At a glance", _glance),
        ("Interpretation", lambda judgement: _list(interpretation(judgement))),
        ("Recommendations", lambda judgement: _table(recommendations.table(judgement), recommendations.NOTHING)),
        ("Charts", lambda judgement: _pictures(pictures)),
        ("Side by side", pivot),
        (RESULTS, lambda judgement: cut(rows.results(judgement))),
        ("Speed-ups", lambda judgement: cut(rows.speed_ups(judgement), NO_PAIR)),
        ("Over all cases", lambda judgement: _table(rows.grids(judgement), NO_PAIR)),
        ("Grade", lambda judgement: _gates(grade)),
        ("Targets", lambda judgement: _targets(judgement, grade)),
        ("Checklist", lambda judgement: _checklist(grade)),
        ("Diagnosis", lambda judgement: _table(grade.diagnosis) if grade else ()),
        ("Notes", _notes),
        ("Correctness", lambda judgement: cut(rows.correctness(judgement))),
        ("Distribution", lambda judgement: cut(rows.distribution(judgement), "No contender has a time.")),
        ("Every process", lambda judgement: cut(rows.processes(judgement, brief=large), NO_PAIR, "json")),
        (experts.TITLE, lambda judgement: cut(experts.table(judgement, profiles), form="json")),
        (overheads.TITLE, lambda judgement: _overheads(judgement, cut)),
        (lengths.TITLE, _lengths),
        ("Fairness record", lambda judgement: _table(fairness.contenders(judgement))),
        ("Kernels", lambda judgement: _table(fairness.kernels(judgement))),
        (section.TITLE, lambda judgement: section.markdown(judgement, identity, profiles)),
        (attempts.TITLE, lambda judgement: _attempts(judgement, log)),
        ("Protocol", lambda judgement: _list(protocol_lines(judgement.record))),
        (CALIBRATION, _calibration),
        ("Environment", lambda judgement: environment_lines(judgement.record.environment)),
    ):
        if lines := list(part(judgement)):
            yield from ("", f"## {name}", "", *lines)
    told = words.cost(cost_of(judgement, price_per_hour))
    yield from ("", "## Cost", "", f"{told}.")
    yield from ("", "## Terms", "", *(f"- **{word}**: {escape(meaning)}" for word, meaning in reader.MEANINGS))
    yield from ("", "## Reproduce it", "", REPRODUCE, "")
    yield from ("```", *commands.commands(judgement.record, identity, "md", profiles), "```", "", reader.PROVES)


def _attempts(judgement: Judgement, log: str) -> Iterator[str]:
    yield from attempts.as_markdown(log) if log else [paragraph(reader.attempts(judgement.record))]


def _glance(judgement: Judgement) -> Iterator[str]:
    yield from overview([(judgement.record.run.suite, judgement)])


def _list(sentences: Iterable[str]) -> Iterator[str]:
    yield from (f"- {escape(sentence)}" for sentence in sentences)


def _table(table: Table, empty: str = "") -> Iterator[str]:
    """Yield the table and its note, or `empty` if it has no rows."""
    if not table.rows:
        yield from (empty,) if empty else ()
        return
    left = [i for i, column in enumerate(table.columns) if not column.number]
    yield from markdown_table([column.title for column in table.columns], table.rows, left)
    yield from ("", table.note) if table.note else ()


def _pictures(pictures: Sequence[Picture]) -> Iterator[str]:
    for picture in pictures:
        says, light, dark = html.escape(picture.says), quote(picture.light), quote(picture.dark)
        yield "<picture>"
        yield f'  <source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        yield f'  <img alt="{says}" src="{light}">'
        yield "</picture>"


def _shown(judgement: Judgement, identity: str, one: Fact) -> str:
    """Return the case of a fact, with a link to the part that shows it. No part shows a missing calibration, so a fact
    about one has no link."""
    if one.bundle != identity:
        return link(f"{one.case} in the profile", anchor(section.TITLE))
    part = next((part for said, part in SHOWN if said in one.figures[0].name), RESULTS)
    absent = part == CALIBRATION and judgement.record.calibration is None
    return one.case if absent else link(one.case, anchor(part))


def _gates(grade: Section | None) -> Iterator[str]:
    if grade:
        yield escape(grade.said)
        yield from ("", *_table(grade.gates)) if grade.gates.rows else ()
        yield from ("", f"{grade.used.title}:", "", *_table(grade.used)) if grade.used.rows else ()


def _targets(judgement: Judgement, grade: Section | None) -> Iterator[str]:
    if lines := list(_table(rows.targets(judgement))):
        yield from (escape(rows.targets_of(judgement)), "", *lines)
    if grade and grade.lacking:
        yield from ("", escape(grade.lacking)) if lines else (escape(grade.lacking),)


def _checklist(grade: Section | None) -> Iterator[str]:
    if grade and grade.ticks:
        yield from (
            f"{escape(grade.ticks)}.",
            "",
            *_table(grade.checklist),
            "",
            "Not determined:",
            "",
            *_list(grade.unknown),
        )


def _notes(judgement: Judgement) -> Iterator[str]:
    found = [
        f"- **{escape(note.word)}**: {(code if note.word == words.SEE_IT else escape)(note.sentence)}"
        for note in words.notes(judgement)
    ]
    yield from found or ["Nothing to note."]


def _overheads(judgement: Judgement, cut: Callable[..., Iterator[str]]) -> Iterator[str]:
    for i, part in enumerate(overheads.parts(judgement)):
        yield from ("",) if i else ()
        yield from (f"### {part.table.title}", "", *cut(part.table, paragraph(part.why), "json"))


def _lengths(judgement: Judgement) -> Iterator[str]:
    for i, part in enumerate(lengths.parts(judgement)):
        yield from ("",) if i else ()
        yield from (paragraph(part.said), "", *_table(part.table))


def _calibration(judgement: Judgement) -> Iterator[str]:
    """Yield the floors that the verdicts use, and measured roofs beside the datasheet's; nothing without a
    calibration."""
    if calibration := judgement.record.calibration:
        yield f"From bundle {code(calibration.identity[:12])}, {escape(calibration.finished)}."
        yield ""
        lines = (*roof_lines(calibration, judgement.peaks), *noise_lines(calibration, judgement.record.run.device))
        yield from (f"- {escape(line)}" for line in lines)
