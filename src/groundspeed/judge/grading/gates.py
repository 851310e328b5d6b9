"""Gates and letters: whether a contender is right, and how fast it is against a reference (requirements B8 and B9).

A gate passes if the whole interval of every case lies beyond what the gate asks for, fails if the whole interval of any
case lies short of it, and is otherwise not determined. An unfinished run, a single process, or a machine whose
calibration raised its alarm determines nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from groundspeed.evidence.record import Record
from groundspeed.judge import warnings
from groundspeed.judge.grading.specification import BASELINE, SPEC, Gate, Specification
from groundspeed.judge.grading.targets import target_for
from groundspeed.judge.grading.traits import Evidence, Fact, Figure, error_shares
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result, judge
from groundspeed.judge.verdict import BIASED, Comparison

Answer = Literal["passed", "failed", "not determined"]
SPECIFIED = ("max_abs", "mean_abs", "max_rel")
"""The errors for which the specification has figures."""


@dataclass(frozen=True)
class Ruling:
    """The outcome of a gate."""

    gate: str
    wanted: str
    answer: Answer
    why: str
    facts: tuple[Fact, ...] = ()
    excellent: bool | None = None
    """For a numerical gate: whether the errors in SPECIFIED are below what the specification calls excellent. The
    largest of them is the last of the facts."""

    @property
    def suite(self) -> str:
        return self.gate.rpartition(" ")[0]


@dataclass(frozen=True)
class Standing:
    """The speed of a contender on one case, where 1 is the speed of the reference."""

    case: str
    bundle: str
    reference: str
    speed: float = math.nan
    low: float = math.nan
    high: float = math.nan
    broken: str | None = None
    """Why it has no time and fails; else None."""
    open: str | None = None
    """Why nothing can be determined; else None."""

    @property
    def known(self) -> bool:
        return self.broken is None and self.open is None

    @property
    def fact(self) -> Fact:
        ends = (Figure("at least", self.low, "×"), Figure("at most", self.high, "×")) if self.known else ()
        return Fact(self.bundle, self.case, (Figure(f"speed against {self.reference}", self.speed, "×"), *ends))


def incomplete(record: Record) -> str | None:
    found = warnings.incomplete(record)
    return f"{found.message}; {found.remedy}" if found else None


def of_suite(evidence: Sequence[Evidence], suite: str, contender: str) -> list[Evidence]:
    return [e for e in evidence if e.judgement.record.run.suite == suite and e.measured(contender)]


def standings(
    evidence: Sequence[Evidence], gate: Gate, contender: str, specification: Specification
) -> tuple[Standing, ...]:
    """Return the standing of a contender on every case of the gate's suite for which there is a reference."""
    found: list[Standing] = []
    for one in of_suite(evidence, gate.suite, contender):
        if gate.reference == SPEC:
            found += _against_times(one, contender, specification)
        else:
            found += _against_contender(one, contender, gate.reference)
    return tuple(found)


def _against_contender(evidence: Evidence, contender: str, wanted: str) -> Iterable[Standing]:
    record = evidence.judgement.record
    reference = record.run.baseline if wanted == BASELINE else wanted
    judgement = _against(evidence.judgement, reference, contender)
    for case in evidence.judgement.cases:
        start = Standing(case.facts.name, evidence.identity, reference)
        if judgement is None:
            itself = contender == reference
            why = f"{contender} is the reference itself" if itself else f"{reference} was not measured"
            yield replace(start, open=why)
            continue
        result = next(c for c in judgement.cases if c.facts.name == case.facts.name).result(contender)
        yield _status(start, record, result) or _compared(start, result.comparison)


def _against(judgement: Judgement, reference: str, contender: str) -> Judgement | None:
    record = judgement.record
    if reference == contender or all(c.name != reference for c in record.measured):
        return None
    if reference == record.run.baseline:
        return judgement
    run = replace(record.run, baseline=reference, baseline_origin="chosen afterwards", judged=(contender,))
    return judge(replace(record, run=run))


