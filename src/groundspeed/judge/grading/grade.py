"""The grade of contenders by a specification: targets, gates, letter, checklist and diagnosis, from verified
bundles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.errors import BadInput
from groundspeed.judge.grading import gates
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.diagnosis import Finding, diagnose
from groundspeed.judge.grading.gates import Letter, Ruling
from groundspeed.judge.grading.profiled import Profiled, Used, used
from groundspeed.judge.grading.specification import Specification, Target
from groundspeed.judge.grading.targets import Goal, goals_of, is_about, is_but_for_its_dtype, limit_of, unmeasured
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import CaseJudgement
from groundspeed.judge.limits import Limit
from groundspeed.judge.profile import device_name_of

SHAPELESS = "memory"
"""The part of a specification that does not give the shape of its figures, so that no case is held against them."""


@dataclass(frozen=True)
class Aim:
    """A target, and what the bundles say about it."""

    target: Target
    limit: Limit | None
    goals: tuple[Goal, ...]
    bundle: str | None
    """None if no bundle has a case for it."""
    case: str | None
    why: str = ""
    """Why something is not determined although a bundle has a case; else empty."""
    cases: int = 1
    """How many cases the bundles have for it. The worst of them decides and is named."""
    alike: tuple[str, ...] = ()
    """If there is no case for it: the cases that differ from it only in their dtype."""


@dataclass(frozen=True)
class Graded:
    """The grade of one contender."""

    contender: str
    rulings: tuple[Ruling, ...]
    letters: dict[str, Letter]
    """Suite → letter."""
    letter: Letter
    checklist: tuple[Ticked, ...]
    findings: tuple[Finding, ...]
    used: tuple[Used, ...] = ()
    """The utilisation of the device that the specification asks for."""


@dataclass(frozen=True)
class Grade:
    specification: Specification
    device_name: str
    column: str | None
    bundles: tuple[str, ...]
    """Identities."""
    aims: tuple[Aim, ...]
    contenders: tuple[Graded, ...]
    profiles: tuple[str, ...] = ()
    """Identities."""
    beyond: tuple[str, ...] = ()
    """Suites of the specification that no run can measure. What rests on them is not determined."""
    ungated: tuple[str, ...] = ()
    """Suites of the bundles for which the specification has no gate, and so no letter."""

    @property
    def answer(self) -> gates.Answer:
        """The answer of all gates of all contenders together."""
        answers = [ruling.answer for graded in self.contenders for ruling in graded.rulings]
        if "failed" in answers:
            return "failed"
        return "passed" if answers and set(answers) == {"passed"} else "not determined"


def grade(
    evidence: Sequence[Evidence],
    specification: Specification,
    contenders: Sequence[str] = (),
    suites: Sequence[str] = (),
    reference: str | None = None,
    profiles: Sequence[Profiled] = (),
    measurable: Collection[str] | None = None,
) -> Grade:
    """Grade `contenders`, or by default those that the bundles judge. `suites` limits gates and targets to these
    suites. `reference` replaces the reference of every gate. `profiles` decide what only a profile shows. `measurable`
    are the suites that a run can measure."""
    wanted = _narrowed(specification, suites, reference)
    devices = sorted({one.judgement.device_name for one in evidence})
    if len(devices) > 1:
        raise BadInput(f"the bundles are from {' and '.join(devices[:2])}; grade one device at a time")
    for one in profiles:
        if one.picture.device_name != _bare(evidence[0]):
            raise BadInput(
                f"the profile {one.identity[:12]} is from {one.picture.device_name:.80}, but the bundles are from "
                f"{_bare(evidence[0]):.80}; grade one device at a time"
            )
    measured = dict.fromkeys(c.name for one in evidence for c in one.judgement.record.measured)
    judged = dict.fromkeys(name for one in evidence for name in one.judgement.record.run.judged if name in measured)
    names = tuple(contenders) or tuple(judged)
    if not names:
        raise BadInput("the bundles judge no contender that was measured; name one with --contender")
    on_gpu = all(one.judgement.record.run.device == "cuda" for one in evidence)
    column = wanted.column(devices[0]) if on_gpu else None
    there = dict.fromkeys(one.suite for one in evidence if not suites or one.suite in suites)
    gated = {gate.suite for gate in wanted.gates}
    return Grade(
        specification=wanted,
        device_name=devices[0],
        column=column,
        bundles=tuple(one.identity for one in evidence),
        aims=tuple(_aim(target, evidence) for target in wanted.of_column(column)),
        contenders=tuple(_graded(name, evidence, wanted, suites, profiles) for name in names),
        profiles=tuple(one.identity for one in profiles),
        beyond=() if measurable is None else tuple(s for s in wanted.suites if s not in measurable),
        ungated=tuple(suite for suite in there if suite not in gated),
    )


def _narrowed(specification: Specification, suites: Sequence[str], reference: str | None) -> Specification:
    kept = specification
    if suites:
        kept = replace(
            kept,
            gates=tuple(gate for gate in kept.gates if gate.suite in suites),
            targets=tuple(target for target in kept.targets if target.suite in suites),
            graded=tuple(suite for suite in kept.graded if suite in suites),
            utilisation={k: v for k, v in kept.utilisation.items() if k.partition(":")[0] in suites},
        )
    if reference:
        kept = replace(kept, gates=tuple(replace(gate, reference=reference) for gate in kept.gates))
    return kept


def _aim(target: Target, evidence: Sequence[Evidence]) -> Aim:
    """Hold every case that a target is about, on the default clock, against it. A contender that missed it on one case
    missed it."""
    cases = [(one, case) for one in evidence for case in one.judgement.cases if case.clock == DEFAULT_CLOCK]
    found = [(one, case) for one, case in cases if is_about(target, one.judgement.record.run.suite, case.facts)]
    if not found:
        peaks = evidence[0].judgement.peaks
        other = dict.fromkeys(
            case.facts.name
            for one, case in cases
            if is_but_for_its_dtype(target, one.judgement.record.run.suite, case.facts)
        )
        return Aim(target, limit_of(target, peaks), unmeasured(target, peaks), None, None, alike=tuple(other))
    tried = {result.contender for _, case in found for result in case.results if result.status != "SKIPPED"}
    answers = [_goals(target, one, case, tried) for one, case in found]
    missed = [sum(len(goal.missed) for goal in goals) for goals in answers]
    one, case = found[missed.index(max(missed))]
    pooled = tuple(_worst(goals) for goals in zip(*answers, strict=True))
    why = next((why for e, _ in found if (why := gates.incomplete(e.judgement.record))), "")
    return Aim(target, case.limit, pooled, one.identity, case.facts.name, why, len(found))


def _goals(target: Target, evidence: Evidence, case: CaseJudgement, tried: set[str]) -> tuple[Goal, ...]:
    """Return the goals of one case, without the contenders that were tried only on another case. An interrupted run
    decides nothing."""
    here = [r.contender for r in case.results if r.status != "SKIPPED" or r.contender not in tried]
    interrupted = gates.incomplete(evidence.judgement.record) is not None
    return tuple(
        replace(goal, reached=(), missed=(), undecided=tuple(here))
        if interrupted
        else replace(goal, undecided=tuple(name for name in goal.undecided if name in here))
        for goal in goals_of(case, target)
    )


def _worst(goals: Sequence[Goal]) -> Goal:
    """Combine one goal over several cases. A contender reached it only if it did on all of them."""
    missed = dict.fromkeys(name for goal in goals for name in goal.missed)
    undecided = dict.fromkeys(name for goal in goals for name in goal.undecided if name not in missed)
    reached = dict.fromkeys(n for goal in goals for n in goal.reached if n not in missed and n not in undecided)
    return replace(goals[0], reached=tuple(reached), missed=tuple(missed), undecided=tuple(undecided))


def _bare(evidence: Evidence) -> str:
    """Return the name of the device without the number of threads that a run used."""
    return device_name_of(evidence.judgement.record.environment, evidence.judgement.record.run.device)


def _graded(
    contender: str,
    evidence: Sequence[Evidence],
    specification: Specification,
    suites: Sequence[str],
    profiles: Sequence[Profiled],
) -> Graded:
    rulings, letters = [], {}
    for gate in specification.gates:
        standings = gates.standings(evidence, gate, contender, specification)
        rulings.append(gates.numerical(evidence, gate.suite, contender, specification.excellent))
        performance = gates.performance(evidence, gate, contender, standings)
        rulings.append(performance)
        if gate.suite in specification.graded:
            letters[gate.suite] = gates.letter_of(standings, specification, performance.why)
    return Graded(
        contender,
        tuple(rulings),
        letters,
        gates.overall(letters, specification),
        checklist(evidence, contender, suites, profiles),
        diagnose(evidence, contender),
        used(profiles, evidence, contender, specification.utilisation),
    )
