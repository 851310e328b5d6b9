"""The statistics against scipy.stats and against figures computed by hand (A6, statistics.md 7 to 9)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.judge.statistics import (
    bca_interval,
    holm,
    iqr_outliers,
    paired_t_p,
    processes_to_detect,
    processes_to_enclose,
    quantiles,
    t_interval,
    t_quantile,
    t_two_sided_p,
    trimmed,
    wilcoxon_p,
)

thetas = st.floats(-10.0, 10.0, allow_nan=False)
samples = st.lists(thetas, min_size=2, max_size=60)
probabilities = st.floats(0.0, 1.0, allow_nan=False)


def normal(n: int, mean: float = 0.0, seed: int = 0) -> list[float]:
    return list(map(float, np.random.default_rng(seed).normal(mean, 0.02, n)))


def skewed(n: int, seed: int = 0) -> list[float]:
    return list(map(float, np.random.default_rng(seed).exponential(0.02, n)))


class TestStudent:
    def test_quantiles_of_the_printed_table(self) -> None:
        assert t_quantile(0.975, 3) == pytest.approx(3.182, abs=5e-4)
        assert t_quantile(0.975, 7) == pytest.approx(2.365, abs=5e-4)
        assert t_quantile(0.975, 11) == pytest.approx(2.201, abs=5e-4)

    @pytest.mark.parametrize("df", [1, 3, 7, 11, 200])
    def test_against_scipy(self, df: int) -> None:
        assert t_quantile(0.9, df) == pytest.approx(scipy.stats.t.ppf(0.9, df), rel=1e-9)
        assert t_two_sided_p(-1.7, df) == t_two_sided_p(1.7, df)
        assert t_two_sided_p(1.7, df) == pytest.approx(2 * scipy.stats.t.sf(1.7, df), rel=1e-9)


class TestTrimmed:
    def test_by_hand(self) -> None:
        """1 … 9 and an outlier: 3 … 8 are kept; winsorised 3 3 3 4 5 6 7 8 8 8 with a sum of squares of 42.5."""
        result = trimmed([5, 3, 8, 1, 1000, 7, 2, 9, 4, 6])
        assert (result.mean, result.df) == (5.5, 5)
        assert result.se == pytest.approx(math.sqrt(42.5 / (6 * 5)))
        assert result.half_width() == pytest.approx(2.5706 * math.sqrt(42.5 / 30), rel=1e-4)

    @pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 10, 15, 20, 40, 80])
    def test_against_scipy(self, n: int) -> None:
        """Yuen's test against a sample of zeros is the one-sample test: their variance adds nothing."""
        values = skewed(n, seed=n)
        result = trimmed(values)
        assert result.mean == pytest.approx(scipy.stats.trim_mean(values, 0.2), rel=1e-12)
        yuen = scipy.stats.ttest_ind(values, np.zeros(n), equal_var=False, trim=0.2)
        assert result.mean / result.se == pytest.approx(yuen.statistic, rel=1e-9)
        assert result.df == pytest.approx(yuen.df, rel=1e-9)

    def test_without_trimming_it_is_the_mean_and_its_standard_error(self) -> None:
        values = normal(12)
        result = trimmed(values, trim=0.0)
        assert result.mean == pytest.approx(np.mean(values))
        assert result.se == pytest.approx(scipy.stats.sem(values))

    def test_one_value_has_no_width(self) -> None:
        result = trimmed([0.25])
        assert (result.mean, result.df, result.half_width()) == (0.25, 0, math.inf)

    def test_nothing_has_no_mean(self) -> None:
        with pytest.raises(ValueError, match="no values"):
            trimmed([])

    @pytest.mark.parametrize("n", [2, 3, 10, 40])
    def test_equal_values_have_no_width_and_just_their_value(self, n: int) -> None:
        """Also 0.1, whose sums are rounded: processes with different numbers of blocks must come out equal."""
        result = trimmed([0.1] * n)
        assert (result.mean, result.se, result.half_width()) == (0.1, 0.0, 0.0)

    @given(samples)
    def test_lies_between_the_values_it_keeps(self, values: list[float]) -> None:
        cut = len(values) // 5
        kept = sorted(values)[cut : len(values) - cut]
        assert kept[0] <= trimmed(values).mean <= kept[-1]

    @given(samples, st.integers(0, 2**32))
    def test_order_does_not_matter(self, values: list[float], seed: int) -> None:
        shuffled = list(np.random.default_rng(seed).permutation(values))
        assert trimmed(shuffled) == trimmed(values)

    @given(st.lists(thetas, min_size=10, max_size=40), st.floats(11.0, 1e6))
    def test_a_single_outlier_moves_it_no_further_than_the_rest_reaches(self, values: list[float], far: float) -> None:
        assert trimmed([*values[1:], far]).mean <= max(values[1:])

    @given(samples)
    def test_is_numpys_arithmetic_to_the_last_bit(self, values: list[float]) -> None:
        """So that a figure that was exported once comes out the same ever after."""
        x = np.sort(np.asarray(values))
        cut = len(x) // 5
        kept = x[cut : len(x) - cut]
        winsorised = np.clip(x, kept[0], kept[-1])
        centre = np.clip(np.mean(winsorised), x[cut], x[-cut - 1])
        squares, h = np.sum((winsorised - centre) ** 2), len(kept)
        assert trimmed(values).mean == np.clip(np.mean(kept), kept[0], kept[-1])
        assert trimmed(values).se == math.sqrt(squares / (h * (h - 1)))

    def test_leaves_the_values_as_they_are(self) -> None:
        values = np.asarray(skewed(20))
        before = values.copy()
        trimmed(values)
        assert (values == before).all()