def _compared(start: Standing, c: Comparison | None) -> Standing:
    """Return a standing whose interval spans those of the trimmed and the plain mean and, if the timers disagree, the
    profiler's speed-up."""
    if c is None:
        return replace(start, open=f"{start.reference} has no time on this case")
    if c.interval.n < 2:
        return replace(start, open="a single process has no interval")
    if c.floor.alarm:
        return replace(start, open=BIASED)
    ends = [c.interval.low, c.interval.high, c.plain.low, c.plain.high]
    if c.timers and c.timers.disagree(c.floor.value):
        ends.append(c.timers.profiler)
    return replace(start, speed=c.ratio, low=math.exp(min(ends)), high=math.exp(min(max(ends), 700.0)))


def _against_times(evidence: Evidence, contender: str, specification: Specification) -> Iterable[Standing]:
    judgement, record = evidence.judgement, evidence.judgement.record
    column = specification.column(judgement.device_name) if record.run.device == "cuda" else None
    for case in judgement.cases:
        target = target_for(specification.of_column(column), record.run.suite, case.facts)
        if target is None or target.reference_s is None:
            continue
        result = case.result(contender)
        start = Standing(case.facts.name, evidence.identity, f"the {target.gpu} time of {specification.source}")
        yield _status(start, record, result) or _timed(start, result, target.reference_s)


def _timed(start: Standing, result: Result, reference_s: float) -> Standing:
    latency = result.latency
    if latency is None or not math.isfinite(latency.high):
        return replace(start, open="a single process has no interval")
    speed, low, high = (reference_s / seconds for seconds in (latency.median, latency.high, latency.low))
    return replace(start, speed=speed, low=low, high=high)


def _status(start: Standing, record: Record, result: Result) -> Standing | None:
    if why := incomplete(record):
        return replace(start, open=why)
    if result.status == "SKIPPED":
        return replace(start, open=f"SKIPPED: {result.reason}")
    return None if result.status == "PASSED" else replace(start, broken=f"{result.status}: {result.reason}")


def performance(evidence: Sequence[Evidence], gate: Gate, contender: str, found: Sequence[Standing]) -> Ruling:
    """Return the ruling of a performance gate, given the contender's standings under it."""
    name, reference = f"{gate.suite} performance", "the baseline" if gate.reference == BASELINE else gate.reference
    wanted = f"over {gate.speed:.0%} of the speed of {'the specification' if reference == SPEC else reference}"
    if why := _nothing(evidence, gate.suite, contender):
        return Ruling(name, wanted, "not determined", why)
    if not found:
        return Ruling(name, wanted, "not determined", "the specification has no time for any case of the bundles")
    if broken := [s for s in found if s.broken]:
        which = Fact(broken[0].bundle, broken[0].case, (Figure("failed cases", len(broken)),))
        return Ruling(name, wanted, "failed", f"{broken[0].case}: {broken[0].broken}", (which,))
    known = [s for s in found if s.known]
    if short := [s for s in known if s.high <= gate.speed]:
        worst = min(short, key=lambda s: s.high)
        return Ruling(name, wanted, "failed", f"{len(short)} of {len(found)} cases fall short of it", (worst.fact,))
    if unknown := [s for s in found if s.open]:
        more = f" ({len(unknown)} of {len(found)} cases)"
        return Ruling(name, wanted, "not determined", f"{unknown[0].case}: {unknown[0].open}{more}")
    worst = min(known, key=lambda s: s.low)
    between = [s for s in known if s.low <= gate.speed]
    if between:
        why = f"the intervals of {len(between)} of {len(found)} cases contain the required speed"
        return Ruling(name, wanted, "not determined", why, (worst.fact,))
    return Ruling(name, wanted, "passed", _on_all(found), (worst.fact,))


