"""What two runs may have missed: one run may contain rare slow processes, and the other none.

Between runs of the same code that causes no false difference: if both runs missed the slow processes they agree, and if
one did, the spread of the other is wide. Between runs of different code it can cause a false difference, if only one of
the two has slow processes and both have the same mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groundspeed.judge.floors import Floor, Outliers
from groundspeed.judge.rule import Kind, outliers_among


@dataclass(frozen=True)
class Missed:
    """The outliers of one kind of comparison in each of two runs, over all comparisons of that kind in the run; None if
    there is only one of them."""

    base: Outliers | None
    head: Outliers | None

    def floor(self, mean: float) -> Floor:
        """Return the floor of a mean of this sign. Above 0 head seems faster, perhaps because head missed slow
        processes or base missed fast ones."""
        sides = ((self.base, -mean), (self.head, mean))
        return Floor(math.hypot(*(run.floor(sign).value for run, sign in sides if run)), "outlier")

    @property
    def hidden(self) -> Floor:
        return Floor(math.hypot(*(run.hidden.value for run in (self.base, self.head) if run)), "outlier")


def missed_by(
    kinds: Sequence[Kind], base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], declared: tuple[int, int]
) -> list[Missed]:
    """Return what the two runs may have missed for each comparison, given its kind, its process centres in both runs
    and the number of processes that each run declared."""
    before, after = (
        outliers_among(zip(kinds, centres, strict=True), processes)
        for centres, processes in zip((base, head), declared, strict=True)
    )
    return [Missed(before.get(kind), after.get(kind)) for kind in kinds]
