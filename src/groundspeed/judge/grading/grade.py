"""How a contender stands to a specification: targets, gates, letter, checklist and diagnosis, from verified bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from groundspeed.errors import BadInput
from groundspeed.judge.grading import gates
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.diagnosis import Finding, diagnose
from groundspeed.judge.grading.gates import Letter, Ruling
from groundspeed.judge.grading.profiled import Profiled, Used, used
from groundspeed.judge.grading.specification import Specification, Target
from groundspeed.judge.grading.targets import Goal, goals_of, is_about, limit_of, unmeasured
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.limits import Limit
from groundspeed.judge.profile import device_name_of


@dataclass(frozen=True)
class Aim:
    """A target, and what the bundles say of it."""

    target: Target
    limit: Limit | None
    goals: tuple[Goal, ...]
    bundle: str | None
    """None where no bundle has a case for it."""
    case: str | None
    why: str = ""
    """Why nothing is determined, where a bundle has it."""


@dataclass(frozen=True)
class Graded:
    """One contender."""

    contender: str
    rulings: tuple[Ruling, ...]
    letters: dict[str, Letter]
    """By suite."""
    letter: Letter
    checklist: tuple[Ticked, ...]
    findings: tuple[Finding, ...]
    used: tuple[Used, ...] = ()
    """What the specification wants to be used of the device."""


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

    @property
    def answer(self) -> gates.Answer:
        """Of all gates of all contenders."""
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
) -> Grade:
    """Of the contenders that are named, else of those that the bundles judge. `suites`: the gates and targets of these
    alone; `reference`: for all gates, whatever the specification says; `profiles`: for what only they tell."""
    wanted = _narrowed(specification, suites, reference)
    devices = sorted({one.judgement.device_name for one in evidence})
    if len(devices) > 1:
        raise BadInput(f"the bundles are of {' and of '.join(devices[:2])}; grade one device at a time")
    for one in profiles:
        if one.picture.device_name != _bare(evidence[0]):
            raise BadInput(
                f"the profile {one.identity[:12]} is of {one.picture.device_name:.80}, and the bundles are of "
                f"{_bare(evidence[0]):.80}; grade one device at a time"
            )
    measured = dict.fromkeys(c.name for one in evidence for c in one.judgement.record.measured)
    judged = dict.fromkeys(name for one in evidence for name in one.judgement.record.run.judged if name in measured)
    names = tuple(contenders) or tuple(judged)
    if not names:
        raise BadInput("the bundles judge no contender that was measured; name one with --contender")
    on_gpu = all(one.judgement.record.run.device == "cuda" for one in evidence)
    column = wanted.column(devices[0]) if on_gpu else None
    return Grade(
        specification=wanted,
        device_name=devices[0],
        column=column,
        bundles=tuple(one.identity for one in evidence),
        aims=tuple(_aim(target, evidence) for target in wanted.of_column(column)),
        contenders=tuple(_graded(name, evidence, wanted, suites, profiles) for name in names),
        profiles=tuple(one.identity for one in profiles),
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
    for one in evidence:
        for case in one.judgement.cases:
            if is_about(target, one.judgement.record.run.suite, case.facts):
                goals = goals_of(case, target)
                why = gates.incomplete(one.judgement.record) or ""
                if why:
                    everyone = tuple(result.contender for result in case.results)
                    goals = tuple(replace(goal, reached=(), missed=(), undecided=everyone) for goal in goals)
                return Aim(target, case.limit, goals, one.identity, case.facts.name, why)
    peaks = evidence[0].judgement.peaks
    return Aim(target, limit_of(target, peaks), unmeasured(target, peaks), None, None)


def _bare(evidence: Evidence) -> str:
    """The device, without how many threads of it a run took."""
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