def numerical(evidence: Sequence[Evidence], suite: str, contender: str, excellent: float | None) -> Ruling:
    """Return the ruling of a numerical gate: every error of every case must be within its tolerance, which is scaled by
    the dtype."""
    name, wanted = f"{suite} numerical", "every error within the tolerance of its case"
    if why := _nothing(evidence, suite, contender):
        return Ruling(name, wanted, "not determined", why)
    bundles = of_suite(evidence, suite, contender)
    results = [(e, case, case.result(contender)) for e in bundles for case in e.judgement.cases]
    wrong = [(e, case, r) for e, case, r in results if r.status not in ("PASSED", "SKIPPED")]
    if wrong:
        e, case, r = wrong[0]
        why = f"{case.facts.name}: {r.status}: {r.reason}"
        return Ruling(name, wanted, "failed", why, (e.fact(case, Figure("failed cases", len(wrong))),))
    near = [one for e in bundles for one in error_shares(e, contender)]
    passed = [case for _, case, r in results if r.status == "PASSED"]
    if not near or any(not _told(case, r) for _, case, r in results if r.status == "PASSED"):
        return Ruling(name, wanted, "not determined", "some results lack an error that their tolerance bounds")
    worst = max(near, key=lambda one: one.part)
    decides = max((one for one in near if one.error in SPECIFIED), key=lambda one: one.part, default=None)
    under = decides.part < excellent if excellent and decides else None
    if worst.part > 1:  # the record says PASSED despite that
        return Ruling(name, wanted, "failed", "an error exceeds its tolerance", (worst.fact,))
    unfinished = next((why for e in bundles if (why := incomplete(e.judgement.record))), None)
    if unfinished or len(passed) < len(results):
        skipped = next((f"{c.facts.name}: SKIPPED: {r.reason}" for _, c, r in results if r.status == "SKIPPED"), "")
        return Ruling(name, wanted, "not determined", unfinished or skipped, (worst.fact,))
    told = [worst.fact, decides.fact] if decides and under is not None else [worst.fact]
    return Ruling(name, wanted, "passed", _on_all(passed), tuple(dict.fromkeys(told)), under)


def _on_all(cases: Sequence[object]) -> str:
    return "on its only case" if len(cases) == 1 else f"on all {len(cases)} cases"


def _told(case: CaseJudgement, result: Result) -> bool:
    return all(getattr(result.errors, name) is not None for name in case.facts.tolerance)


def _nothing(evidence: Sequence[Evidence], suite: str, contender: str) -> str | None:
    if of_suite(evidence, suite, contender):
        return None
    any_suite = any(e.judgement.record.run.suite == suite for e in evidence)
    return f"no bundle has {contender} in {suite}" if any_suite else f"there is no bundle of {suite}"


@dataclass(frozen=True)
class Letter:
    """A grade, as all letters that the interval spans."""

    letters: tuple[str, ...]
    """One letter, more if the interval crosses a border, none if not determined."""
    why: str
    bundle: str | None = None
    """The identity of the bundle whose case decides; None if no case does."""

    def __str__(self) -> str:
        return " or ".join(self.letters) or "not determined"


FAIL = "F"


def letter_of(found: Sequence[Standing], specification: Specification, nothing: str) -> Letter:
    """Return the letter of the worst case, which an average would hide. `nothing` says why there are no standings."""
    if not specification.letters:
        return Letter((), f"{specification.source} has no letters")
    if not found:
        return Letter((), nothing)
    if broken := [s for s in found if s.broken]:
        return Letter((FAIL,), f"{broken[0].case}: {broken[0].broken}", broken[0].bundle)
    if unknown := [s for s in found if s.open]:
        return Letter((), f"{unknown[0].case}: {unknown[0].open}", unknown[0].bundle)
    low, high = min(s.low for s in found), min(s.high for s in found)
    worst = min(found, key=lambda s: s.low)
    span = [name for name, _ in specification.letters] + [FAIL]
    best, least = (span.index(_letter(x, specification)) for x in (high, low))
    why = f"{worst.speed:.0%} ({worst.low:.0%}–{worst.high:.0%}) of {worst.reference} on its worst case, {worst.case}"
    return Letter(tuple(span[best : least + 1]), why, worst.bundle)


def _letter(speed: float, specification: Specification) -> str:
    return next((name for name, least in specification.letters if speed > least), FAIL)


def overall(letters: dict[str, Letter], specification: Specification) -> Letter:
    """Return the worst letter of the graded suites. It is F if that of any suite is F, even if others are not
    determined."""
    span = [name for name, _ in specification.letters] + [FAIL]
    if failed := [suite for suite, letter in letters.items() if letter.letters == (FAIL,)]:
        return Letter((FAIL,), f"{failed[0]} is F")
    if unknown := [(suite, letter) for suite, letter in letters.items() if not letter.letters]:
        suite, letter = unknown[0]
        return Letter((), letter.why if letter.why.endswith(suite) else f"{suite}: {letter.why}")
    if not letters:
        return Letter((), "no suite is graded")
    best = max(span.index(letter.letters[0]) for letter in letters.values())
    least = max(span.index(letter.letters[-1]) for letter in letters.values())
    return Letter(tuple(span[best : least + 1]), f"the worst of {' and '.join(letters)}")
