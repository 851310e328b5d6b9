"""The floor of a machine: the difference that its noise alone can produce, taken from comparisons of a contender with
itself (A/A)."""

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
"""The fewest A/A comparisons that make a calibrated floor."""
CAP = 16.0
"""The cap on t² in the alarm, so that a single wild comparison cannot raise it."""
_STEPS = 1 << 12


@dataclass(frozen=True)
class Floor:
    """The log ratio below which a difference may be nothing but this machine's noise."""

    value: float
    origin: Literal["default", "calibrated", "spread", "outlier"]
    alarm: bool = False
    """Whether the machine finds a contender different from itself. If so, none of its comparisons has a verdict."""

    def __str__(self) -> str:
        percent = 100 * math.expm1(self.value)
        return f"{self.origin} floor of {percent:{'.1f' if percent >= 1 else '.2g'}}%"


def length_of(shorter_s: float) -> Length:
    """Return the length of work, given the time of the faster of the two contenders."""
    return "long" if shorter_s > SHORT_WORK_S else "short"


def default_floor(shorter_s: float) -> Floor:
    """Return the floor of a machine without calibration: 1% for work over 50 µs, 3% for shorter work."""
    return Floor(0.01 if length_of(shorter_s) == "long" else 0.03, "default")


def floor_for(calibration: Calibration | None, clock: str, shorter_s: float, together: int) -> Floor:
    """Return the floor of one of `together` comparisons that are judged together: the calibrated floor of its clock and
    length of work if there is one, else the default."""
    for noise in calibration.noise if calibration else ():
        if (noise.clock, noise.length) == (clock, length_of(shorter_s)) and len(noise.estimates) >= LEAST:
            assert calibration is not None
            return Floor(floor_of(noise.estimates, together), "calibrated", alarm(noise.ts, calibration.processes))
    return default_floor(shorter_s)


def spread_floor(family: Sequence[Interval], declared: int) -> Floor | None:
    """Return the floor of comparisons that are judged together, from their spread over processes, or None if there are
    fewer than two. Two contenders may differ more from process to process than one contender does from itself, and Holm
    alone lets one run in twenty err (docs/simulation.md). The standard errors are pooled."""
    errors = [theta.sd**2 / theta.n for theta in family if theta.n == declared and theta.n > 1]
    if len(errors) < 2:  # the interval of a single comparison already covers its spread
        return None
    together = len(errors)
    return Floor(t_quantile(1 - 0.025 / together, together * (declared - 1)) * _pooled(errors), "spread")


MISSED = 0.02
"""The accepted probability that a run misses all of the rare slow processes."""


@dataclass(frozen=True)
class Outliers:
    """How far processes lie from the median of their comparison, over all comparisons of one kind: one contender, one
    baseline, one clock and one length of work. If one process in eight is a fifth slower, a third of all runs of eight
    processes have none of the slow ones: their processes agree, but on a different mean. A single comparison cannot
    show that, but its neighbours of the same kind can (docs/simulation.md)."""

    below: float
    """The distance of the slowest process. If a run misses it, the contender looks faster than it is."""
    above: float
    """The distance of the fastest process."""
    usual: float
    """How far away the farthest of this many processes would lie if only the spread of their comparisons were at
    work."""
    processes: int

    @classmethod
    def of(cls, alike: Sequence[Sequence[float]], declared: int) -> Outliers | None:
        """Return the outliers of comparisons of one kind, or None if there are fewer than two. `alike` has the process
        centres of each comparison."""
        if len(alike) < 2:  # the interval of a single comparison already covers its spread
            return None
        apart = [theta - statistics.median(centres) for centres in alike for theta in centres]
        usual = statistics.NormalDist().inv_cdf(1 - 0.025 / len(apart)) * _pooled(
            [statistics.variance(centres) if len(centres) > 1 else 0.0 for centres in alike]
        )
        return cls(max(0.0, -min(apart)), max(0.0, max(apart)), usual, declared)

    def floor(self, mean: float) -> Floor:
        """Return the floor of a mean of this sign: the mean that missed processes alone could produce."""
        return Floor(missed_share(self.processes) * (self.below if mean > 0 else self.above), "outlier")

    @property
    def hidden(self) -> Floor:
        """What missed processes could be worth on either side, counting only the distance beyond `usual`."""
        return Floor(missed_share(self.processes) * max(0.0, max(self.below, self.above) - self.usual), "outlier")

    def processes_for(self, mean: float, most: int = 1000) -> int | None:
        """Return the fewest processes whose floor is under this mean, or None if `most` are not enough."""
        far = self.below if mean > 0 else self.above
        return next((n for n in range(2, most + 1) if missed_share(n) * far < abs(mean)), None)


def _pooled(variances: Sequence[float]) -> float:
    """Return the root of the mean variance, none counted above nine times the median, so that one wild case does not
    raise the floor of all the others."""
    most = 9 * statistics.median(variances)
    return math.sqrt(statistics.fmean(min(one, most) for one in variances))


def missed_share(processes: int) -> float:
    """Return the share of slow processes that a run of this many processes misses entirely with probability MISSED."""
    share: float = 1 - MISSED ** (1 / processes)
    return share


def floor_of(estimates: Sequence[float], together: int) -> float:
    """Return the log ratio that noise alone exceeds in any of `together` cases with a probability of at most 5%, from
    the A/A `estimates`."""
    rms = math.sqrt(sum(estimate * estimate for estimate in estimates) / len(estimates))
    return t_quantile(1 - 0.025 / max(1, together), len(estimates)) * rms


def alarm(ts: Sequence[float], processes: int) -> bool:
    """Return whether A/A comparisons, given the t of each over this many processes, lie farther from zero than chance
    allows. If so, the machine favours a placement or an order, which intervals over processes do not show."""
    level = sum(min(t * t, CAP) for t in ts) / len(ts)
    return level > alarm_level(processes, len(ts))


@lru_cache(maxsize=64)
def alarm_level(processes: int, comparisons: int) -> float:
    """Return the level that the mean of min(t², 16) over unbiased comparisons stays under in 19 of 20 calibrations, by
    convolving its distribution with itself in steps of 1/256."""
    edges = np.linspace(0, CAP, _STEPS + 1)
    below = 1 - 2 * stdtr(processes - 1, -np.sqrt(edges))
    mass = np.zeros(_STEPS * comparisons + 1)
    mass[:_STEPS] = np.diff(below)
    mass[_STEPS] = 1 - below[-1]
    size = 1 << (len(mass) - 1).bit_length()
    total = np.fft.irfft(np.fft.rfft(mass, size) ** comparisons, size)[: len(mass)]
    # A step stands for its midpoint, half a step higher. Capped values are exact.
    middle = 0.5 * comparisons * float(below[-1])
    quantile = int(np.searchsorted(np.cumsum(total), 0.95)) + middle
    return quantile * CAP / _STEPS / comparisons
