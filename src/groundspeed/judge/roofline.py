"""The roofline of a device: what its arithmetic and its memory allow, and which of the two bounds the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groundspeed.evidence.calibration import Calibration
from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.limits import Peaks

Bound = Literal["compute", "memory"]

FAR_BELOW = 0.1
"""Below this share of what the roofs allow, neither roof bounds a contender: launches and latency set its time."""


@dataclass(frozen=True)
class Roofs:
    origin: Literal["measured", "datasheet"]
    flops: float
    """FLOP/s."""
    bandwidth: float
    """Bytes per second."""

    @property
    def ridge(self) -> float:
        """The FLOP per byte from which arithmetic is the bound."""
        return self.flops / self.bandwidth

    def allow(self, intensity: float) -> float:
        """Return the FLOP/s that the roofs allow for work of this many FLOP per byte."""
        return min(self.flops, intensity * self.bandwidth)

    def bound(self, intensity: float) -> Bound:
        return "compute" if intensity >= self.ridge else "memory"


def roofs_of(judgement: Judgement, dtype: str) -> tuple[Roofs, ...]:
    """Return the roofs that the calibration of the run measured, then those of the datasheet. Either may be missing."""
    return roofs_from(judgement.record.calibration, judgement.peaks, dtype)


def roofs_from(calibration: Calibration | None, peaks: Peaks | None, dtype: str) -> tuple[Roofs, ...]:
    found = []
    if calibration:
        products = [roof.rate for roof in calibration.roofs if (roof.what, roof.dtype) == ("matmul", dtype)]
        copies = [roof.rate for roof in calibration.roofs if roof.what == "copy"]
        if products and copies:
            found.append(Roofs("measured", max(products), max(copies)))
    ceiling = peaks.ceiling(dtype) if peaks else None
    if peaks and ceiling:
        found.append(Roofs("datasheet", ceiling, peaks.bandwidth))
    return tuple(found)


def roofs_of_case(judgement: Judgement, case: CaseJudgement) -> tuple[Roofs, ...]:
    return roofs_of(judgement, str(case.facts.params.get("dtype")))


def intensity(case: CaseFacts) -> float | None:
    """Return the FLOP per byte that the mathematics must move, or None if it computes or moves nothing."""
    return case.flops / case.bytes if case.flops and case.bytes else None


def share(judgement: Judgement, case: CaseJudgement, result: Result) -> float | None:
    """Return the share that a contender reaches of what the roofs allow, using the measured roofs if there are any.
    Return None if no roofs are known, if the contender has no time, or if the cache serves the inputs instead of the
    memory."""
    found, x = roofs_of_case(judgement, case), intensity(case.facts)
    if not found or x is None or result.rates is None or case.l2_resident:
        return None
    return result.rates.flops / found[0].allow(x)
