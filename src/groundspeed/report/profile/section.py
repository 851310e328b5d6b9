"""The section of a run's report about the profiles beside the run (A10): how each was made, calls, counters, kernels.

The page of a profile has more, above all its timelines; the section says how to make that page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groundspeed.case import FUNCTIONS
from groundspeed.evidence.record import CaseFacts
from groundspeed.evidence.revision import revisions_of
from groundspeed.judge.beside import Beside
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.report import text
from groundspeed.report.commands import PLAIN, plain, work
from groundspeed.report.escape import code, escape, markdown_table
from groundspeed.report.page import Table
from groundspeed.report.profile import counted, views

TITLE = "Profile"
OF_WHAT_IS_GONE = "This run has no profile and cannot get one: a profile needs the code, and what was compared is gone."


@dataclass(frozen=True)
class Kernels:
    """The kernels of one contender."""

    contender: str
    tops: Table
    names: list[str]
    """The full names of kernels whose names are cut in `tops`."""
    counters: Table
    """The counters of each kernel, if the contender has several."""


@dataclass(frozen=True)
class Part:
    """One profile."""

    case: str
    lead: str
    which: list[str]
    """What was counted, what was seen and what is computed."""
    marks: list[tuple[str, str]]
    """A label and a sentence for each contender that is left out and for each difference from the run."""
    calls: Table
    counters: Table
    kernels: list[Kernels]
    command: str
    """The command that writes the whole profile."""


def parts(profiles: Sequence[Beside], form: str) -> list[Part]:
    """Return a part for each profile. `form` is html or md."""
    return [_part(one, form) for one in profiles]


def _part(one: Beside, form: str) -> Part:
    picture, short = one.picture, one.identity[:12]
    marks = [("left out", text.safe(f"{contender}: {why}")) for contender, why in one.left_out]
    marks += [("differs from the run", text.safe(said)) for said in one.apart]
    return Part(
        case=text.safe(picture.profile.case.name),
        lead=f"{views.lead(picture)}; evidence: profile {short}",
        which=list(views.which(picture)),
        marks=marks,
        calls=views.summary(picture),
        counters=counted.side_by_side(picture),
        kernels=[
            Kernels(look.contender, views.tops(picture, look), views.full_names(look), counted.kernels(look))
            for look in picture.looks
            if look.tops
        ],
        command=f"groundspeed report {short} --{form} profile.{form}",
    )


def markdown(judgement: Judgement, identity: str, profiles: Sequence[Beside]) -> Iterator[str]:
    if not profiles:
        how = how_to(judgement, identity, "md")
        yield (
            f"This run has no profile. {code(how[0])} makes one, {code(how[1])} shows it here."
            if how
            else OF_WHAT_IS_GONE
        )
        return
    yield views.NO_CLAIM
    for part in parts(profiles, "md"):
        yield from ("", f"### {escape(part.case)}", "", f"{escape(part.lead)}.", "")
        yield from (f"- {escape(sentence)}." for sentence in part.which)
        yield from (f"- **{word}**: {escape(sentence)}" for word, sentence in part.marks)
        yield from ("", *_table(part.calls))
        if part.counters.rows:
            yield from ("", *_table(part.counters))
        for one in part.kernels:
            yield from ("", f"By time, {escape(one.contender)}:", "", *_table(one.tops))
            yield from ("", f"In full: {', '.join(map(code, one.names))}.") if one.names else ()
            yield from ("", *_table(one.counters)) if one.counters.rows else ()
        yield from ("", f"The whole profile: {code(part.command)}.")


def _table(table: Table) -> Iterator[str]:
    left = [i for i, column in enumerate(table.columns) if not column.number]
    yield from markdown_table([escape(column.title) for column in table.columns], table.rows, left)
    yield from ("", table.note) if table.note else ()


def how_to(judgement: Judgement, identity: str, form: str) -> tuple[str, str] | None:
    """Return the command that profiles the longest work of the run, and the one that shows that profile in its report.
    None if what was compared is gone: revisions, or functions given to gs.compare."""
    run = judgement.record.run
    if revisions_of(judgement.record.environment) or run.suite == FUNCTIONS:
        return None
    measured = [contender.name for contender in judgement.record.measured]
    names = [name for name in dict.fromkeys((*run.judged, run.baseline)) if name in measured]
    said = [name for name in names if PLAIN.fullmatch(name) and "," not in name]
    arguments = [plain(run.suite, "SUITE"), *work(_longest(judgement, names))]
    arguments += ["--only", ",".join(said)] if said else []
    for file in run.with_files:
        arguments += ["--with", plain(file, "FILE")]
    arguments += ["--device", "cpu"] if run.device == "cpu" else []
    shown = f"groundspeed report {identity[:12]} PROFILE --{form} report.{form}"
    return f"groundspeed profile {' '.join(arguments)}", shown


def _longest(judgement: Judgement, names: Sequence[str]) -> CaseFacts:
    def seconds(case: CaseJudgement) -> float:
        return max((r.latency.median for r in case.results if r.latency and r.contender in names), default=0.0)

    return max(judgement.cases, key=seconds).facts
