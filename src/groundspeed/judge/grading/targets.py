"""Goals from a specification, labelled by the device's limit.

A target is never a measurement and is always printed with its label: *impossible* below the device's limit,
*trivial* if less than 15% of the device's rate reaches it, *possible* in between. Work whose limit is under 50 µs
per launch is bound by launches, not by the rate, so it is never called trivial.
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
    """Seconds, or bytes for a memory target."""
    label: Label | None
    """None if the device has no limit in the table."""
    reached: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    """Contenders that missed it by their time, or because they failed."""
    undecided: tuple[str, ...] = ()
    """Contenders whose interval contains the goal, that have no interval, or that were not tried."""


def label(target_s: float, limit: Limit, launches: int = 1) -> Label:
    if target_s < limit.seconds:
        return "impossible"
    if limit.seconds >= launches * LAUNCH_BOUND_S and limit.seconds / target_s < TRIVIAL_SHARE:
        return "trivial"
    return "possible"


def limit_of(target: Target, peaks: Peaks | None) -> Limit | None:
    """Return the limit of the work as the specification describes it, for a target that no run measured."""
    dtype = str(target.params.get("dtype"))
    return limit(peaks, target.flops, target.bytes, dtype) if target.flops and target.unit != "GB" else None


def is_about(target: Target, suite: str, case: CaseFacts) -> bool:
    """Return whether a target is about a case: it names the case or its shape, by any of the case's names, and the
    parameters agree."""
    return _is_called_so(target, suite, case) and not _unlike(target, case)


def is_but_for_its_dtype(target: Target, suite: str, case: CaseFacts) -> bool:
    """Return whether a target is about a case except for its dtype."""
    return _is_called_so(target, suite, case) and _unlike(target, case) == {"dtype"}


def _is_called_so(target: Target, suite: str, case: CaseFacts) -> bool:
    plain = [str(name).partition("@")[0] for name in (case.name, *case.aliases)]
    stems = {name.rsplit("-", words)[0] for name in plain for words in (1, 2)}  # less the dtype, and the word before it
    return target.suite == suite and target.case in {*plain, *stems}


def _unlike(target: Target, case: CaseFacts) -> set[str]:
    return {key for key, value in target.params.items() if case.params.get(key) != value}


def target_for(targets: Iterable[Target], suite: str, case: CaseFacts) -> Target | None:
    return next((target for target in targets if is_about(target, suite, case)), None)


def goals(case: CaseJudgement) -> tuple[Goal, ...]:
    """Return the goals of a case and the contenders that reached them, or nothing if it has no target."""
    return goals_of(case, case.target) if case.target else ()


def goals_of(case: CaseJudgement, target: Target) -> tuple[Goal, ...]:
    return tuple(_goal(case, target, name, target.goals[name]) for name in GOALS if name in target.goals)


def unmeasured(target: Target, peaks: Peaks | None) -> tuple[Goal, ...]:
    """Return the goals of a target for which no run has a case."""
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
    """Return True if the whole interval of the median is under the goal, False if none of it is, and None if it cannot
    be told."""
    latency = result.latency
    if latency is None:
        return None if result.status == "SKIPPED" else False
    if of_memory:
        extra = result.memory.extra_bytes
        return None if extra is None else extra < value
    if latency.high < value:
        return True
    return False if latency.low >= value else None  # without an interval both are NaN