class TestQuantiles:
    @given(st.lists(thetas, min_size=1, max_size=60))
    def test_are_numpys_to_the_last_bit(self, values: list[float]) -> None:
        levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
        assert quantiles(sorted(values), levels) == np.quantile(values, levels).tolist()


class TestInterval:
    def test_by_hand(self) -> None:
        """0.01 0.02 0.03 0.06: mean 0.03, squares about it 0.0014, t(0.975, 3) = 3.1824."""
        result = t_interval([0.01, 0.02, 0.03, 0.06])
        sd = math.sqrt(0.0014 / 3)
        assert result.mean == pytest.approx(0.03)
        assert result.sd == pytest.approx(sd)
        assert result.half_width == pytest.approx(3.1824 * sd / 2, rel=1e-4)
        assert (result.low + result.high) / 2 == pytest.approx(0.03)
        assert result.p == pytest.approx(0.0692, abs=5e-4)  # t = 2.777 at 3 degrees of freedom
        assert result.n == 4

    @pytest.mark.parametrize("n", [2, 4, 8, 12])
    @pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
    def test_against_scipy(self, n: int, confidence: float) -> None:
        values = normal(n, 0.01, seed=n)
        result = t_interval(values, confidence)
        expected = scipy.stats.ttest_1samp(values, 0.0)
        low, high = expected.confidence_interval(confidence)
        assert (result.low, result.high) == pytest.approx((low, high), rel=1e-9)
        assert result.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert paired_t_p(values) == result.p

    def test_one_process_has_no_interval(self) -> None:
        """statistics.md 14: its ratio holds for this process only."""
        result = t_interval([0.3])
        assert (result.mean, result.low, result.high, result.p, result.n) == (0.3, -math.inf, math.inf, 1.0, 1)
        assert math.isnan(result.sd)
        assert result.half_width == math.inf

    @pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.1, 1.0), (-0.1, 1.0)])
    def test_equal_values_have_an_interval_of_one_point(self, value: float, p: float) -> None:
        result = t_interval([value] * 3)
        assert (result.mean, result.low, result.high, result.sd, result.p) == (value, value, value, 0.0, p)

    @given(samples)
    def test_contains_its_mean_which_lies_between_the_values(self, values: list[float]) -> None:
        result = t_interval(values)
        assert result.low <= result.mean <= result.high
        assert min(values) <= result.mean <= max(values)
        assert 0.0 <= result.p <= 1.0

    @given(st.lists(thetas, min_size=2, max_size=12))
    def test_excludes_zero_just_where_p_says_so(self, values: list[float]) -> None:
        result = t_interval(values)
        if abs(result.p - 0.05) > 1e-9 and result.sd > 0:
            assert (result.low <= 0 <= result.high) == (result.p > 0.05)

    @given(st.lists(thetas, min_size=2, max_size=12))
    def test_mirrors_when_contender_and_baseline_are_exchanged(self, values: list[float]) -> None:
        here, there = t_interval(values), t_interval([-value for value in values])
        assert (here.low, here.high, here.p) == pytest.approx((-there.high, -there.low, there.p), rel=1e-9, abs=1e-12)


