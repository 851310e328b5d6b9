"""Where work stands under the roofs of a device: what its arithmetic and its memory allow, and which of them binds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groundspeed.evidence.calibration import Calibration
from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.limits import Peaks

Bound = Literal["compute", "memory"]

FAR_BELOW = 0.1
"""Who reaches less than this of what the roofs allow is held up by neither: launches and latency set its time."""


@dataclass(frozen=True)
class Roofs:
    origin: Literal["measured", "datasheet"]
    flops: float
    """FLOP/s."""
    bandwidth: float
    """Bytes a second."""

    @property
    def ridge(self) -> float:
        """FLOP to a byte from which on arithmetic binds."""
        return self.flops / self.bandwidth

    def allow(self, intensity: float) -> float:
        """FLOP/s of work that has so many FLOP to a byte."""
        return min(self.flops, intensity * self.bandwidth)

    def bound(self, intensity: float) -> Bound:
        return "compute" if intensity >= self.ridge else "memory"


def roofs_of(judgement: Judgement, dtype: str) -> tuple[Roofs, ...]:
    """What the calibration of the run measured, then what the datasheet says; either may be missing."""
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
    """FLOP to a byte that the maths must move; None where it does or moves nothing."""
    return case.flops / case.bytes if case.flops and case.bytes else None


def share(judgement: Judgement, case: CaseJudgement, result: Result) -> float | None:
    """Of what the roofs allow, the measured ones where there are any; None where none are known, where the contender
    has no time, and where the cache serves what the memory's roof is about."""
    found, x = roofs_of_case(judgement, case), intensity(case.facts)
    if not found or x is None or result.rates is None or case.l2_resident:
        return None
    return result.rates.flops / found[0].allow(x)
