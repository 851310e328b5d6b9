"""What `groundspeed grade` says about one run, as tables of its report: letter, gates, checklist and diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groundspeed.judge.beside import Beside
from groundspeed.judge.grading.checklist import Ticked
from groundspeed.judge.grading.grade import Graded, grade
from groundspeed.judge.grading.profiled import Profiled
from groundspeed.judge.grading.specification import Specification, packaged
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import Judgement
from groundspeed.report import text
from groundspeed.report.grade import (
    FINDINGS,
    ITEMS,
    UNDECIDED,
    USED,
    Where,
    alone,
    column,
    facts,
    finding_row,
    reason,
    ungated,
    unknown,
    unmeasured,
    used_rows,
)
from groundspeed.report.page import Column, Table

CONTENDER, ANSWER = Column("contender"), Column("answer", word=True)


@dataclass(frozen=True)
class Section:
    """A grade by the specification that comes with groundspeed, limited to the run's own suite."""

    said: str
    gates: Table
    """Includes the letters."""
    checklist: Table
    """The items that a measured fact decides."""
    ticks: str
    """For each contender, the numbers of items that are ticked, crossed and open."""
    unknown: list[str]
    """The items that nothing decides, and why."""
    diagnosis: Table
    lacking: str
    """The targets for which the run has no case, each with its label."""
    used: Table
    """How much of the device the specification wants to be used; without rows if no profile shows it."""
    determined: bool
    """Whether there is a letter, a failed gate or a known use of the device. Errors within their tolerance are not
    enough: the page shows them elsewhere."""


def graded(
    judgement: Judgement, identity: str, where: Where = alone, profiles: Sequence[Beside] = ()
) -> Section | None:
    """Return the grade of a run, or None if the specification asks for nothing in its suite."""
    run, specification = judgement.record.run, packaged()
    if run.suite not in {*(g.suite for g in specification.gates), *(t.suite for t in specification.targets)}:
        return None
    measured = {contender.name for contender in judgement.record.measured}
    if not measured & set(run.judged):
        return _section("No grade: no contender that was measured is judged.", (), specification, where)
    looks = [Profiled(one.identity, one.picture) for one in profiles]
    found = grade([Evidence(identity, judgement)], specification, suites=[run.suite], profiles=looks)
    rule = "The letter is that of the worst case; a gate must be met on every case."
    said = f"{ungated(found) if found.ungated else rule} {column(found)}"
    lacking = "; ".join(unmeasured(found).values())
    about = f"Targets without a case in this run: {lacking}." if lacking else ""
    used = list(used_rows(found, where)) if profiles else []
    return _section(said, found.contenders, specification, where, about, used)


def _section(
    said: str,
    of: Sequence[Graded],
    specification: Specification,
    where: Where,
    lacking: str = "",
    used: Sequence[Sequence[str]] = (),
) -> Section:
    found = [[one.contender, *finding_row(finding, where)] for one in of for finding in one.findings]
    return Section(
        said=said,
        gates=_table(
            "Gates",
            ("gate", "answer", "why"),
            [row for one in of for row in _gates(one, where)],
            _asked(of, specification),
        ),
        checklist=_table("Checklist", ITEMS, [row for one in of for row in _ticks(one, where)]),
        ticks="; ".join(map(_counts, of)),
        unknown=list(_unknown(of)),
        diagnosis=_table("Diagnosis", FINDINGS, found),
        lacking=lacking,
        used=_table("Utilisation of the device", USED[1:], used),
        determined=any(
            any(letter.letters for letter in one.letters.values())
            or any(ruling.answer == "failed" for ruling in one.rulings)
            or any(part.answer != UNDECIDED for part in one.used)
            for one in of
        ),
    )


def _table(title: str, headings: Sequence[str], body: Sequence[Sequence[str]], note: str = "") -> Table:
    return Table(title, [CONTENDER, *(ANSWER if h == ANSWER.title else Column(h) for h in headings)], body, note)


def _gates(one: Graded, where: Where) -> Iterator[list[str]]:
    for letter in one.letters.values():
        yield [one.contender, "letter", str(letter), letter.why]
    for ruling in one.rulings:
        yield [one.contender, ruling.gate, ruling.answer, reason(ruling, where)]


def _asked(of: Sequence[Graded], specification: Specification) -> str:
    """Return what the gates ask for. It is the same for all contenders, so it is said once."""
    letters = ", ".join(f"{name} over {least:.0%}" for name, least in specification.letters)
    wanted = {"letter": f"{letters} of the speed of the reference"} if any(one.letters for one in of) else {}
    wanted |= {ruling.gate: ruling.wanted for one in of for ruling in one.rulings}
    return f"Required: {'; '.join(f'{what}: {asked}' for what, asked in wanted.items())}." if wanted else ""


def _counts(one: Graded) -> str:
    ticked = Counter[str](item.tick for item in one.checklist)
    said = ", ".join(f"{ticked[tick]} {tick}" for tick in ("yes", "no", UNDECIDED) if ticked[tick])
    return text.safe(f"{one.contender} {said}")


def _ticks(one: Graded, where: Where) -> Iterator[list[str]]:
    for item in one.checklist:
        if item.tick != UNDECIDED:
            yield [one.contender, item.part, item.item, item.tick, facts(item.facts, where)]


def _unknown(contenders: Sequence[Graded]) -> Iterator[str]:
    """Yield each sentence once for all contenders that it is true of."""
    open_of: dict[Ticked, list[str]] = {}
    for one in contenders:
        for item in one.checklist:
            if item.tick == UNDECIDED:
                open_of.setdefault(item, []).append(one.contender)
    for names in dict.fromkeys(map(tuple, open_of.values())):
        whom = f" ({', '.join(names)})" if len(names) < len(contenders) else ""
        for sentence in unknown((item for item, of in open_of.items() if tuple(of) == names), alone):
            yield text.safe(f"{sentence}{whom}")