class TestHolm:
    """D7: correction for many comparisons."""

    def test_by_hand(self) -> None:
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([0.5, 0.6]) == [1.0, 1.0]
        assert holm([0.04]) == [0.04]
        assert holm([]) == []

    @given(st.lists(probabilities, max_size=30))
    def test_never_smaller_than_p_nor_larger_than_bonferroni(self, p_values: list[float]) -> None:
        for p, adjusted in zip(p_values, holm(p_values), strict=True):
            assert p <= adjusted <= min(1.0, len(p_values) * p)

    @given(st.lists(probabilities, max_size=30))
    def test_keeps_the_order_of_p(self, p_values: list[float]) -> None:
        pairs = sorted(zip(p_values, holm(p_values), strict=True))
        assert all(first[1] <= second[1] for first, second in pairwise(pairs))

    @given(st.lists(probabilities, min_size=1, max_size=30))
    def test_rejects_what_the_step_down_procedure_rejects(self, p_values: list[float]) -> None:
        rejected = 0
        for rank, p in enumerate(sorted(p_values)):
            if p * (len(p_values) - rank) > 0.05:
                break
            rejected += 1
        assert sum(adjusted <= 0.05 for adjusted in holm(p_values)) == rejected


class TestProcessesNeeded:
    def test_to_detect(self) -> None:
        """An effect of one standard deviation: (t(0.975, 12) + t(0.9, 12))/√13 = 0.980 is the first under 1."""
        assert processes_to_detect(0.02, 0.02, 0.05) == 13
        assert processes_to_detect(-0.02, 0.02, 0.05) == 13
        assert processes_to_detect(0.02, 0.0, 0.05) == 2

    def test_a_larger_family_needs_more(self) -> None:
        alone, among_sixty = processes_to_detect(0.03, 0.03, 0.05), processes_to_detect(0.03, 0.03, 0.05 / 60)
        assert alone is not None
        assert among_sixty is not None
        assert alone < among_sixty

    def test_to_enclose(self) -> None:
        """Half a percent of room and of spread: again (t(0.975, n − 1) + t(0.9, n − 1))/√n at most 1."""
        assert processes_to_enclose(0.005, 0.005, -0.01, 0.01) == 13
        assert processes_to_enclose(-0.005, 0.005, -0.01, 0.01) == 13

    def test_none_where_a_thousand_are_not_enough(self) -> None:
        assert processes_to_detect(1e-4, 1.0, 0.05) is None
        assert processes_to_enclose(0.02, 0.005, -0.01, 0.01) is None

    @pytest.mark.parametrize(("effect", "sd"), [(0.03, 0.02), (0.03, 0.03), (0.01, 0.02)])
    def test_nine_runs_of_ten_with_so_many_processes_show_it(self, effect: float, sd: float) -> None:
        """Power of 90%, simulated with the truth known."""
        needed = processes_to_detect(effect, sd, 0.05)
        assert needed is not None
        draws = np.random.default_rng(1).normal(effect, sd, (4000, needed))
        found = np.mean([t_interval(row).p <= 0.05 for row in draws])
        assert 0.88 <= found <= 0.95


