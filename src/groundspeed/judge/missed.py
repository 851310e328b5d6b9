"""What two runs may have missed: of processes that are rarely slow, one run may have some and the other none.

Of the same code that makes no difference out of nothing: where both missed them they agree, and where one did, the
other spreads. It does where only one of the two has such processes, and the mean of both is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groundspeed.judge.floors import Floor, Outliers
from groundspeed.judge.rule import Kind, outliers_among


@dataclass(frozen=True)
class Missed:
    """By what all comparisons of the same kind show, each run about its own: this one and those beside it. None where
    there is none beside it."""

    base: Outliers | None
    head: Outliers | None

    def floor(self, mean: float) -> Floor:
        """Of a mean of this sign, above 0 where head seems faster: head missed slow processes, or base fast ones."""
        sides = ((self.base, -mean), (self.head, mean))
        return Floor(math.hypot(*(run.floor(sign).value for run, sign in sides if run)), "outlier")

    @property
    def hidden(self) -> Floor:
        return Floor(math.hypot(*(run.hidden.value for run in (self.base, self.head) if run)), "outlier")


def missed_by(
    kinds: Sequence[Kind], base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], declared: tuple[int, int]
) -> list[Missed]:
    """Of comparisons of these kinds, with the centres of each in both runs, which declared so many processes."""
    before, after = (
        outliers_among(zip(kinds, centres, strict=True), processes)
        for centres, processes in zip((base, head), declared, strict=True)
    )
    return [Missed(before.get(kind), after.get(kind)) for kind in kinds]
