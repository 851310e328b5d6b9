"""What all verdicts of a run share: Holm's family, the level, and the floors that a difference must exceed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from groundspeed.evidence.calibration import Length
from groundspeed.judge.floors import Floor, Outliers

if TYPE_CHECKING:
    from groundspeed.judge.verdict import Comparison

Kind = tuple[str, str, str, Length]
"""Contender, baseline, clock and length of work. A rare slow process in one comparison is evidence about every
comparison of the same kind."""


def _kind(comparison: Comparison) -> Kind:
    return comparison.contender, comparison.baseline, comparison.clock, comparison.length


def outliers_of(family: Sequence[Comparison], declared: int) -> dict[Kind, Outliers]:
    return outliers_among(((_kind(c), [x.theta.mean for x in c.centres]) for c in family), declared)


def outliers_among(comparisons: Iterable[tuple[Kind, Sequence[float]]], declared: int) -> dict[Kind, Outliers]:
    """Return the outliers of each kind, from the process centres of each comparison."""
    alike: dict[Kind, list[Sequence[float]]] = {}
    for kind, centres in comparisons:
        alike.setdefault(kind, []).append(centres)
    found = {kind: Outliers.of(centres, declared) for kind, centres in alike.items()}
    return {kind: outliers for kind, outliers in found.items() if outliers}


@dataclass(frozen=True)
class Rule:
    """What all verdicts of a run share: the size of Holm's family, the number of declared processes and the level."""

    family: int
    declared: int
    alpha: float
    spread: Floor | None = None
    """The floor from the spread of the run's own comparisons."""
    outliers: Mapping[Kind, Outliers] = field(default_factory=dict)

    def floor_of(self, comparison: Comparison) -> Floor:
        outliers = self.outliers_of(comparison)
        return _highest(self.noise_of(comparison), outliers.floor(comparison.interval.mean) if outliers else None)

    def outliers_of(self, comparison: Comparison) -> Outliers | None:
        return self.outliers.get(_kind(comparison))

    def noise_of(self, comparison: Comparison) -> Floor:
        """Return the floor without that of the outliers. It applies to the difference between two timers, because both
        watched the same calls."""
        return _highest(comparison.floor, self.spread)


def _highest(floor: Floor, other: Floor | None) -> Floor:
    return other if other and other.value > floor.value else floor
