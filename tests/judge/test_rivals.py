"""Against the best rival: the least favourable of the intervals against each, not the luckiest rival sample
(statistics.md 7)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

from fakes import Fault, no_fault, noisy
from groundspeed.evidence.record import Record
from groundspeed.judge.judgement import against, judge
from groundspeed.judge.rivals import BestRival, best_rivals
from groundspeed.judge.verdict import BIASED
from groundspeed.report.rivals import lines, plain
from records import biased, run

MEANS = {"base": 1e-3, "ours-new": 0.8e-3, "near": 0.9e-3, "far": 3e-3, "ours-old": 0.4e-3}


def of(
    means: dict[str, float] = MEANS,
    *judged: str,
    fault: Fault = no_fault,
    own: Sequence[str] = (),
    noise: float = 0.005,
    **changes: Any,
) -> Record:
    record = run(noisy(means, noise), list(means), judged=judged or ("ours-new",), fault=fault, **changes)
    contenders = (replace(c, source_sha256="0" * 64) if c.name in own else c for c in record.contenders)
    return replace(record, contenders=tuple(contenders))


def found(record: Record) -> list[BestRival]:
    return list(best_rivals(judge(record)))


def by_hand(record: Record, contender: str, rival: str) -> tuple[float, float, float]:
    """The geometric mean and the ends of its interval, from nothing but the samples and scipy."""
    means = []
    for process in range(record.declared_processes):
        thetas = []
        for case in record.cases:
            own, other = (record.seconds[process, case.name, name] for name in (contender, rival))
            thetas.append(stats.trim_mean([math.log(other[block] / own[block]) for block in own], 0.2))
        means.append(fmean(thetas))
    low, high = stats.t.interval(0.95, len(means) - 1, fmean(means), stats.sem(means))
    return math.exp(fmean(means)), math.exp(low), math.exp(high)


def bounds(best: BestRival) -> tuple[float, float, float]:
    theta = best.grid.interval
    assert theta is not None
    return math.exp(theta.mean), math.exp(theta.low), math.exp(theta.high)


class TestWhich:
    def test_it_is_the_rival_with_the_lowest_interval(self) -> None:
        record = of()
        (best,) = found(record)
        assert (best.grid.contender, best.grid.baseline, best.rivals, best.left_out) == ("ours-new", "near", 3, ())
        assert bounds(best) == pytest.approx(by_hand(record, "ours-new", "near"))
        assert bounds(best)[0] == pytest.approx(0.9 / 0.8, abs=0.01)

    def test_the_interval_decides_and_not_the_mean(self) -> None:
        """A rival that is slower on average, but so variable that it may be faster, is the less favourable one."""
        g = random.Random(2)
        noise = {"base": 0.001, "ours-new": 0.001, "steady": 0.001, "wild": 0.3}
        means = {"base": 2e-3, "ours-new": 1e-3, "steady": 1.2e-3, "wild": 1.25e-3}
        record = run(lambda who, *_: means[who] * g.lognormvariate(0, noise[who]), list(means), judged=["ours-new"])
        steady, wild = (by_hand(record, "ours-new", name) for name in ("steady", "wild"))
        assert wild[0] > steady[0]
        assert wild[1] < steady[1]
        (best,) = found(record)
        assert best.grid.baseline == "wild"
        assert bounds(best) == pytest.approx(wild)

    def test_it_may_be_the_baseline(self) -> None:
        record = of({"base": 0.85e-3, "ours-new": 0.8e-3, "other": 1e-3})
        (best,) = found(record)
        assert best.grid.baseline == "base"
        assert best.grid.interval == judge(record).grids[0].interval

    def test_it_is_what_another_baseline_shows(self) -> None:
        """`show --baseline near` has the same figures, of a longer way."""
        record = of()
        (best,), (grid,) = found(record), judge(against(record, "near")).grids
        assert (best.grid.interval, best.grid.floor, best.doubt) == (grid.interval, grid.floor, grid.doubt)

    def test_each_judged_contender_has_its_own(self) -> None:
        makes = {"base": 1e-3, "a": 0.5e-3, "b": 0.7e-3}
        pairs = [(best.grid.contender, best.grid.baseline) for best in found(of(makes, "a", "b"))]
        assert pairs == [("a", "b"), ("b", "a")]

    def test_ours_and_the_users_own_are_no_rivals(self) -> None:
        """The fastest is ours-old; mine comes from a file, of which the record has the hash."""
        record = of({**MEANS, "mine": 0.3e-3}, own=["mine"])
        assert [best.grid.baseline for best in found(record)] == ["near"]


class TestCases:
    def test_a_rival_that_did_not_do_all_of_them_is_named_and_left_out(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "OOM", "reason": "too big"} if (contender, case) == ("near", "b2-s64") else None

        record = of(fault=fault)
        (best,) = found(record)
        assert (best.grid.baseline, best.rivals, best.left_out) == ("base", 2, ("near",))
        assert lines_of(record)[0].endswith("; the least favourable of 2 rivals; near did not do all of these cases")

    def test_only_the_cases_that_the_contender_did(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "OOM", "reason": "too big"} if (contender, case) == ("ours-new", "b2-s64") else None

        record = of(fault=fault, shapes=("B=1,S=64,causal=0", "B=2,S=64,causal=0", "B=3,S=64,causal=0"))
        (best,) = found(record)
        assert (best.grid.names, best.declared) == (("b1-h8-s64-d64-full-fp32", "b3-h8-s64-d64-full-fp32"), 3)
        assert "geometric mean over only 2 of 3 cases" in lines_of(record)[0]


class TestNone:
    def test_one_rival_is_the_baseline(self) -> None:
        assert found(of({"base": 1e-3, "ours-new": 0.8e-3, "ours-old": 0.7e-3})) == []

    def test_of_a_contender_that_is_wrong_on_a_case(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "INCORRECT", "reason": "off"} if (contender, case) == ("ours-new", "b2-s64") else None

        assert found(of(fault=fault)) == []

    def test_of_one_process(self) -> None:
        assert found(of(processes=1)) == []

    def test_of_an_interrupted_run(self) -> None:
        assert found(of(finished=2)) == []


def lines_of(record: Record) -> list[str]:
    return list(lines(judge(record)))


class TestLine:
    def test_it_has_rival_mean_interval_and_cases(self) -> None:
        record = of()
        mean, low, high = (f"{x:.2f}" for x in by_hand(record, "ours-new", "near"))
        assert lines_of(record) == [
            f"ours-new against the best rival, near: {mean}× (95% CI {low}–{high}), geometric mean over 2 cases; the "
            "least favourable of 3 rivals"
        ]

    def test_a_single_case_is_named(self) -> None:
        assert (
            "), b1-h8-s64-d64-full-fp32; the least favourable of 3 rivals"
            in lines_of(of(shapes=("B=1,S=64,causal=0",)))[0]
        )

    def test_a_doubt_is_said(self) -> None:
        assert lines_of(biased(of()))[0].endswith(f"; this is no claim: {BIASED}")

    def test_a_doubt_about_another_rival_counts_too(self) -> None:
        """What is known of `far` may be wrong, so it may be the best."""
        g = random.Random(3)

        def seconds(contender: str, case: str, block: int) -> float:
            spike = 0.05 if contender == "far" and block % 10 in (0, 1) else 1.0
            return MEANS[contender] * spike * g.lognormvariate(0, 0.005)

        record = run(seconds, list(MEANS), judged=["ours-new"])
        (best,) = found(record)
        assert best.grid.doubt is None
        assert best.doubt is not None
        assert best.doubt.startswith("against far, the untrimmed mean differs")
        assert f"this is no claim: {best.doubt}" in lines_of(record)[0]

    def test_a_difference_below_the_floor_is_called_so(self) -> None:
        (line,) = lines_of(of({"base": 2e-3, "ours-new": 1e-3, "near": 1.005e-3}, noise=0.0005))
        assert ", below the default floor of 1.0%; the least favourable" in line

    def test_as_data(self) -> None:
        record = of()
        (row,) = plain(judge(record))
        assert (row["geometric_mean"], row["low"], row["high"]) == pytest.approx(by_hand(record, "ours-new", "near"))
        assert {
            name: row[name] for name in ("contender", "clock", "rival", "cases", "rivals", "left_out", "doubt")
        } == {
            "contender": "ours-new",
            "clock": "default",
            "rival": "near",
            "cases": 2,
            "rivals": 3,
            "left_out": [],
            "doubt": None,
        }
