"""Goals from a specification, labelled against what the device can do at all.

A target is never a measurement and is always printed with its label: *impossible* below the device's limit,
*trivial* where less than a seventh of the device's rate reaches it, *possible* between. Work whose limit lies
under 50 µs is bound by launches, not by the rate, so it is never called trivial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groundspeed.judge.limits import Limit

if TYPE_CHECKING:
    from groundspeed.judge.judgement import CaseJudgement, Result

Label = Literal["possible", "trivial", "impossible"]

TRIVIAL_SHARE = 0.15
LAUNCH_BOUND_S = 50e-6


@dataclass(frozen=True)
class Target:
    suite: str
    case: str
    gpu: str
    reference_s: float
    target_s: float
    excellent_s: float


@dataclass(frozen=True)
class Goal:
    """One time of a target, and the contenders of a run that were under it."""

    name: Literal["target", "excellent", "reference"]
    seconds: float
    label: Label | None
    """None where the device has no limit in the table."""
    reached: tuple[str, ...]
    missed: tuple[str, ...]
    """By their time, or because they failed."""
    undecided: tuple[str, ...]
    """Those whose interval holds the goal, that have no interval, or that were not tried."""


def _attention(case: str, gpu: str, *milliseconds: float) -> Target:
    reference, target, excellent = (value / 1e3 for value in milliseconds)
    return Target("attention", case, gpu, reference, target, excellent)


TARGETS: tuple[Target, ...] = (
    _attention("ref-64", "H100", 3.2, 4.5, 3.8),
    _attention("ref-64", "A100", 6.8, 9.5, 8.0),
    _attention("ref-64", "A10", 18.5, 26.0, 22.0),
    _attention("ref-128", "H100", 18.5, 26.0, 22.0),
    _attention("ref-128", "A100", 42.0, 60.0, 50.0),
    _attention("ref-128", "A10", 115.0, 165.0, 138.0),
)
"""Attention forward, FP16, full mask (requirement B9)."""


def label(target_s: float, limit: Limit) -> Label:
    if target_s < limit.seconds:
        return "impossible"
    if limit.seconds >= LAUNCH_BOUND_S and limit.seconds / target_s < TRIVIAL_SHARE:
        return "trivial"
    return "possible"


def targets_for(suite: str, case_names: tuple[str, ...], device_name: str) -> Target | None:
    """The target of a case, under any of its names, on a GPU of the family that the specification names."""
    words = device_name.replace("-", " ").split()
    return next((t for t in TARGETS if t.suite == suite and t.case in case_names and t.gpu in words), None)


def goals(case: CaseJudgement) -> tuple[Goal, ...]:
    """What a specification wants of a case, and who reached it; nothing where it has no target."""
    target = case.target
    if target is None:
        return ()
    return (
        _goal(case, "target", target.target_s),
        _goal(case, "excellent", target.excellent_s),
        _goal(case, "reference", target.reference_s),
    )


def _goal(case: CaseJudgement, name: Literal["target", "excellent", "reference"], seconds: float) -> Goal:
    def contenders(answer: bool | None) -> tuple[str, ...]:
        return tuple(result.contender for result in case.results if _reached(result, seconds) is answer)

    worth = label(seconds, case.limit) if case.limit else None
    return Goal(name, seconds, worth, contenders(True), contenders(False), contenders(None))


def _reached(result: Result, seconds: float) -> bool | None:
    """The whole interval of the median is under the goal, or nothing of it; None where it cannot be told."""
    latency = result.latency
    if latency is None:
        return None if result.status == "SKIPPED" else False
    if latency.high < seconds:
        return True
    return False if latency.low >= seconds else None  # without an interval both are NaN
