"""Verdicts: in the order of statistics.md 11, from UNCLEAR upwards and only on evidence."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from groundspeed.judge.claims import noticed, why
from groundspeed.judge.floors import default_floor
from groundspeed.judge.statistics import detectable, processes_to_detect, processes_to_enclose, t_interval
from groundspeed.judge.timers import Timers
from groundspeed.judge.verdict import (
    ALPHA,
    SAME_HIGH,
    SAME_LOW,
    Comparison,
    centre,
    compare,
    judge_family,
    outliers_decide,
)
from records import comparison

FLOOR = default_floor(1e-3)


def judged(*thetas: float, shorter_s: float = 1e-3, declared: int | None = None) -> Comparison:
    """A family of one."""
    return judge_family([comparison(*thetas, shorter_s=shorter_s)], declared or len(thetas))[0]


def around(mean: float, spread: float, n: int = 4) -> tuple[float, ...]:
    """θ of n processes with this mean, at equal distances."""
    return tuple(mean + spread * (2 * i - n + 1) / (n - 1) for i in range(n))


class TestOrder:
    def test_faster(self) -> None:
        result = judged(*around(0.10, 0.01))
        assert result.verdict == "FASTER"
        assert result.ratio == pytest.approx(math.exp(0.10))
        assert result.low < result.ratio < result.high
        assert "the difference exceeds the default floor of 1.0%" in result.reason

    def test_slower_is_its_mirror(self) -> None:
        result = judged(*around(-0.10, 0.01))
        assert result.verdict == "SLOWER"
        assert result.ratio == pytest.approx(math.exp(-0.10))

    def test_same_comes_first_even_where_the_difference_is_significant(self) -> None:
        result = judged(*around(0.005, 0.0005))
        assert result.adjusted_p is not None
        assert result.adjusted_p < 0.01
        assert result.verdict == "SAME"

    @pytest.mark.parametrize("edge", [SAME_LOW, SAME_HIGH])
    def test_same_needs_the_whole_interval_within_one_percent(self, edge: float) -> None:
        half = t_interval(around(0.0, 0.001)).half_width
        inside = math.copysign(abs(edge) - half - 1e-9, edge)
        outside = math.copysign(abs(edge) - half + 1e-9, edge)
        assert judged(*around(inside, 0.001)).verdict == "SAME"
        assert judged(*around(outside, 0.001)).verdict != "SAME"

    def test_the_bounds_of_same_are_one_percent_of_the_ratio(self) -> None:
        assert (math.exp(SAME_LOW), math.exp(SAME_HIGH)) == pytest.approx((0.99, 1.01))

    def test_insignificant_is_unclear(self) -> None:
        result = judged(*around(0.05, 0.10))
        assert result.verdict == "UNCLEAR"
        assert result.adjusted_p is not None
        assert result.adjusted_p > 0.05

    def test_significant_under_the_floor_is_unclear(self) -> None:
        """D2: work under 50 µs has a floor of 3%, so 2% is refused there and granted above."""
        result = judged(*around(0.02, 0.001), shorter_s=20e-6)
        assert result.verdict == "UNCLEAR"
        assert result.reason == "the difference of +2.0% is below the default floor of 3.0%"
        assert judged(*around(0.02, 0.001), shorter_s=60e-6).verdict == "FASTER"

    @pytest.mark.parametrize(("seconds", "floor"), [(51e-6, 0.01), (50e-6, 0.03), (1e-6, 0.03), (1.0, 0.01)])
    def test_default_floor(self, seconds: float, floor: float) -> None:
        """statistics.md 15: 1% over 50 µs, 3% under, and called the default."""
        assert default_floor(seconds).value == floor
        assert default_floor(seconds).origin == "default"


class TestFamily:
    def test_holm_goes_over_the_verdicts_of_the_run(self) -> None:
        """D7: what is significant alone is not, as one of many."""
        thetas = around(0.05, 0.032)
        alone = judge_family([comparison(*thetas)], 4)[0]
        among = judge_family([comparison(*thetas)] * 5, 4)[0]
        assert (alone.verdict, among.verdict) == ("FASTER", "UNCLEAR")
        assert alone.adjusted_p == alone.interval.p
        assert among.adjusted_p == pytest.approx(5 * alone.interval.p)

    def test_each_comparison_keeps_its_place(self) -> None:
        family = [comparison(*around(theta, 0.001)) for theta in (0.1, 0.0, -0.1)]
        assert [c.verdict for c in judge_family(family, 4)] == ["FASTER", "SAME", "SLOWER"]
        assert judge_family([], 4) == []

    def test_outside_the_family_there_is_no_verdict(self) -> None:
        result = comparison(*around(0.1, 0.001))
        assert (result.verdict, result.adjusted_p, result.reason) == (None, None, "not judged")


class TestTooLittle:
    def test_one_process_has_no_verdict(self) -> None:
        """statistics.md 14."""
        result = judged(0.5)
        assert result.verdict is None
        assert "this ratio comes from a single process" in result.reason
        assert math.isnan(result.low)
        assert math.isnan(result.high)

    def test_an_incomplete_run_is_unclear_however_clear_it_looks(self) -> None:
        """Stopping on significance would give 17% of false positives: the number of processes is fixed in advance."""
        result = judged(*around(0.10, 0.001, n=3), declared=4)
        assert result.verdict == "UNCLEAR"
        assert "3 of 4 declared processes" in result.reason
        assert "--resume" in result.reason

    @pytest.mark.parametrize("theta", [0.0, 0.1, -0.5])
    def test_all_centres_equal_is_unclear(self, theta: float) -> None:
        """The clock is too coarse; also where the difference is large, or where it would be called SAME."""
        result = judged(theta, theta, theta, theta)
        assert result.verdict == "UNCLEAR"
        assert "clock is too coarse" in result.reason

    def test_equal_centres_of_unequal_blocks_are_equal(self) -> None:
        """No rounding of a mean over 10 or 40 blocks makes two of one value."""
        same = [centre(process, [0.1] * blocks) for process, blocks in enumerate((10, 20, 40, 7))]
        result = judge_family([compare("ours", "base", same, FLOOR)], 4)[0]
        assert "clock is too coarse" in result.reason


class TestOutliers:
    """statistics.md 12 and D10: where the treatment of outliers decides, the verdict is UNCLEAR."""

    def spiked(self, theta: float, spike: float, jitter: float = 0.001) -> Comparison:
        """Nine blocks at θ and one at `spike` in every process."""
        processes = [
            centre(process, [theta + jitter * process] * 9 + [spike + jitter * process]) for process in range(4)
        ]
        return judge_family([compare("ours", "base", processes, FLOOR)], 4)[0]

    def test_spikes_that_move_the_plain_mean_make_it_unclear(self) -> None:
        result = self.spiked(0.05, 0.55)
        assert result.plain.mean - result.interval.mean == pytest.approx(0.05)
        assert result.verdict == "UNCLEAR"
        assert (
            result.reason == "the untrimmed mean differs from the trimmed mean by 5.1%: outliers decide how large it is"
        )

    def test_spikes_within_one_percent_do_not(self) -> None:
        result = self.spiked(0.05, 0.14)
        assert result.plain.mean - result.interval.mean == pytest.approx(0.009)
        assert result.verdict == "FASTER"

    def test_nor_do_spikes_within_the_width_of_the_plain_mean(self) -> None:
        wild = self.spiked(0.5, 0.8, jitter=0.02)
        assert 0.01 < wild.plain.mean - wild.interval.mean < wild.plain.half_width
        assert wild.verdict == "FASTER"

    def test_a_plain_mean_that_is_significant_the_other_way_makes_it_unclear(self) -> None:
        """It would be SAME otherwise."""
        result = self.spiked(0.003, -0.05, jitter=0.0001)
        assert result.plain.p <= 0.05
        assert result.plain.mean < 0 < result.interval.mean
        assert result.interval.high < SAME_HIGH
        assert result.verdict == "UNCLEAR"
        assert "points the other way" in result.reason

    def test_an_insignificant_plain_mean_on_the_other_side_does_not_matter(self) -> None:
        assert outliers_decide(t_interval(around(0.004, 0.001)), t_interval(around(-0.001, 0.05)), ALPHA) is None

    def test_the_plain_mean_stands_beside_the_trimmed_one(self) -> None:
        result = self.spiked(0.05, 0.55)
        assert [c.plain_mean for c in result.centres] == pytest.approx([0.10, 0.101, 0.102, 0.103])
        assert [c.theta.mean for c in result.centres] == pytest.approx([0.05, 0.051, 0.052, 0.053])


class TestTheFarthestProcess:
    """What one comparison cannot show, those that are alike do: a rare slow process that it may have missed."""

    STEADY = comparison(*around(0.05, 0.001, 8))
    WILD = comparison(*around(0.3, 0.001, 7), 0.1)

    def test_it_is_part_of_the_floor_of_its_neighbours(self) -> None:
        alone = judge_family([self.STEADY], 8)[0]
        beside = judge_family([self.STEADY, self.STEADY, self.STEADY, self.WILD], 8)
        assert alone.verdict == "FASTER"
        assert beside[0].verdict == "UNCLEAR"
        assert beside[3].verdict == "FASTER", "0.3 is more than a missed process could make"
        share = 1 - 0.02 ** (1 / 8)  # of slow processes that eight miss once in fifty times
        floor = f"outlier floor of {100 * math.expm1(share * 0.2):.1f}%"
        assert beside[0].reason == f"the difference of +5.1% is below the {floor}; --processes 14 would settle it"
        assert beside[0].needed == 14
        assert str(beside[0].decided_by) == floor

    def test_it_hides_on_its_own_side_alone(self) -> None:
        """A contender that is slow in a process that was missed is no faster for it."""
        slower = comparison(*around(-0.05, 0.001, 8))
        assert [c.verdict for c in judge_family([slower, slower, slower, self.WILD], 8)][:3] == ["SLOWER"] * 3

    def test_what_seems_the_same_may_have_missed_it(self) -> None:
        same = comparison(*around(0.0, 0.001, 8))
        assert judge_family([same] * 4, 8)[0].verdict == "SAME"
        found = judge_family([same, same, same, self.WILD], 8)[0]
        assert found.verdict == "UNCLEAR"
        assert "within ±1%, but outlying processes in similar comparisons give an outlier floor of" in found.reason

    def test_noise_as_usual_takes_no_same_away(self) -> None:
        g = np.random.default_rng(7)
        family = [comparison(*(0.005 * g.standard_normal(8)).tolist()) for _ in range(40)]
        with_, without = (sum(c.verdict == "SAME" for c in some) for some in (judge_family(family, 8), [
            judge_family([c], 8)[0] for c in family
        ]))  # fmt: skip
        assert with_ == without > 20

    @pytest.mark.parametrize(
        "other", [{"clock": "graph"}, {"contender": "theirs"}, {"baseline": "another"}, {"length": "short"}]
    )
    def test_of_nobody_else(self, other: dict[str, str]) -> None:
        family = [self.STEADY, self.STEADY, self.STEADY, replace(self.WILD, **other)]
        assert judge_family(family, 8)[0].verdict == "FASTER"

    def test_timers_have_to_agree_as_before(self) -> None:
        """A floor of the estimate is no leave for the clock."""
        apart = replace(self.STEADY, timers=Timers(0.05, 0.09, 0.0, 0.0))
        assert "the timers disagree" in judge_family([apart] * 3 + [self.WILD], 8)[0].reason


class TestWhatWouldSettle:
    """Promise 5: UNCLEAR says what would settle it."""

    def test_a_difference_over_the_floor(self) -> None:
        result = judged(*around(0.05, 0.10))
        needed = processes_to_detect(0.05, result.interval.sd, 0.05)
        assert needed is not None
        assert needed > 4
        assert result.reason == f"--processes {needed} would settle it in 9 of 10 runs at this noise level"

    def test_with_the_family_as_large_as_it_is(self) -> None:
        one, of_ten = (judge_family([comparison(*around(0.05, 0.10))] * n, 4)[0] for n in (1, 10))
        assert _number(of_ten.reason) > _number(one.reason)

    def test_a_difference_under_one_percent(self) -> None:
        result = judged(*around(0.002, 0.02))
        needed = processes_to_enclose(0.002, result.interval.sd, SAME_LOW, SAME_HIGH)
        assert result.reason == f"--processes {needed} would settle it in 9 of 10 runs at this noise level"

    def test_always_more_than_there_are(self) -> None:
        """Just over p = 0.05 the same number might do by luck."""
        result = judged(*around(0.05, 0.0475))
        assert result.verdict == "UNCLEAR"
        assert _number(result.reason) >= 5

    def test_between_one_percent_and_the_floor_nothing_would(self) -> None:
        result = judged(*around(0.02, 0.05), shorter_s=1e-6)
        assert result.reason == "the difference of +2.0% is above 1% but below the default floor of 3.0%"

    def test_hopeless_noise(self) -> None:
        assert judged(*around(0.02, 5.0)).reason == "more than 1000 processes would be needed at this noise level"


def _number(reason: str) -> int:
    match = re.search(r"--processes (\d+) would", reason)
    assert match
    return int(match[1])


def test_a_centre_describes_its_process() -> None:
    """A6: bootstrap, paired t and Wilcoxon stand beside, within the process only."""
    theta = [0.01 * i for i in range(1, 11)]
    described = centre(3, theta)
    assert not {"bootstrap", "t_p", "wilcoxon_p"} & vars(described).keys()  # made where they are shown
    assert (described.process, described.blocks) == (3, 10)
    assert described.theta.mean == pytest.approx(0.055)
    assert described.bootstrap[0] < described.plain_mean < described.bootstrap[1]
    assert 0 < described.t_p < 0.01
    assert 0 < described.wilcoxon_p < 0.01


def test_the_interval_goes_over_processes_not_over_blocks() -> None:
    """D1: blocks of one process agree with each other more than processes do."""
    few, many = (
        compare("ours", "base", [centre(p, [theta] * blocks) for p, theta in enumerate((0.1, 0.2, 0.3))], FLOOR)
        for blocks in (10, 1000)
    )
    assert (few.interval.low, few.interval.high) == pytest.approx((many.interval.low, many.interval.high))
    assert few.interval.mean == pytest.approx(0.2)
    assert few.interval.half_width == pytest.approx(4.3027 * 0.1 / math.sqrt(3), rel=1e-4)


class TestPower:
    """A verdict that nothing was found says what would have been."""

    def test_the_least_difference_that_this_spread_shows(self) -> None:
        quiet, loud = (judged(*around(0.0, spread)) for spread in (0.001, 0.1))
        assert quiet.verdict == "SAME"
        assert loud.verdict == "UNCLEAR"
        assert quiet.detectable == quiet.floor.value
        assert loud.detectable == pytest.approx(detectable(loud.interval.sd, 4, 0.05))

    def test_a_difference_of_that_size_is_found_in_nine_runs_of_ten(self) -> None:
        generator, found = np.random.default_rng(5), 0
        effect = detectable(0.02, 8, 0.05)
        for _ in range(2000):
            found += t_interval(generator.normal(effect, 0.02, 8)).p <= 0.05
        assert found / 2000 == pytest.approx(0.9, abs=0.03)

    def test_a_family_shows_less(self) -> None:
        one, of_ten = (judge_family([comparison(*around(0.0, 0.1))] * n, 4)[0] for n in (1, 10))
        assert one.detectable is not None
        assert of_ten.detectable is not None
        assert of_ten.detectable > one.detectable

    def test_what_was_found_needs_no_such_words(self) -> None:
        found = judged(*around(0.5, 0.01))
        assert (found.detectable, found.doubted) == (None, False)
        assert why(found) == found.reason

    def test_it_is_said_with_the_figure(self) -> None:
        """By hand: ±0.1 and ±0.1/3 have s = 0.0861; (t of 0.975 + t of 0.9) with 3 degrees of freedom, 3.182 + 1.638,
        times s over the root of 4 is 0.2074, a factor of 1.23."""
        loud = judged(*around(0.0, 0.1))
        assert loud.detectable == pytest.approx((3.182446 + 1.637744) * 0.0860663 / 2, rel=1e-5)
        assert not loud.doubted
        assert why(loud) == f"{loud.reason}; only a difference of 1.23× or more would have been noticed"


class TestPowerInDoubt:
    """Every UNCLEAR has it; where noise is not the reason, it says what would have been noticed without the doubt."""

    SHOWN = (3.182446 + 1.637744) * 0.0086066 / 2
    """Of `around(_, 0.01)`: 2.07%, by the same sum as above."""

    def told(self, found: Comparison) -> None:
        assert found.verdict == "UNCLEAR"
        assert found.doubted
        assert found.detectable == pytest.approx(self.SHOWN, rel=1e-4)
        assert why(found) == f"{found.reason}; a difference of 1.02× or more would otherwise have been noticed"

    def test_the_timers_disagree(self) -> None:
        """However large the difference is: here ten times what would have been noticed."""
        apart = replace(comparison(*around(0.2, 0.01)), timers=Timers(0.2, 0.3, 0.0, 0.0))
        self.told(judge_family([apart], 4)[0])

    def test_the_calibration_raised_its_alarm(self) -> None:
        alarmed = replace(comparison(*around(0.0, 0.01)), floor=replace(FLOOR, alarm=True))
        self.told(judge_family([alarmed], 4)[0])

    def test_outliers_decide(self) -> None:
        spiked = [centre(p, [theta] * 9 + [theta + 0.5]) for p, theta in enumerate(around(0.2, 0.01))]
        self.told(judge_family([compare("ours", "base", spiked, FLOOR)], 4)[0])

    def test_the_run_was_interrupted(self) -> None:
        self.told(judged(*around(0.2, 0.01), declared=8))

    def test_outlying_processes_of_others_take_same_away(self) -> None:
        same, wild = comparison(*around(0.0, 0.001, 8)), comparison(*around(0.3, 0.001, 7), 0.1)
        found = judge_family([same, same, same, wild], 8)[0]
        assert "within ±1%, but outlying" in found.reason
        assert "or more would otherwise have been noticed" in why(found)

    @pytest.mark.parametrize("thetas", [(0.1,), (0.1, 0.1, 0.1, 0.1)])
    def test_without_a_spread_nothing_tells(self, thetas: tuple[float, ...]) -> None:
        """One process of four, and a clock that is too coarse."""
        found = judged(*thetas, declared=4)
        assert (found.verdict, found.detectable, found.doubted) == ("UNCLEAR", None, True)
        assert why(found).endswith("; without a spread over processes, nothing tells which difference would have been "
                                   "noticed")  # fmt: skip


@pytest.mark.parametrize(
    ("detectable", "said"),
    [
        (math.log(1.234), "only a difference of 1.23× or more would have been noticed"),
        (math.log(1.0042), "only a difference of 1.004× or more would have been noticed"),
        (math.log(1.00042), "only a difference of 1.0004× or more would have been noticed"),
        (1e-9, "only a difference of 1.0001× or more would have been noticed"),
        (math.log(10.1), "no difference under 10× would have been noticed"),
        (1000.0, "no difference under 10× would have been noticed"),
    ],
)
def test_a_power_statement_has_enough_figures(detectable: float, said: str) -> None:
    assert noticed(detectable) == said
