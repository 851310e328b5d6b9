"""Where a series of runs changed its level: pure functions over numbers, no record, no I/O.

A series is one figure, on the log scale, of one run after another, each with its standard error over processes. Runs
also differ by what no interval inside a run shows (the day, the temperature, the neighbours), so the noise is
estimated from the series itself, and never taken to be less than the runs say or than a part of the floor.

Candidates are the levels of least cost, with a price for every change (optimal partitioning, as PELT finds it); each is
then tested against its neighbours by Student's t with the pooled spread of the whole series, widened by what a run has
of the one before, and corrected for all the places at which a change could have been seen. The one that fails worst is
dropped and the rest is tested again. Runs that lie apart from both their neighbours are drawn nearer while candidates
are sought, and count in full in the test.
docs/decisions/0017-change-points.md says how often that errs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from groundspeed.judge.statistics import Array, t_quantile, t_two_sided_p

ALPHA = 0.01
"""Chance that noise shows a change somewhere in a series: a site has hundreds of them."""
SHORTEST = 3
"""Runs on either side. One or two that lie apart may be an accident; the next tells."""
ENOUGH = 2 * SHORTEST
"""Runs from which on their scatter is known."""
PRICE = 10.0
"""Of a change, in units of noise squared, beside twice the logarithm of the number of runs."""
LEAST_NOISE = 1 / 3
"""Of the floor: from run to run a machine is never quieter. The floor is what noise exceeds once in twenty times."""
APART = 2.0
"""In units of noise: how far a run may lie from the middle of itself and its neighbours while candidates are sought."""
DEPENDENT = 0.8
"""The most that a run is taken to have of the one before: of more, no series is long enough to tell a level."""
_MAD = 1.4826
"""The median of |x| of a normal distribution is its standard deviation over this."""


@dataclass(frozen=True)
class Change:
    """Between the run before `at` and the run `at`."""

    at: int
    before: float
    after: float
    """The levels, on the log scale, up to the next changes."""
    low: float
    high: float
    """Of the 95% interval of the shift, were it the only place that was looked at."""
    p: float
    """Corrected for all places."""
    runs: int
    """How many show it, on the side where fewer do: those nearer to their own level than to the other."""

    @property
    def shift(self) -> float:
        return self.after - self.before


def find_changes(values: Sequence[float], errors: Sequence[float], floor: float, alpha: float = ALPHA) -> list[Change]:
    """The changes of a series by more than `floor`. An error that is not known, of a run of one process, is infinite
    or NaN: then it is the floor."""
    y, count = np.asarray(values, np.float64), len(values)
    if count < ENOUGH:
        return []
    variance = _variance(errors, floor)
    noise = variance * _noise(y, variance)
    starts = _cheapest(_drawn_nearer(y, APART * np.sqrt(noise)), 1 / noise)
    while starts:
        tested = _test(y, 1 / variance, starts)
        worst = max(tested, key=lambda change: (not _is_of_interest(change, floor), change.p))
        if _is_of_interest(worst, floor) and worst.p <= alpha:
            return tested
        starts.remove(worst.at)
    return []


def _is_of_interest(change: Change, floor: float) -> bool:
    return abs(change.shift) > floor and change.runs >= SHORTEST


def scatter_of(values: Sequence[float], errors: Sequence[float], floor: float) -> list[float]:
    """By how much each run strays from its level, as a standard deviation: one for each of `errors`, which may be more
    than there are `values`. Of few runs it is what they say of themselves."""
    variance = _variance(errors, floor)
    noise = _noise(np.asarray(values, np.float64), variance[: len(values)]) if len(values) >= ENOUGH else 1.0
    return [math.sqrt(noise * one) for one in variance.tolist()]


def _variance(errors: Sequence[float], floor: float) -> Array:
    """Of each run, as far as it is known before one looks at the series."""
    se = np.asarray(errors, np.float64)
    return np.where(np.isfinite(se), se, floor) ** 2 + (LEAST_NOISE * floor) ** 2


def _noise(y: Array, variance: Array) -> float:
    """By how much the variance from run to run exceeds what is known of it, at least 1; by the differences of
    neighbours, of which few lie across a change."""
    apart = np.abs(np.diff(y)) / np.sqrt(variance[1:] + variance[:-1])
    return max(1.0, (_MAD * float(np.median(apart))) ** 2)


def _drawn_nearer(y: Array, most: Array) -> Array:
    """Each value at most so far from the middle one of itself and its neighbours; the first and the last have both
    neighbours on one side."""
    around = np.concatenate([[y[2]], y, [y[-3]]])
    middle = np.median(np.stack([around[:-2], around[1:-1], around[2:]]), axis=0)
    return np.clip(y, middle - most, middle + most)


def _cheapest(y: Array, weights: Array) -> list[int]:
    """Where the segments begin, but the first, whose squared deviations from their means, with a price for each, cost
    least."""
    count = len(y)
    price = PRICE + 2 * math.log(count)
    y = y - float(np.average(y, weights=weights))
    w, wy, wyy = (np.concatenate([[0.0], np.cumsum(x)]) for x in (weights, weights * y, weights * y * y))
    best, before = np.full(count + 1, math.inf), np.zeros(count + 1, np.int64)
    best[0] = -price
    for end in range(SHORTEST, count + 1):
        begins = np.arange(0, end - SHORTEST + 1)
        spread = wyy[end] - wyy[begins] - (wy[end] - wy[begins]) ** 2 / (w[end] - w[begins])
        costs = best[begins] + spread + price
        choice = int(np.argmin(costs))
        best[end], before[end] = costs[choice], choice
    starts, at = [], int(before[count])
    while at > 0:
        starts.append(at)
        at = int(before[at])
    return starts[::-1]


def _test(y: Array, weights: Array, starts: Sequence[int]) -> list[Change]:
    """Each change against its neighbours, by the pooled spread of all segments and what a run carries over."""
    edges = [0, *starts, len(y)]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    means = [float(np.average(y[part], weights=weights[part])) for part in parts]
    totals = [float(weights[part].sum()) for part in parts]
    left = sum(float((weights[p] * (y[p] - m) ** 2).sum()) for p, m in zip(parts, means, strict=True))
    df = len(y) - len(parts)
    carried = _carried([np.sqrt(weights[p]) * (y[p] - m) for p, m in zip(parts, means, strict=True)])
    spread = math.sqrt(max(1.0, left / df) * (1 + carried) / (1 - carried))  # of a mean of runs that depend
    places = len(y) - 1
    found = []
    for i, at in enumerate(starts):
        shift, error = means[i + 1] - means[i], spread * math.sqrt(1 / totals[i] + 1 / totals[i + 1])
        half = t_quantile(0.975, df) * error
        p = min(1.0, places * t_two_sided_p(shift / error, df))
        above = (y > (means[i] + means[i + 1]) / 2) == (shift > 0)
        runs = min(int((~above[parts[i]]).sum()), int(above[parts[i + 1]].sum()))
        found.append(Change(at, means[i], means[i + 1], shift - half, shift + half, p, runs))
    return found


def _carried(apart: Sequence[Array]) -> float:
    """What a run has of the one before it, as a share: the autocorrelation at lag 1 of how far runs lie from their
    levels, never negative. Levels that are estimated take from it; Marriott and Pope say how much."""
    count, total = sum(map(len, apart)), sum(float((one * one).sum()) for one in apart)
    if total <= 0:
        return 0.0
    seen = sum(float((one[1:] * one[:-1]).sum()) for one in apart) / total
    return min(DEPENDENT, max(0.0, seen + len(apart) * (1 + 4 * max(0.0, seen)) / count))
