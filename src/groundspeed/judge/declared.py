"""Checks of what a bundle says about a case against what its suite declares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from groundspeed.errors import VerificationFailed
from groundspeed.evidence.record import CaseFacts, Scalar
from groundspeed.evidence.usage import Usage


@dataclass(frozen=True)
class Declared:
    """What a suite declares about a case, independently of any run."""

    params: dict[str, Scalar]
    names: frozenset[str]
    flops: int
    bytes: int
    counts: dict[str, int]
    tolerance: dict[str, float]
    experts: tuple[int, int] | None
    """The number of experts, and the number of choices of all tokens together; None for a case without experts."""


DeclaredOf = Callable[[str, dict[str, Scalar]], Declared]
"""Returns what is declared for a suite and the parameters of a case."""


def check_declared(case: CaseFacts, declared: Declared) -> None:
    """Raise VerificationFailed unless FLOPs, bytes and counts are those of the shape and no tolerance is looser. A
    bundle cannot raise its TFLOP/s by claiming more work, nor make a contender pass by tolerating more."""
    if strangers := {case.name, *case.aliases} - declared.names:
        raise VerificationFailed(f"{case.name}: {min(strangers)!r:.80} is not the name of this shape")
    if [*map(type, case.params.values())] != [*map(type, declared.params.values())]:
        raise VerificationFailed(
            f"{case.name}: the record has params {case.params}, its shape declares {declared.params}"
        )
    for name in ("params", "flops", "bytes", "counts"):
        said, is_ = getattr(case, name), getattr(declared, name)
        if said != is_:
            raise VerificationFailed(f"{case.name}: the record has {name} {said}, its shape declares {is_}")
    for name, bound in declared.tolerance.items():  # a tolerance that was stricter at the time is fine
        allowed = case.tolerance.get(name, math.inf)
        if allowed > bound:
            raise VerificationFailed(f"{case.name}: the record tolerates a {name} of {allowed}, its shape only {bound}")


def check_usage(usage: Usage, declared: Declared) -> None:
    """Raise VerificationFailed unless the number of experts is that of the shape, and their tokens add up to its number
    of choices."""
    said = len(usage.tokens), sum(usage.tokens)
    if declared.experts is None:
        raise VerificationFailed(f"{usage.case}: the record has a usage of experts, but its shape has no experts")
    if said != declared.experts:
        experts, choices = declared.experts
        raise VerificationFailed(
            f"{usage.case}: the record has {said[1]:,} tokens for {said[0]:,} experts, "
            f"but its shape has {choices:,} for {experts:,}"
        )
