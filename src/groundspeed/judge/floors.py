"""The floor of a machine: what its noise can make out of nothing, as comparisons of a contender with itself show it
(A/A). Pure functions over numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import stdtr

from groundspeed.judge.statistics import t_quantile

LEAST = 20
"""Fewer A/A comparisons than this make no floor."""
CAP = 16.0
"""One wild comparison alone raises no alarm."""
_STEPS = 1 << 12


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
