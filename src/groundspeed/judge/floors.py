"""The floor of a machine: what its noise can make out of nothing, as comparisons of a contender with itself show it
(A/A)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import stdtr

from groundspeed.evidence.calibration import Calibration, Length
from groundspeed.judge.statistics import Interval, t_quantile

SHORT_WORK_S = 50e-6

LEAST = 20
"""Fewer A/A comparisons than this make no floor."""
CAP = 16.0
"""One wild comparison alone raises no alarm."""
_STEPS = 1 << 12


@dataclass(frozen=True)
class Floor:
    """The log ratio under which this machine's noise could make a difference out of nothing."""

    value: float
    origin: Literal["default", "calibrated", "spread", "outlier"]
    alarm: bool = False
    """The machine tells a contender from itself: nothing it says counts."""

    def __str__(self) -> str:
        percent = 100 * math.expm1(self.value)
        return f"{self.origin} floor of {percent:{'.1f' if percent >= 1 else '.2g'}}%"


def length_of(shorter_s: float) -> Length:
    """Of work, by the time of the shorter of two contenders."""
    return "long" if shorter_s > SHORT_WORK_S else "short"


def default_floor(shorter_s: float) -> Floor:
    """For a machine without calibration: 1% for work over 50 µs, 3% under."""
    return Floor(0.01 if length_of(shorter_s) == "long" else 0.03, "default")


def floor_for(calibration: Calibration | None, clock: str, shorter_s: float, together: int) -> Floor:
    """The floor of a comparison, of so many that are judged together: the calibrated one of its clock and length of
    work where there is one, else the default."""
    for noise in calibration.noise if calibration else ():
        if (noise.clock, noise.length) == (clock, length_of(shorter_s)) and len(noise.estimates) >= LEAST:
            assert calibration is not None
            return Floor(floor_of(noise.estimates, together), "calibrated", alarm(noise.ts, calibration.processes))
    return default_floor(shorter_s)


def spread_floor(family: Sequence[Interval], declared: int) -> Floor | None:
    """The floor of comparisons that are judged together, by how they spread over processes: two contenders may differ
    more from process to process than one from itself, and Holm alone lets one run in twenty err (docs/simulation.md).
    The standard errors are pooled."""
    errors = [theta.sd**2 / theta.n for theta in family if theta.n == declared and theta.n > 1]
    if len(errors) < 2:  # of one, it is its interval
        return None
    together = len(errors)
    return Floor(t_quantile(1 - 0.025 / together, together * (declared - 1)) * _pooled(errors), "spread")


MISSED = 0.02
"""The chance with which a run may miss every process of a kind that is rarely slow."""


@dataclass(frozen=True)
class Outliers:
    """How far processes lie from the median of their comparison, among comparisons that are alike: of one contender
    against one baseline, by one clock, on work of one length. Where one process of eight is a fifth slower, a third of
    all runs of eight have none such, agree, and on another mean: what one comparison cannot show, the others next to it
    do (docs/simulation.md)."""

    below: float
    """Of the slowest: without it the contender looks faster than it is."""
    above: float
    usual: float
    """How far the farthest of as many would lie by the spread of their comparisons alone."""
    processes: int

    @classmethod
    def of(cls, alike: Sequence[Sequence[float]], declared: int) -> Outliers | None:
        """`alike` has the centres of each comparison."""
        if len(alike) < 2:  # of one, it is its interval
            return None
        apart = [theta - statistics.median(centres) for centres in alike for theta in centres]
        usual = statistics.NormalDist().inv_cdf(1 - 0.025 / len(apart)) * _pooled(
            [statistics.variance(centres) if len(centres) > 1 else 0.0 for centres in alike]
        )
        return cls(max(0.0, -min(apart)), max(0.0, max(apart)), usual, declared)

    def floor(self, mean: float) -> Floor:
        """Of a mean of this sign: what it would be by processes that were missed."""
        return Floor(missed_share(self.processes) * (self.below if mean > 0 else self.above), "outlier")

    @property
    def hidden(self) -> Floor:
        """What processes that were missed could be worth on either side, by what is farther than usual."""
        return Floor(missed_share(self.processes) * max(0.0, max(self.below, self.above) - self.usual), "outlier")

    def processes_for(self, mean: float, most: int = 1000) -> int | None:
        """How many leave a floor under this mean."""
        far = self.below if mean > 0 else self.above
        return next((n for n in range(2, most + 1) if missed_share(n) * far < abs(mean)), None)


def _pooled(variances: Sequence[float]) -> float:
    """Their root mean, none above nine times the median, so that one wild case does not blind the others."""
    most = 9 * statistics.median(variances)
    return math.sqrt(statistics.fmean(min(one, most) for one in variances))


def missed_share(processes: int) -> float:
    """What happens to so large a share of processes is missed by so many of them with a chance of MISSED."""
    share: float = 1 - MISSED ** (1 / processes)
    return share


def floor_of(estimates: Sequence[float], together: int) -> float:
    """The log ratio that noise alone exceeds in one of `together` cases with 5% at most, by A/A `estimates`."""
    rms = math.sqrt(sum(estimate * estimate for estimate in estimates) / len(estimates))
    return t_quantile(1 - 0.025 / max(1, together), len(estimates)) * rms


def alarm(ts: Sequence[float], processes: int) -> bool:
    """Whether A/A comparisons, by their t over so many processes each, lie further from nothing than chance allows:
    then something about the machine favours a place or an order, and intervals over processes do not show it."""
    level = sum(min(t * t, CAP) for t in ts) / len(ts)
    return level > alarm_level(processes, len(ts))


@lru_cache(maxsize=64)
def alarm_level(processes: int, comparisons: int) -> float:
    """What the mean of min(t², 16) over unbiased comparisons stays under in 19 of 20 calibrations: its distribution,
    folded with itself in steps of 1/256."""
    edges = np.linspace(0, CAP, _STEPS + 1)
    below = 1 - 2 * stdtr(processes - 1, -np.sqrt(edges))
    mass = np.zeros(_STEPS * comparisons + 1)
    mass[:_STEPS] = np.diff(below)
    mass[_STEPS] = 1 - below[-1]
    size = 1 << (len(mass) - 1).bit_length()
    total = np.fft.irfft(np.fft.rfft(mass, size) ** comparisons, size)[: len(mass)]
    # A step stands for its middle, half a step up; the capped ones stand where they are.
    middle = 0.5 * comparisons * float(below[-1])
    quantile = int(np.searchsorted(np.cumsum(total), 0.95)) + middle
    return quantile * CAP / _STEPS / comparisons