class TestWilcoxon:
    def test_by_hand(self) -> None:
        """1 … 5, all above 0: W = 15 of a mean of 7.5 and a variance of 13.75; z = (7.5 − 0.5)/√13.75 = 1.888."""
        assert wilcoxon_p([1, 2, 3, 4, 5]) == pytest.approx(0.0591, abs=1e-4)
        assert wilcoxon_p([-1, -2, -3, -4, -5]) == wilcoxon_p([1, 2, 3, 4, 5])

    @pytest.mark.parametrize("n", [1, 2, 5, 10, 40, 80])
    @pytest.mark.parametrize("ties", [False, True])
    def test_against_scipy(self, n: int, ties: bool) -> None:
        values = np.array(normal(n, 0.005, seed=n))
        if ties:
            values = np.round(values, 2)
        if not np.any(values):
            values[0] = 0.01
        expected = scipy.stats.wilcoxon(values[values != 0], method="approx", correction=True)
        assert wilcoxon_p(list(values)) == pytest.approx(expected.pvalue, rel=1e-9)

    def test_zeros_say_nothing(self) -> None:
        assert wilcoxon_p([0.0] * 10) == 1.0
        assert wilcoxon_p([0.0, 0.01, -0.02, 0.03]) == wilcoxon_p([0.01, -0.02, 0.03])

    @given(samples)
    def test_is_a_probability(self, values: list[float]) -> None:
        assert 0.0 <= wilcoxon_p(values) <= 1.0


class TestBootstrap:
    @pytest.mark.parametrize("values", [normal(40, 0.05), skewed(40), skewed(20, seed=3)])
    def test_against_scipy(self, values: list[float]) -> None:
        expected = scipy.stats.bootstrap(
            (values,), np.mean, method="BCa", n_resamples=20000, random_state=np.random.default_rng(0)
        ).confidence_interval
        half = (expected.high - expected.low) / 2
        low, high = bca_interval(values, resamples=20000)
        assert low == pytest.approx(expected.low, abs=0.05 * half)
        assert high == pytest.approx(expected.high, abs=0.05 * half)

    def test_leans_towards_the_long_tail(self) -> None:
        values = skewed(30)
        low, high = bca_interval(values, resamples=20000)
        assert high - np.mean(values) > np.mean(values) - low

    def test_the_same_whenever_it_is_computed(self) -> None:
        """A verification recomputes every figure: none of them may be drawn anew."""
        assert bca_interval(skewed(20)) == bca_interval(skewed(20))

    @pytest.mark.parametrize("values", [[0.1], [0.1, 0.1, 0.1], [0.0] * 10])
    def test_without_spread_it_is_a_point(self, values: list[float]) -> None:
        assert bca_interval(values) == (pytest.approx(values[0]), pytest.approx(values[0]))

    @given(st.lists(thetas, min_size=2, max_size=12))
    def test_stays_among_the_values(self, values: list[float]) -> None:
        low, high = bca_interval(values, resamples=200)
        margin = 1e-9 * max(map(abs, values))
        assert min(values) - margin <= low <= high <= max(values) + margin

    def test_differences_of_the_smallest_numbers_do_not_divide_by_zero(self) -> None:
        low, high = bca_interval([0.0, 1e-200, 2e-200])
        assert 0.0 <= low <= high <= 2e-200


class TestOutliers:
    """A6: the 1.5×IQR view, shown and never dropped."""

    def test_by_hand(self) -> None:
        """1 … 9 and 100: quartiles 3.25 and 7.75, fences −3.5 and 14.5."""
        assert iqr_outliers([*range(1, 10), 100]) == 1
        assert iqr_outliers([*range(1, 10), 14.5]) == 0
        assert iqr_outliers([*range(1, 10), 14.6]) == 1
        assert iqr_outliers([-100, -100, *range(1, 10), 100]) == 3

    @pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], [3.0] * 8])
    def test_few_or_equal_values_have_none(self, values: list[float]) -> None:
        assert iqr_outliers(values) == 0

    @given(samples)
    def test_against_scipy(self, values: list[float]) -> None:
        reach, rounding = 1.5 * scipy.stats.iqr(values), 1e-12 * max(map(abs, values))
        q1, q3 = np.percentile(values, (25, 75))

        def beyond(reach: float) -> int:
            return sum(not q1 - reach <= value <= q3 + reach for value in values)

        assert beyond(reach + rounding) <= iqr_outliers(sorted(values)) <= beyond(reach - rounding)
