"""The statistics of a comparison: pure functions over numbers, without records or I/O.

θ = log(baseline time / contender time), so above 0 is faster. Within a process θ is summarised by its
20% trimmed mean with Yuen's standard error; across processes by Student's t over the process centres.
Distributions come from scipy.special because importing scipy.stats would cost every command half a second. The
tests compare each function here with scipy.stats.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

Array = npt.NDArray[np.float64]
Numbers = Sequence[float] | Array

TRIM = 0.2
CONFIDENCE = 0.95
POWER = 0.9


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    return float(stdtrit(df, probability))


def t_two_sided_p(t: float, df: float) -> float:
    return float(2 * stdtr(df, -abs(t)))


def _mean(x: Array) -> float:
    """Return the mean, clamped to the range of the values, so that the mean of equal values is exactly that value."""
    return _mean_between(x, float(x.min()), float(x.max()))


def _mean_between(x: Array, least: float, greatest: float) -> float:
    return min(max(float(np.add.reduce(x)) / len(x), least), greatest)


@dataclass(frozen=True)
class Trimmed:
    """A trimmed mean with its Yuen standard error and degrees of freedom."""

    mean: float
    se: float
    df: int

    def half_width(self, confidence: float = CONFIDENCE) -> float:
        if self.df < 1:
            return math.inf
        return t_quantile((1 + confidence) / 2, self.df) * self.se


def trimmed(values: Numbers, trim: float = TRIM) -> Trimmed:
    """Return the trimmed mean of `values`, with the standard error from the winsorised variance (Yuen 1974)."""
    x = np.sort(np.asarray(values, np.float64))
    n = len(x)
    if n == 0:
        raise ValueError("no values")
    cut = math.floor(trim * n)
    h = n - 2 * cut
    least, greatest = float(x[cut]), float(x[n - cut - 1])
    mean = _mean_between(x[cut : n - cut], least, greatest)
    if h < 2:
        return Trimmed(mean, math.inf, 0)
    x[:cut], x[n - cut :] = least, greatest  # winsorised
    x -= _mean_between(x, least, greatest)
    return Trimmed(mean, math.sqrt(float(np.add.reduce(x * x)) / (h * (h - 1))), h - 1)


@dataclass(frozen=True)
class Interval:
    """A mean over processes with its t-interval; `p` tests a mean of 0."""

    mean: float
    low: float
    high: float
    sd: float
    p: float
    n: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def t_interval(values: Numbers, confidence: float = CONFIDENCE) -> Interval:
    """Return Student's t-interval over `values`. For a single value the interval is infinite and p = 1."""
    x = np.asarray(values, np.float64)
    n, mean = len(x), _mean(x)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, math.nan, 1.0, n)
    sd = math.sqrt(float(np.sum((x - mean) ** 2)) / (n - 1))
    se = sd / math.sqrt(n)
    half = t_quantile((1 + confidence) / 2, n - 1) * se
    if se > 0:
        p = t_two_sided_p(mean / se, n - 1)
    else:
        p = 1.0  # no spread: the clock is too coarse to tell, so this uses up no step of Holm's
    return Interval(mean, mean - half, mean + half, sd, p, n)


