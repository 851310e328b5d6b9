"""Whether the verdicts of a run meet the requirement of `run --require`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from groundspeed.judge.judgement import CaseJudgement, Judgement

Requirement = Literal["faster", "not-slower"]
REQUIREMENTS: tuple[Requirement, ...] = get_args(Requirement)

MET_BY = {"faster": {"FASTER"}, "not-slower": {"FASTER", "SAME"}}


@dataclass(frozen=True)
class Answer:
    word: Literal["met", "not met", "not decided"]
    why: str = ""
    """The first comparison that does not meet it or leaves it undecided, and how many more there are."""


MET = Answer("met")


def requirement(judgement: Judgement, wanted: Requirement) -> Answer:
    """Return the answer for a whole run: met if every judged contender meets it on every case, and not met if one does
    not, whatever else is unclear."""
    judged = judgement.record.run.judged
    answers = [_answer(case, contender, wanted) for case in judgement.cases for contender in judged]
    if not answers:
        return Answer("not decided", "nothing was judged")
    for word in ("not met", "not decided"):
        first, *more = [answer for answer in answers if answer.word == word] or [MET]
        if first.word == word:
            return replace(first, why=f"{first.why}{f', and {len(more)} more' if more else ''}")
    return MET


def _answer(case: CaseJudgement, contender: str, wanted: Requirement) -> Answer:
    """Return the answer for one contender on one case. A contender that failed does not meet it; one that was SKIPPED
    or not compared leaves it open."""
    result = next((r for r in case.results if r.contender == contender), None)
    if result is None:
        return Answer("not decided", f"{contender} was not measured")
    where = f"{case.facts.name}, {contender}"
    if result.status != "PASSED":
        return Answer("not decided" if result.status == "SKIPPED" else "not met", f"{where}: {result.status}")
    comparison = result.comparison
    if comparison is None or comparison.verdict is None:
        return Answer("not decided", f"{where}: no verdict")
    if comparison.verdict in MET_BY[wanted]:
        return MET
    if comparison.verdict == "UNCLEAR":
        lowest = min(comparison.interval.low, comparison.plain.low)  # outliers may be the reason for UNCLEAR
        if wanted == "not-slower" and lowest > -comparison.floor.value:
            return MET  # UNCLEAR, but not slower by more than the floor
        return Answer("not decided", f"{where}: UNCLEAR")
    return Answer("not met", f"{where}: {comparison.verdict}")
