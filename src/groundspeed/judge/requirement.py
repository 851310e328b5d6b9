"""Whether the verdicts of a run meet a requirement: that of `run --require`, or of a test with the pytest plugin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, log, sqrt
from typing import TYPE_CHECKING, Literal, get_args

from groundspeed.errors import unknown
from groundspeed.judge.claims import INTERPRETED, interpreted, with_interval
from groundspeed.judge.statistics import t_quantile

if TYPE_CHECKING:
    from groundspeed.judge.judgement import CaseJudgement, Judgement
    from groundspeed.judge.verdict import Comparison

Word = Literal["faster", "not-slower"]
Requirement = Word | float
"""A number asks for at least that many times the baseline's speed."""
REQUIREMENTS: tuple[Word, ...] = get_args(Word)

MET_BY = {"faster": {"FASTER"}, "not-slower": {"FASTER", "SAME"}}


@dataclass(frozen=True)
class Answer:
    word: Literal["met", "not met", "not decided"]
    why: str = ""
    """The first comparison that does not meet the requirement, or leaves it open, and how many more there are."""


MET = Answer("met")


def parse(said: object, where: str) -> Requirement:
    """Return the requirement that a person gave as a word or a number. BadInput, naming `where`, for anything else."""
    for word in REQUIREMENTS:
        if said == word:
            return word
    try:
        ratio = float(said) if isinstance(said, (str, int, float)) and not isinstance(said, bool) else 0.0
    except ValueError:
        ratio = 0.0
    if ratio > 0 and isfinite(ratio):
        return ratio
    see = "A number such as 1.2 requires at least that many times the speed of the baseline."
    raise unknown(f"value of {where}", str(said), REQUIREMENTS, see=see)


def requirement(judgement: Judgement, wanted: Requirement) -> Answer:
    """Return the answer for a whole run: met if every judged contender meets it on every case, and not met if one does
    not, whatever else is unclear."""
    if interpreted(judgement.record):
        return Answer("not decided", INTERPRETED)
    judged = judgement.record.run.judged
    pairs = [(case, contender) for case in judgement.cases for contender in judged]
    answers = [_answer(case, contender, wanted, len(pairs)) for case, contender in pairs]
    if not answers:
        return Answer("not decided", "nothing was judged")
    for word in ("not met", "not decided"):
        first, *more = [answer for answer in answers if answer.word == word] or [MET]
        if first.word == word:
            return replace(first, why=f"{first.why}{f', and {len(more)} more' if more else ''}")
    return MET


def _answer(case: CaseJudgement, contender: str, wanted: Requirement, together: int) -> Answer:
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
    if isinstance(wanted, float):
        return _at_least(comparison, wanted, together, where)
    if comparison.verdict in MET_BY[wanted]:
        return MET
    if comparison.verdict == "UNCLEAR":
        lowest = min(comparison.interval.low, comparison.plain.low) - comparison.missed
        if wanted == "not-slower" and comparison.believed and lowest > -comparison.floor.value:
            return MET  # UNCLEAR, but not slower by more than the floor
        return Answer("not decided", f"{where}: UNCLEAR")
    return Answer("not met", f"{where}: {comparison.verdict}")


def _at_least(c: Comparison, ratio: float, together: int, where: str) -> Answer:
    """Met or not met if the whole interval, of trimmed and of plain means, lies on one side of the ratio and the
    estimate is over the floor away from it. A run of `together` comparisons fails by any one of them, so the interval
    that is held against it is Bonferroni's."""
    theta, asked, floor = c.interval, log(ratio), (c.decided_by or c.floor).value
    wider = t_quantile(1 - 0.025 / together, theta.n - 1) * theta.sd / sqrt(theta.n)
    low = min(theta.low, c.plain.low) - c.missed
    high = max(theta.high, c.plain.high, theta.mean + wider) + c.missed
    if c.believed and low >= asked and theta.mean - asked > floor:
        return MET
    if c.believed and high < asked and asked - theta.mean > floor:
        return Answer("not met", f"{where}: {with_interval(theta)} is under {ratio:g}×")
    why = f"{with_interval(theta)} cannot be distinguished from {ratio:g}×" if c.believed else c.reason
    return Answer("not decided", f"{where}: {why}")
