"""What a contender did over all cases: the geometric mean, its interval, and categories (A4, C1, D7)."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from fakes import Died, fake_run, noisy
from groundspeed.evidence.record import Record
from groundspeed.judge.claims import headline
from groundspeed.judge.figures import Errors, Memory
from groundspeed.judge.floors import default_floor
from groundspeed.judge.grid import Grid, category, summarise
from groundspeed.judge.judgement import Result, judge
from groundspeed.judge.statistics import holm, t_interval
from groundspeed.judge.verdict import Centre, centre, compare, judge_family
from records import MEANS, centres, constant, run


@pytest.fixture(scope="module")
def record() -> Record:
    return run()


def result(
    thetas: Sequence[float] | None,
    status: str = "PASSED",
    shorter_s: float = 1e-3,
    processes: list[Centre] | None = None,
) -> Result:
    """A result with a comparison of these process centres, or without one."""
    made = None
    if thetas is not None or processes is not None:
        made = judge_family(
            [compare("ours", "base", processes or centres(*(thetas or ())), default_floor(shorter_s))], 4
        )[0]
    reason = None if status == "PASSED" else "it was told to"
    return Result(
        "ours", status, reason, None, None, Memory(None, None, None, None), Errors(None, None, None, None), None, made
    )


def grid(record: Record, *results: Result) -> Grid:
    return summarise(record, "ours", "default", {f"case {i}": each for i, each in enumerate(results)})


class TestMean:
    FIRST, SECOND = (0.10, 0.12, 0.14, 0.16), (0.30, 0.36, 0.30, 0.36)

    def test_cases_are_averaged_inside_each_process_first(self, record: Record) -> None:
        """statistics.md 9: then t over the processes, 0.20 0.24 0.22 0.26."""
        made = grid(record, result(self.FIRST), result(self.SECOND))
        assert made.interval is not None
        expected = t_interval([0.20, 0.24, 0.22, 0.26])
        assert (made.interval.mean, made.interval.low, made.interval.high) == pytest.approx(
            (expected.mean, expected.low, expected.high)
        )
        assert made.interval.n == 4
        assert made.ratio == pytest.approx(math.exp(0.23))

    def test_mean_median_least_and_greatest_speed_up(self, record: Record) -> None:
        """A4."""
        ratios = [math.exp(0.13), math.exp(0.33), math.exp(-0.05)]
        made = grid(record, result(self.FIRST), result(self.SECOND), result((-0.05, -0.06, -0.04, -0.05)))
        assert made.mean == pytest.approx(statistics.fmean(ratios))
        assert made.median == pytest.approx(ratios[0])
        assert (made.min, made.max) == pytest.approx((ratios[2], ratios[1]))

    def test_wins_ties_and_losses(self, record: Record) -> None:
        made = grid(
            record,
            result(self.FIRST),
            result(self.SECOND),
            result((0.001, 0.002, 0.001, 0.002)),
            result((-0.2, -0.21, -0.2, -0.22)),
            result((-0.5, 0.5, 0.1, 0.2)),
            result(None, "INCORRECT"),
            result(None, "INCORRECT"),
            result(None, "TIMEOUT"),
            result(None, "PASSED"),
        )
        assert made.verdicts == {"FASTER": 2, "SAME": 1, "SLOWER": 1, "UNCLEAR": 1}
        assert made.failed == {"INCORRECT": 2, "TIMEOUT": 1, "NO BASELINE": 1}
        assert (made.cases, made.compared) == (9, 5)

    def test_nothing_to_compare(self, record: Record) -> None:
        made = grid(record, result(None, "ERROR"))
        assert (made.interval, made.floor, made.ratio, made.mean, made.median) == (None, None, None, None, None)
        assert (made.min, made.max, made.compared, made.decided) == (None, None, 0, False)
        assert grid(record).cases == 0

    def test_the_floor_is_the_highest_of_the_cases(self, record: Record) -> None:
        made = grid(record, result(self.FIRST), result(self.SECOND, shorter_s=1e-6))
        assert made.floor is not None
        assert made.floor.value == 0.03


class TestDecided:
    def test_over_chance_and_floor(self, record: Record) -> None:
        made = grid(record, result((0.10, 0.11, 0.12, 0.10)), result((0.20, 0.21, 0.2, 0.22)))
        assert replace(made, adjusted_p=0.05).decided
        assert not replace(made, adjusted_p=0.051).decided
        assert not replace(made, adjusted_p=0.05, verdicts={**made.verdicts, "FASTER": 0}).decided

    def test_not_under_the_floor(self, record: Record) -> None:
        made = grid(record, result((0.008, 0.009, 0.008, 0.009)), result((0.008, 0.009, 0.007, 0.008)))
        assert made.interval is not None
        assert made.interval.p < 0.05
        assert made.doubt is None
        assert not made.decided

    def test_not_by_chance(self, record: Record) -> None:
        assert not grid(record, result((0.3, -0.2, 0.1, 0.2)), result((0.1, -0.2, 0.3, 0.1))).decided

    def test_not_where_all_processes_agree_to_the_last_digit(self, record: Record) -> None:
        """statistics.md 11: a coarse clock makes every case UNCLEAR, and must not make a headline out of them."""
        made = grid(record, result((0.1,) * 4), result((0.7,) * 4))
        assert made.verdicts["UNCLEAR"] == 2
        assert made.doubt is not None
        assert "clock is too coarse" in made.doubt
        assert not made.decided

    def test_not_where_outliers_decide(self, record: Record) -> None:
        """D10, for the mean over the cases as for a single one."""
        spiked = [centre(p, [0.05 + 0.001 * p] * 9 + [0.9]) for p in range(4)]
        made = grid(record, result(None, processes=spiked), result(None, processes=spiked))
        assert made.interval is not None
        assert made.interval.p < 0.05
        assert made.doubt is not None
        assert "outliers decide" in made.doubt
        assert not made.decided

    def test_not_where_a_process_lacks_a_case(self, record: Record) -> None:
        """Only processes with every compared case enter the mean, and all that were declared must."""
        made = grid(record, result((0.10, 0.11, 0.12)), result((0.20, 0.21, 0.20, 0.22)))
        assert made.interval is not None
        assert made.interval.n == 3
        assert made.doubt == "3 of 4 declared processes compared every case"
        assert not made.decided

    def test_not_where_no_process_has_every_case(self, record: Record) -> None:
        even = [centre(p, [0.1] * 10) for p in (0, 2)]
        odd = [centre(p, [0.1] * 10) for p in (1, 3)]
        made = grid(record, result(None, processes=even), result(None, processes=odd))
        assert made.interval is None
        assert made.doubt == "0 of 4 declared processes compared every case"


class TestPower:
    """The least mean that the evidence would have shown, as for a single case."""

    def test_from_the_interval_of_the_mean_by_hand(self, record: Record) -> None:
        """0.20 0.24 0.22 0.26 have s = √(0.002/3) = 0.02582. In a family of five, Holm's first step is at 1%: (t of
        0.995 + t of 0.9) with 3 degrees of freedom, 5.841 + 1.638, times s over the root of 4."""
        cases = {"a": result(TestMean.FIRST), "b": result(TestMean.SECOND)}
        made = summarise(record, "ours", "default", cases, family=5)
        assert made.detectable == pytest.approx((5.840909 + 1.637744) * math.sqrt(0.002 / 3) / 2, rel=1e-6)

    def test_never_below_the_floor(self, record: Record) -> None:
        quiet = result((0.0, 0.0001, 0.0, 0.0001), shorter_s=1e-6)
        assert grid(record, quiet, quiet).detectable == 0.03

    def test_unknown_without_a_spread(self, record: Record) -> None:
        assert grid(record, result(None, "ERROR")).detectable is None
        assert grid(record, result((0.1,)), result((0.2,))).detectable is None
        assert grid(record, result((0.1,) * 4), result((0.7,) * 4)).detectable is None

    def test_the_family_is_that_of_the_run(self) -> None:
        """Two cases and their headline."""
        made = judge(run(noisy({"base": 1e-3, "ours": 1e-3}, 0.1), list(MEANS))).grids[0]
        assert made.interval is not None
        quantiles = stats.t.ppf(1 - 0.05 / 3 / 2, 3) + stats.t.ppf(0.9, 3)
        assert made.detectable == pytest.approx(quantiles * made.interval.sd / 2)


class TestCategory:
    """C1: each only with its interval."""

    @pytest.mark.parametrize(
        ("low", "high", "name"),
        [
            (1.51, 1.9, "excellent"),
            (1.21, 1.5, "good"),
            (1.01, 1.2, "measured"),
            (0.5, 1.0, "investigate"),
            (0.0, 0.9, "investigate"),
            (1.4, 1.6, "good to excellent"),
            (0.9, 1.1, "investigate to measured"),
            (0.9, 2.0, "investigate to excellent"),
        ],
    )
    def test_of_an_interval(self, low: float, high: float, name: str) -> None:
        assert category(low, high) == name


class TestOfARecord:
    def test_one_grid_for_each_judged_contender(self) -> None:
        record = run({**MEANS, "other": 1.2e-3}, judged=["other", "ours"])
        made = judge(record).grids
        assert [g.contender for g in made] == ["other", "ours"]
        assert [g.verdicts["SLOWER"] + g.verdicts["FASTER"] for g in made] == [2, 2]

    def test_a_judged_contender_that_is_absent_has_none(self) -> None:
        record = run({**MEANS, "other": 1.2e-3}, judged=["other"])
        absent = tuple(
            replace(c, status="ABSENT", reason="not here") if c.name == "other" else c for c in record.contenders
        )
        assert judge(replace(record, contenders=absent)).grids == ()

    def test_a_contender_that_fails_on_one_case_is_counted_there(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> Exception | None:
            return Died("killed") if contender == "ours" and case == "b2-s64" and block == 3 else None

        made = judge(run(fault=fault)).grids[0]
        assert (made.cases, made.compared, made.failed) == (2, 1, {"ERROR": 1})

    def test_without_its_baseline_a_contender_has_no_comparison(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "INCORRECT", "reason": "wrong"} if contender == "base" else None

        made = judge(run(fault=fault)).grids[0]
        assert (made.compared, made.failed) == (0, {"NO BASELINE": 2})

    def test_a_coarse_clock_supports_no_headline(self) -> None:
        made = judge(run(constant(MEANS), list(MEANS))).grids[0]
        assert made.verdicts["UNCLEAR"] == 2
        assert not made.decided


def test_a_mean_within_one_percent_is_the_same(tmp_path: Path) -> None:
    record = fake_run(tmp_path, noisy({"a": 1e-3, "b": 1e-3}, noise=0.002), ["a", "b"])
    judgement = judge(record)
    assert judgement.grids[0].same
    supported, sentence = headline(judgement, judgement.grids[0])
    assert supported
    shown = r"\(a difference of 1\.01× or more would have been noticed\)"
    assert re.match(rf"b is the same within 1% {shown}: (0\.99|1\.00)\d*× ", sentence)


def test_headlines_are_corrected_for_their_number(tmp_path: Path) -> None:
    """D7: verdicts and headlines are one family; of several, one will look good by chance."""
    names = ["a", "b", "c", "d"]
    judgement = judge(fake_run(tmp_path, noisy(dict.fromkeys(names, 1e-3), noise=0.05), names))
    verdicts = [r.comparison for case in judgement.cases for r in case.results if r.comparison]
    adjusted = holm([*(c.interval.p for c in verdicts), *(g.interval.p for g in judgement.grids if g.interval)])
    assert [c.adjusted_p for c in verdicts] == adjusted[: len(verdicts)]
    assert [grid.adjusted_p for grid in judgement.grids] == adjusted[len(verdicts) :]


def test_a_win_and_a_loss_that_cancel_are_not_the_same(tmp_path: Path) -> None:
    noise = random.Random(1)

    def seconds(contender: str, case: str, block: int) -> float:
        factor = 1.0 if contender == "a" else 0.8 if case == "b1-s64" else 1.25
        return 1e-3 * factor * noise.lognormvariate(0, 0.002)

    judgement = judge(fake_run(tmp_path, seconds, ["a", "b"]))
    assert not judgement.grids[0].same
    assert not headline(judgement, judgement.grids[0])[0]
