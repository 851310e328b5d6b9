"""Where a series of runs changed its level: pure functions over numbers, without records or I/O.

A series is one figure, on the log scale, of successive runs, each with its standard error over processes. Runs also
differ by what no interval within a run shows (the day, the temperature, the neighbours), so the noise is estimated
from the series itself. It is never taken to be less than the runs' own errors or a part of the floor.

Candidates are the levels of least cost, with a price for every change (optimal partitioning, which PELT computes). Each
change is then tested by Student's t between its two levels, with the pooled spread of the whole series, widened by the
autocorrelation of the runs and corrected for all the places at which a change could have been. The change that fails
worst is dropped and the rest are tested again. A run that lies apart from both its neighbours is drawn nearer during
the search for candidates, but counts in full in the test.
docs/decisions/0017-change-points.md says how often this errs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from groundspeed.judge.statistics import Array, t_quantile, t_two_sided_p

ALPHA = 0.01
"""The chance that noise shows a change somewhere in a series. It is low because a site has hundreds of series."""
SHORTEST = 3
"""The fewest runs on either side of a change. One or two runs that lie apart may be an accident; the next will tell."""
ENOUGH = 2 * SHORTEST
"""The fewest runs whose scatter counts as known."""
PRICE = 10.0
"""The price of a change, in units of noise squared, added to twice the logarithm of the number of runs."""
LEAST_NOISE = 1 / 3
"""The least noise from run to run, as a share of the floor: no machine is quieter. Noise exceeds the floor once in
twenty times."""
APART = 2.0
"""How far a run may lie from the median of itself and its neighbours during the search for candidates, in units of
noise."""
DEPENDENT = 0.8
"""The highest autocorrelation assumed. With a higher one, no series is long enough to show a level."""
_MAD = 1.4826
"""The standard deviation of a normal distribution divided by the median of |x|."""


@dataclass(frozen=True)
class Change:
    """A change between the run before `at` and the run `at`."""

    at: int
    before: float
    after: float
    """The levels on either side, on the log scale, up to the next changes."""
    low: float
    high: float
    """The 95% interval of the shift, as if this were the only place examined."""
    p: float
    """The p value, corrected for all places."""
    runs: int
    """The number of runs that show the change, being nearer to their own level than to the other, on the side where
    fewer do."""

    @property
    def shift(self) -> float:
        return self.after - self.before


def find_changes(values: Sequence[float], errors: Sequence[float], floor: float, alpha: float = ALPHA) -> list[Change]:
    """Return the changes of a series by more than `floor`. The error of a run of a single process is unknown, given as
    infinite or NaN; the floor stands in for it."""
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
    """Return by how much each run strays from its level, as a standard deviation, one for each of `errors`, of which
    there may be more than `values`. With few runs it comes from their own errors alone."""
    variance = _variance(errors, floor)
    noise = _noise(np.asarray(values, np.float64), variance[: len(values)]) if len(values) >= ENOUGH else 1.0
    return [math.sqrt(noise * one) for one in variance.tolist()]


def _variance(errors: Sequence[float], floor: float) -> Array:
    """Return the variance of each run, as far as it is known without looking at the series."""
    se = np.asarray(errors, np.float64)
    return np.where(np.isfinite(se), se, floor) ** 2 + (LEAST_NOISE * floor) ** 2


def _noise(y: Array, variance: Array) -> float:
    """Return the factor, at least 1, by which the variance from run to run exceeds what is known of it. It comes from
    the differences of neighbours, few of which span a change."""
    apart = np.abs(np.diff(y)) / np.sqrt(variance[1:] + variance[:-1])
    return max(1.0, (_MAD * float(np.median(apart))) ** 2)


def _drawn_nearer(y: Array, most: Array) -> Array:
    """Clip each value to at most this far from the median of itself and its two neighbours. For the first and the last
    value both neighbours are on one side."""
    around = np.concatenate([[y[2]], y, [y[-3]]])
    middle = np.median(np.stack([around[:-2], around[1:-1], around[2:]]), axis=0)
    return np.clip(y, middle - most, middle + most)


def _cheapest(y: Array, weights: Array) -> list[int]:
    """Return where the segments after the first begin, for the segments of least cost: their squared deviations from
    their means, plus a price for each."""
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
    """Test the level on either side of each change, by the pooled spread of all segments and the autocorrelation of the
    runs."""
    edges = [0, *starts, len(y)]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    means = [float(np.average(y[part], weights=weights[part])) for part in parts]
    totals = [float(weights[part].sum()) for part in parts]
    left = sum(float((weights[p] * (y[p] - m) ** 2).sum()) for p, m in zip(parts, means, strict=True))
    df = len(y) - len(parts)
    carried = _carried([np.sqrt(weights[p]) * (y[p] - m) for p, m in zip(parts, means, strict=True)])
    spread = math.sqrt(max(1.0, left / df) * (1 + carried) / (1 - carried))  # for the mean of dependent runs
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
    """Return the autocorrelation at lag 1 of the runs' distances from their levels, never negative. Estimating the
    levels biases it downwards, which is corrected for (Marriott and Pope)."""
    count, total = sum(map(len, apart)), sum(float((one * one).sum()) for one in apart)
    if total <= 0:
        return 0.0
    seen = sum(float((one[1:] * one[:-1]).sum()) for one in apart) / total
    return min(DEPENDENT, max(0.0, seen + len(apart) * (1 + 4 * max(0.0, seen)) / count))
