"""What a suite declares about a case, against what a bundle says of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from groundspeed.errors import VerificationFailed
from groundspeed.evidence.record import CaseFacts, Scalar
from groundspeed.evidence.usage import Usage


@dataclass(frozen=True)
class Declared:
    """What a suite says about a case, whoever measured it."""

    params: dict[str, Scalar]
    names: frozenset[str]
    flops: int
    bytes: int
    counts: dict[str, int]
    tolerance: dict[str, float]
    experts: tuple[int, int] | None
    """How many, and the choices of all tokens together; None where there are none."""


DeclaredOf = Callable[[str, dict[str, Scalar]], Declared]
"""By suite and parameters."""


def check_declared(case: CaseFacts, declared: Declared) -> None:
    """FLOPs, bytes and counts are those of the shape, and tolerances no looser: a bundle cannot buy TFLOP/s by claiming
    more work, nor a pass by forgiving more."""
    if strangers := {case.name, *case.aliases} - declared.names:
        raise VerificationFailed(f"{case.name}: {min(strangers)!r:.80} is not the name of this shape")
    if [*map(type, case.params.values())] != [*map(type, declared.params.values())]:
        raise VerificationFailed(f"{case.name}: the record says params {case.params}, its shape has {declared.params}")
    for name in ("params", "flops", "bytes", "counts"):
        said, is_ = getattr(case, name), getattr(declared, name)
        if said != is_:
            raise VerificationFailed(f"{case.name}: the record says {name} {said}, its shape has {is_}")
    for name, bound in declared.tolerance.items():  # one that was stricter when it was measured is no harm
        allowed = case.tolerance.get(name, math.inf)
        if allowed > bound:
            raise VerificationFailed(f"{case.name}: the record tolerates {name} {allowed}, its shape {bound}")


def check_usage(usage: Usage, declared: Declared) -> None:
    """The experts are those of the shape, and have together as many tokens as make a choice there."""
    said = len(usage.tokens), sum(usage.tokens)
    if declared.experts is None:
        raise VerificationFailed(f"{usage.case}: the record has the usage of experts, and its shape has none")
    if said != declared.experts:
        experts, choices = declared.experts
        raise VerificationFailed(
            f"{usage.case}: the record has {said[1]:,} tokens for {said[0]:,} experts, "
            f"its shape {choices:,} for {experts:,}"
        )
