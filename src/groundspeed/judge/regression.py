"""Whether code got slower: REGRESSED, IMPROVED, SAME or UNCLEAR for each contender and case, and a verdict over all.

Two revisions in one run are a pair like any other: θ = log(base time / head time), block by block, and the verdict is
the run's. Two bundles have no blocks in common; judge/apart.py compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from groundspeed.evidence.revision import installed_of, revisions_of
from groundspeed.judge.grid import alpha_of
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.statistics import Interval
from groundspeed.judge.verdict import Comparison, judge_family

Word = Literal["REGRESSED", "IMPROVED", "SAME", "UNCLEAR"]
Overall = Literal["REGRESSED", "NO REGRESSION", "UNCLEAR"]
How = Literal["paired", "anchored", "apart"]
"""How the two were compared: in the blocks of one run; in two runs, each against a contender that is the same in both;
in two runs by their bare times."""

WORDS: tuple[Word, ...] = get_args(Word)
_OF_VERDICT: dict[str | None, Word] = {"FASTER": "IMPROVED", "SLOWER": "REGRESSED", "SAME": "SAME"}
FAILED = ("INCORRECT", "INVALID", "ERROR", "OOM", "TIMEOUT")
"""Statuses of contenders that were tried and failed. ABSENT and SKIPPED were not tried."""
INTERRUPTED = "the run was interrupted"


@dataclass(frozen=True)
class Change:
    """One contender on one case, from base to head."""

    case: str
    contender: str
    word: Word
    reason: str
    base_s: float | None = None
    head_s: float | None = None
    interval: Interval | None = None
    """The interval of log(base time / head time). Above 0, head is faster."""
    lowest: float | None = None
    """The lower end of the interval, or of that from untrimmed means if it is lower, less what slow processes that were
    seen in its neighbours but missed here would be worth. For two bundles, what two runs differ by is subtracted too.
    None if the interval is not to be believed."""
    adjusted_p: float | None = None
    may_hide: bool = False
    """For UNCLEAR: whether head may be slower by more than the floor."""


@dataclass(frozen=True)
class Regression:
    how: How
    changes: tuple[Change, ...]
    left_out: tuple[str, ...]
    """What was not compared, with the reason."""
    notes: tuple[str, ...]
    marked: str = ""
    """What every line must say if base and head were measured on different hardware."""
    incomplete: str = ""
    """Why not everything asked for was measured; if set, nothing is ruled out."""
    packages: tuple[tuple[str, str | None, str | None], ...] = ()
    """For revisions with different dependencies: each package that differs, with its version in base and in head."""

    @property
    def tally(self) -> Counter[Word]:
        return Counter(change.word for change in self.changes)

    @property
    def overall(self) -> Overall:
        if self.tally["REGRESSED"]:
            return "REGRESSED"
        if self.incomplete or not self.changes or any(change.may_hide for change in self.changes):
            return "UNCLEAR"
        return "NO REGRESSION"


def of_runs(judgements: Sequence[Judgement]) -> Regression:
    """Judge runs of two revisions, one run for each contender. Holm's family covers all of them."""
    pairs = [(j, case, *_sides(j, case)) for j in judgements for case in j.cases]
    family = [head.comparison for _, _, _, head in pairs if head.comparison]
    headlines = [g.interval.p if g.interval else 1.0 for j in judgements for g in j.grids if g.cases > 1]
    record = judgements[0].record  # all runs were declared alike
    verdicts = iter(judge_family(family, record.declared_processes, headlines, alpha_of(record)))
    changes: list[Change] = []
    left_out: list[str] = []
    for judgement, case, base, head in pairs:
        name = revisions_of(judgement.record.environment)[head.contender].contender
        if head.comparison:
            change = _of_comparison(case, name, base, head, next(verdicts))
            complete = judgement.record.complete
            changes.append(change if complete else replace(change, reason=INTERRUPTED, lowest=None, may_hide=True))
        elif failure := one_sided(case.facts.name, name, base, head):
            changes.append(failure)
        else:
            left_out.append(neither(case.facts.name, name, base, head))
    warnings = dict.fromkeys(f"{w.message}; {w.remedy}" for judgement in judgements for w in judgement.warnings)
    incomplete = "" if all(judgement.record.complete for judgement in judgements) else INTERRUPTED
    return Regression(
        "paired",
        tuple(changes),
        tuple(left_out),
        tuple(warnings),
        packages=_packages(judgements[0]),
        incomplete=incomplete,
    )


def _packages(judgement: Judgement) -> tuple[tuple[str, str | None, str | None], ...]:
    run, installed = judgement.record.run, installed_of(judgement.record.environment)
    base, head = (installed[name].packages if name in installed else {} for name in (run.baseline, run.judged[0]))
    versions = [(name, base.get(name), head.get(name)) for name in sorted({*base, *head})]
    return tuple((name, before, after) for name, before, after in versions if before != after)


def _sides(judgement: Judgement, case: CaseJudgement) -> tuple[Result, Result]:
    run = judgement.record.run
    return case.result(run.baseline), case.result(run.judged[0])


def _of_comparison(case: CaseJudgement, name: str, base: Result, head: Result, c: Comparison) -> Change:
    word: Word = _OF_VERDICT.get(c.verdict, "UNCLEAR")
    # outliers may be the reason for UNCLEAR, so the plain mean counts too
    lowest = min(c.interval.low, c.plain.low) - c.missed if c.believed else None
    return Change(
        case=case.facts.name,
        contender=name,
        word=word,
        reason=c.reason,
        base_s=_median(base),
        head_s=_median(head),
        interval=c.interval,
        lowest=lowest,
        adjusted_p=c.adjusted_p,
        may_hide=word == "UNCLEAR" and (lowest is None or not lowest > -c.floor.value),
    )


def one_sided(case: str, name: str, base: Result, head: Result) -> Change | None:
    """Return the change if only one of the two revisions has a time. A contender that passed in base has REGRESSED if
    it fails in head, and is UNCLEAR if head was not tried. One that failed in base and passes in head has IMPROVED.
    Return None if neither has a time, or only head has one and base was never tried."""
    times = _median(base), _median(head)
    if base.status == "PASSED":
        failed = head.status in FAILED
        why = f"head is {head.status}: {head.reason}"
        return Change(case, name, "REGRESSED" if failed else "UNCLEAR", why, *times, may_hide=not failed)
    if head.status == "PASSED" and base.status in FAILED:
        return Change(case, name, "IMPROVED", f"base is {base.status}: {base.reason}", *times)
    return None


def neither(case: str, name: str, base: Result, head: Result) -> str:
    said = [f"{side} is {r.status} ({r.reason})" for side, r in (("base", base), ("head", head)) if r.reason]
    return f"{case}, {name}: {', '.join(said)}"


def _median(result: Result) -> float | None:
    return result.latency.median if result.latency else None
