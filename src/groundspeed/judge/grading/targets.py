"""Goals from a specification, labelled against what the device can do at all.

A target is never a measurement and is always printed with its label: *impossible* below the device's limit,
*trivial* where less than a seventh of the device's rate reaches it, *possible* between. Work whose limit lies
under 50 µs a launch is bound by launches, not by the rate, so it is never called trivial.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.grading.specification import GOALS, Target
from groundspeed.judge.limits import Limit, Peaks, limit

if TYPE_CHECKING:
    from groundspeed.judge.judgement import CaseJudgement, Result

Label = Literal["possible", "trivial", "impossible"]

TRIVIAL_SHARE = 0.15
LAUNCH_BOUND_S = 50e-6


@dataclass(frozen=True)
class Goal:
    """One figure of a target, and the contenders of a run that were under it."""

    name: str
    """target, excellent or reference."""
    value: float
    """Seconds; of a target of memory, bytes."""
    label: Label | None
    """None where the device has no limit in the table."""
    reached: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    """By their time, or because they failed."""
    undecided: tuple[str, ...] = ()
    """Those whose interval holds the goal, that have no interval, or that were not tried."""


def label(target_s: float, limit: Limit, launches: int = 1) -> Label:
    if target_s < limit.seconds:
        return "impossible"
    if limit.seconds >= launches * LAUNCH_BOUND_S and limit.seconds / target_s < TRIVIAL_SHARE:
        return "trivial"
    return "possible"


def limit_of(target: Target, peaks: Peaks | None) -> Limit | None:
    """That of the work as the specification describes it, where nobody measured it."""
    dtype = str(target.params.get("dtype"))
    return limit(peaks, target.flops, target.bytes, dtype) if target.flops and target.unit != "GB" else None


def is_about(target: Target, suite: str, case: CaseFacts) -> bool:
    """A target goes by a case's name or by that of its shape, under any of its names."""
    return _is_called_so(target, suite, case) and not _unlike(target, case)


def is_but_for_its_dtype(target: Target, suite: str, case: CaseFacts) -> bool:
    """Whether a target is about a case as it would be in another dtype."""
    return _is_called_so(target, suite, case) and _unlike(target, case) == {"dtype"}


def _is_called_so(target: Target, suite: str, case: CaseFacts) -> bool:
    plain = [str(name).partition("@")[0] for name in (case.name, *case.aliases)]
    stems = {name.rsplit("-", words)[0] for name in plain for words in (1, 2)}  # without the dtype, and a word before
    return target.suite == suite and target.case in {*plain, *stems}


def _unlike(target: Target, case: CaseFacts) -> set[str]:
    return {key for key, value in target.params.items() if case.params.get(key) != value}


def target_for(targets: Iterable[Target], suite: str, case: CaseFacts) -> Target | None:
    return next((target for target in targets if is_about(target, suite, case)), None)


def goals(case: CaseJudgement) -> tuple[Goal, ...]:
    """What the specification wants of a case, and who reached it; nothing where it has no target."""
    return goals_of(case, case.target) if case.target else ()


def goals_of(case: CaseJudgement, target: Target) -> tuple[Goal, ...]:
    return tuple(_goal(case, target, name, target.goals[name]) for name in GOALS if name in target.goals)


def unmeasured(target: Target, peaks: Peaks | None) -> tuple[Goal, ...]:
    """The goals of a target that no run has a case for."""
    bound = limit_of(target, peaks)
    return tuple(
        Goal(name, target.goals[name], label(target.goals[name], bound, target.launches) if bound else None)
        for name in GOALS
        if name in target.goals
    )


def _goal(case: CaseJudgement, target: Target, name: str, value: float) -> Goal:
    of_memory = target.unit == "GB"

    def contenders(answer: bool | None) -> tuple[str, ...]:
        return tuple(r.contender for r in case.results if _reached(r, value, of_memory) is answer)

    worth = label(value, case.limit, target.launches) if case.limit and not of_memory else None
    return Goal(name, value, worth, contenders(True), contenders(False), contenders(None))


def _reached(result: Result, value: float, of_memory: bool) -> bool | None:
    """The whole interval of the median is under the goal, or nothing of it; None where it cannot be told."""
    latency = result.latency
    if latency is None:
        return None if result.status == "SKIPPED" else False
    if of_memory:
        extra = result.memory.extra_bytes
        return None if extra is None else extra < value
    if latency.high < value:
        return True
    return False if latency.low >= value else None  # without an interval both are NaN