def welch_interval(before: Numbers, after: Numbers, confidence: float = CONFIDENCE) -> Interval:
    """Return Welch's t-interval of the mean of `after` less that of `before`, which are not paired. `n` is the smaller
    number of values, and `sd` is the standard deviation that gives this standard error with n values. If one side has a
    single value, the interval is infinite and p = 1."""
    x, y = (np.asarray(values, np.float64) for values in (before, after))
    n, mean = min(len(x), len(y)), _mean(y) - _mean(x)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, math.nan, 1.0, n)
    parts = [float(np.sum((v - _mean(v)) ** 2)) / (len(v) - 1) / len(v) for v in (x, y)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Interval(mean, mean, mean, 0.0, 1.0, n)
    df = error**4 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (x, y), strict=True))
    half = t_quantile((1 + confidence) / 2, df) * error
    return Interval(mean, mean - half, mean + half, error * math.sqrt(n), t_two_sided_p(mean / error, df), n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted by Holm's step-down method: comparing each with 0.05 keeps the family's error at
    5%."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def processes_to_detect(effect: float, sd: float, alpha: float, limit: int = 1000) -> int | None:
    """Return the fewest processes at which an effect of this size and spread reaches `alpha`, two-sided, in 9 runs of
    10, or None if `limit` are not enough."""
    return _fewest(lambda n: _reach(1 - alpha / 2, n) * sd < abs(effect), limit)


def detectable(sd: float, n: int, alpha: float) -> float:
    """Return the least effect that reaches `alpha`, two-sided, in 9 of 10 runs of n processes with this spread."""
    return _reach(1 - alpha / 2, n) * sd


def processes_to_enclose(effect: float, sd: float, low: float, high: float, limit: int = 1000) -> int | None:
    """Return the fewest processes at which the 95% interval around `effect` lies in [low, high] in 9 runs of 10, or
    None if `limit` are not enough."""
    room = min(effect - low, high - effect)
    return _fewest(lambda n: _reach(0.975, n) * sd <= room, limit)


def _reach(probability: float, n: int) -> float:
    """Return the least effect that a mean over n shows with 90% power, in standard deviations."""
    return (t_quantile(probability, n - 1) + t_quantile(POWER, n - 1)) / math.sqrt(n)


def _fewest(enough: Any, limit: int) -> int | None:
    return next((n for n in range(2, limit + 1) if enough(n)), None)


def paired_t_p(theta: Numbers) -> float:
    """Return the paired t-test's p over the blocks of one process (descriptive only: blocks are not independent)."""
    return t_interval(theta).p


def wilcoxon_p(theta: Numbers) -> float:
    """Return Wilcoxon's signed-rank p over the blocks of one process (descriptive only), by the normal approximation
    with corrections for ties and continuity. Zeros are dropped."""
    x = np.asarray(theta, np.float64)
    x = x[x != 0]
    n = len(x)
    if n == 0:
        return 1.0
    _, inverse, counts = np.unique(np.abs(x), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive = float(ranks[x > 0].sum())
    variance = n * (n + 1) * (2 * n + 1) / 24 - float(np.sum(counts**3 - counts)) / 48
    distance = max(0.0, abs(positive - n * (n + 1) / 4) - 0.5)
    return float(2 * ndtr(-distance / math.sqrt(variance)))


@lru_cache(maxsize=8)
def _shares(n: int, resamples: int, seed: int) -> Array:
    """Return the share of each resample that every value has. This is cached because drawing costs the most, and the
    numbers of blocks of processes take few values."""
    draws = np.random.default_rng(seed).integers(0, n, (resamples, n))
    places = draws + n * np.arange(resamples)[:, np.newaxis]
    return np.bincount(places.ravel(), minlength=resamples * n).reshape(resamples, n) / n


def bca_interval(values: Numbers, *, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Return the BCa bootstrap interval of the mean over the blocks of one process (descriptive only).

    The jackknife of a mean has a closed form, so the acceleration costs nothing."""
    x = np.asarray(values, np.float64)
    n = len(x)
    if n < 2 or float(np.ptp(x)) == 0.0:
        return float(x.mean()), float(x.mean())
    means = _shares(n, resamples, seed) @ x
    below = (np.sum(means < x.mean()) + np.sum(means <= x.mean())) / (2 * resamples)
    bias = float(ndtri(np.clip(below, 1 / resamples, 1 - 1 / resamples)))
    deviation = x - x.mean()
    deviation /= np.abs(deviation).max()  # skew is scale-free, and cubes of small numbers underflow
    skew = float(np.sum(deviation**3)) / (6 * float(np.sum(deviation**2)) ** 1.5)
    z = ndtri(np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    levels = ndtr(bias + (bias + z) / (1 - skew * (bias + z)))
    low, high = quantiles(np.sort(means), levels.tolist())
    return float(low), float(high)


def quantiles(ordered: Numbers, levels: Sequence[float]) -> list[float]:
    """Return what np.quantile returns for values in ascending order, to the last bit, but without its overhead, which
    takes longer than the work."""
    found = []
    for level in levels:
        at = level * (len(ordered) - 1)
        below = min(int(at), len(ordered) - 1)
        low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
        share = at - below
        found.append(low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share))
    return found


def iqr_outliers(ordered: Sequence[float]) -> int:
    """Return how many values lie outside Tukey's fences, 1.5×IQR beyond the quartiles. They must be in ascending
    order."""
    q1, q3 = quantiles(ordered, (0.25, 0.75))
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    return bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high)
