"""D2: the floor and the alarm of a machine, from comparisons of a contender with itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from groundspeed.judge.floors import alarm, alarm_level, floor_of


@pytest.mark.parametrize(("processes", "level"), [(4, 3.37), (8, 2.29), (12, 2.01)])
def test_the_alarm_is_where_the_procedure_says_at_twenty_comparisons(processes: int, level: float) -> None:
    assert alarm_level(processes, 20) == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize(("processes", "comparisons"), [(2, 21), (4, 40), (8, 80), (16, 33)])
def test_the_alarm_goes_off_in_one_of_twenty_unbiased_calibrations(processes: int, comparisons: int) -> None:
    t = np.random.default_rng(1).standard_t(processes - 1, (20_000, comparisons))
    went_off = (np.minimum(t * t, 16).mean(axis=1) > alarm_level(processes, comparisons)).mean()
    assert went_off == pytest.approx(0.05, abs=0.006)


def test_it_goes_off_on_bias_and_not_on_one_wild_comparison() -> None:
    quiet = stats.t.ppf((np.arange(20) + 0.5) / 20, 7).tolist()
    assert not alarm(quiet, 8)
    assert not alarm([*quiet[:-1], 1e6], 8)
    assert alarm([t + 2 for t in quiet], 8)


def test_the_floor_grows_with_noise_and_with_the_cases_judged_together() -> None:
    quiet, loud = [0.001, -0.001] * 10, [0.01, -0.01] * 10
    assert floor_of(quiet, 1) == pytest.approx(0.001 * stats.t.ppf(0.975, 20))
    assert floor_of(loud, 1) == pytest.approx(10 * floor_of(quiet, 1))
    assert floor_of(quiet, 36) == pytest.approx(0.001 * stats.t.ppf(1 - 0.025 / 36, 20))


def test_noise_alone_goes_over_the_floor_of_a_family_in_one_of_twenty_runs() -> None:
    generator = np.random.default_rng(2)
    over = 0
    for _ in range(2000):
        estimates = generator.normal(0, 0.004, 20)
        over += bool(np.abs(generator.normal(0, 0.004, 10)).max() > floor_of(estimates.tolist(), 10))
    assert over / 2000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
