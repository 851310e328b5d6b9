"""The procedure on noise with known truth (D1, D2, D7): the fast part of what `tools/simulate.py` studies in full.

A figure fails where it is worse than what chance makes of a procedure just at its bound in 999 of 1,000 studies."""

from __future__ import annotations

import math

import broken
import numpy as np
import pytest
import study
from noise import MODELS, STRESS, TYPICAL
from procedure import NO_FLOOR, PLANS, Run, calibrations, comparison, plan, stopped, without_description
from real import AA, DECODING, KINDS, PAIRS, Real, control, real, series, table
from study import Share

from groundspeed.evidence.protocol import EXTENSIONS
from groundspeed.judge.statistics import t_interval, trimmed
from groundspeed.judge.stopping import should_stop
from groundspeed.judge.verdict import Floor, centre, compare, judge_family
from groundspeed.lab.presets import PRESETS

RUNS = 400
FAMILIES = 120
STANDARD = PLANS["standard"]
PAIR = [("ours", "base")]


def _when(preset: str) -> list[pytest.MarkDecorator]:
    """Before a release alone, unless most claims are of this preset."""
    return [] if preset.startswith("standard") else [pytest.mark.release]


class TestTheSimulationIsTheProcedure:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("name", MODELS)
    def test_centres_are_those_of_the_stopping_rule_and_the_trimmed_mean(self, preset: str, name: str) -> None:
        """Many at once, and one block after the other as a process would."""
        protocol = PLANS[preset].protocol
        theta = MODELS[name].theta(study.generator(1, name), 3, 4, protocol.looks[-1], np.zeros(3))
        made = stopped(theta, protocol)
        for place in np.ndindex(theta.shape[:2]):
            for blocks in range(1, protocol.looks[-1] + 1):
                ratios = theta[place][:blocks].tolist()
                times = {"base": dict(enumerate(map(math.exp, ratios))), "ours": dict.fromkeys(range(blocks), 1.0)}
                if should_stop(protocol, blocks, times, PAIR, 0.0):
                    break
            own = trimmed(ratios)
            assert made.blocks[place] == blocks
            assert (made.mean[place], made.se[place]) == pytest.approx((own.mean, own.se), rel=1e-9, abs=1e-12)
            assert made.plain[place] == pytest.approx(np.mean(ratios), abs=1e-12)

    def test_a_comparison_is_that_of_the_product_but_for_its_description(self) -> None:
        theta = MODELS["tails"].theta(study.generator(2), 1, 8, 40, np.array([0.01]))
        made = stopped(theta, STANDARD.protocol)
        centres = [centre(i, theta[0, i, : made.blocks[0, i]].tolist()) for i in range(8)]
        product, simulated = compare("ours", "base", centres, 1e-3), comparison(made, 0, 8, 0.95)
        for name in ("mean", "low", "high", "sd", "p", "n"):
            assert getattr(simulated.interval, name) == pytest.approx(getattr(product.interval, name), rel=1e-9)
            assert getattr(simulated.plain, name) == pytest.approx(getattr(product.plain, name), rel=1e-9)
        assert [c.theta.df for c in simulated.centres] == [c.theta.df for c in product.centres]

    def test_no_verdict_hangs_on_the_description_that_is_left_out(self) -> None:
        run = Run(MODELS["normal"].centres(study.generator(3), 40, STANDARD, np.linspace(-0.04, 0.04, 40)), STANDARD)
        whole = [c.verdict for c in run.judged(None).comparisons]
        with without_description():
            assert [c.verdict for c in run.judged(None).comparisons] == whole
        assert len(set(whole)) == 4

    def test_a_calibration_is_made_of_the_intervals_of_its_comparisons(self) -> None:
        centres = MODELS["normal"].centres(study.generator(4), 20, STANDARD)
        (machine,) = calibrations(centres, STANDARD)
        intervals = [t_interval(row) for row in centres.mean]
        assert machine.estimates == pytest.approx([i.mean for i in intervals])
        assert machine.ts == pytest.approx([i.mean * math.sqrt(8) / i.sd for i in intervals])

    @pytest.mark.parametrize(("preset", "processes"), [("quick", 4), ("standard", 8)])
    def test_an_extension_is_taken_only_where_something_is_unclear(self, preset: str, processes: int) -> None:
        extended = plan(preset, extended=True)
        more, confidence = EXTENSIONS[processes]
        assert (extended.most, extended.protocol.confidence) == (more, confidence)
        clear = TYPICAL.centres(study.generator(5), 1, extended, 0.3)
        assert Run(clear, extended).judged(NO_FLOOR).processes == processes
        unclear = TYPICAL.centres(study.generator(6), 1, extended, 0.02)
        taken = Run(unclear, extended).judged(Floor(0.1, "calibrated"))
        assert taken.processes == more
        assert taken.comparisons[0].interval == t_interval(unclear.mean[0], confidence)

    def test_a_run_of_many_cases_is_corrected_for_all_of_them_and_their_mean(self) -> None:
        run = Run(TYPICAL.centres(study.generator(7), 5, STANDARD, 0.002), STANDARD)
        alone = [Run(run.centres.rows(i, i + 1), STANDARD).judged(NO_FLOOR).comparisons[0] for i in range(5)]
        mean = t_interval(run.centres.mean.mean(axis=0)).p
        with_mean = judge_family(alone, 8, [mean])
        got = [c.adjusted_p for c in run.judged(NO_FLOOR).comparisons]
        assert got == [c.adjusted_p for c in with_mean]

    def test_real_noise_is_that_of_the_bundles(self) -> None:
        """Whole processes, in the order of their blocks, about a truth of 0."""
        found = table("cudnn/portable", "graph", STANDARD.protocol)
        cases = series("cudnn/portable", "graph")
        first = next(iter(cases.values()))[0]
        again = stopped(np.resize(first, (1, 1, 40)), STANDARD.protocol)
        assert found.centres.mean[0, 0, 0] == again.mean[0, 0]
        assert np.allclose(found.process.mean(axis=1), 0, atol=1e-15)
        wanted = found.process.std(axis=1, ddof=1).mean()
        drawn = Real("cudnn/portable", "graph").centres(study.generator(8), 20_000, STANDARD)
        assert drawn.mean.mean() == pytest.approx(0, abs=0.002)
        assert drawn.mean.std(axis=1, ddof=1).mean() == pytest.approx(wanted, rel=0.25)

    def test_every_kind_of_work_is_in_the_bundles(self) -> None:
        assert min(len(series(pair, kind)) for pair in PAIRS for kind in KINDS) >= 10


class TestOneComparison:
    """D1: the interval holds what it says. D2: where there is no difference, none is found in more than one run of
    twenty. D7: a difference of 2% is not called the same."""

    @pytest.mark.parametrize("preset", [pytest.param(p, marks=_when(p)) for p in PLANS])
    @pytest.mark.parametrize("name", MODELS)
    def test_on_every_noise(self, name: str, preset: str) -> None:
        found = study.single(MODELS[name], PLANS[preset], RUNS)
        assert study.misses(found) == []
        assert not Share(found["covered_difference"], RUNS).under(study.COVERAGE_AT_LEAST)
        assert not Share(found["false_default_floor"], RUNS).over(study.FALSE_AT_MOST)
        assert not Share(found["false_same"], RUNS).over(study.FALSE_SAME_AT_MOST)

    @pytest.mark.parametrize("preset", [pytest.param(p, marks=_when(p)) for p in PRESETS])
    @pytest.mark.parametrize("name", real(swap=True))
    def test_on_the_noise_of_an_h200(self, name: str, preset: str) -> None:
        assert study.misses(study.single(real(swap=True)[name], PLANS[preset], RUNS)) == []

    def test_resampling_eight_processes_costs_little_coverage(self) -> None:
        """Normal noise, treated as that of the bundles is."""
        assert not Share(study.single(control(), PLANS["quick"], RUNS)["covered"], RUNS).under(0.94)


class TestAFamily:
    @pytest.mark.parametrize("name", MODELS)
    def test_errs_in_one_run_of_a_hundred(self, name: str) -> None:
        """D2: at standard with the floor; and of 1,000 comparisons at most one has a false verdict."""
        found = study.family(MODELS[name], STANDARD, FAMILIES)
        assert study.misses(found) == []
        assert not Share(found["verdicts"], FAMILIES * study.FAMILY).over(study.AA_AT_MOST)

    @pytest.mark.parametrize("kind", ["long", "graph"])
    def test_the_spread_of_its_own_comparisons_is_part_of_its_floor(self, kind: str) -> None:
        """Where two contenders differ more from process to process than one from itself, A/A alone shows too little."""
        found = study.family(Real("cudnn/portable", kind), STANDARD, FAMILIES)
        assert study.misses(found) == []
        assert found["aa_alone"] >= found["family_60"]

    def test_a_process_in_eight_that_is_a_fifth_slower_makes_no_verdict_where_it_is_missing(self) -> None:
        """The farthest process of comparisons that are alike is part of their floor."""
        found = study.family(Real(DECODING, "graph"), STANDARD, FAMILIES)
        assert study.misses(found) == []
        assert Share(found["without_outliers"], FAMILIES).over(study.FAMILY_AT_MOST)


class TestPower:
    """D7: a planted slow-down of 3% is found."""

    @pytest.mark.parametrize("preset", PRESETS)
    def test_for_three_per_cent_at_typical_noise(self, preset: str) -> None:
        assert not Share(study.single(TYPICAL, PLANS[preset], RUNS)["power"], RUNS).under(study.POWER_AT_LEAST)

    @pytest.mark.parametrize("preset", ["standard", pytest.param("paper", marks=pytest.mark.release)])
    def test_in_a_family_of_sixty(self, preset: str) -> None:
        found = study.family_power(TYPICAL, PLANS[preset], 100)
        assert not Share(found["power"], 100).under(study.POWER_AT_LEAST)

    def test_the_processes_needed_grow_with_the_noise(self) -> None:
        plans = {n: plan("standard", processes=n) for n in study.NUMBERS}
        needed = [study.needed(Real(pair, "long"), plans, 500)["processes"] for pair in (AA, "cudnn/portable")]
        assert needed[0] <= 4 < needed[1]


class TestTheAlarm:
    def test_it_is_rare_on_a_machine_without_bias(self) -> None:
        assert not Share(study.single(TYPICAL, STANDARD, RUNS)["alarms"], RUNS).over(0.05)

    def test_it_goes_off_where_all_processes_share_a_bias(self) -> None:
        assert study.single(STRESS["biased"], PLANS["paper"], 200)["alarms"] > 100


class TestBrokenProceduresAreCaught:
    """The bounds can fail: what other tools do fails them, on the noise on which the procedure keeps them."""

    @pytest.mark.parametrize("way", [broken.one_process, broken.on_significance, broken.best_of_three])
    @pytest.mark.parametrize("name", ["normal", "AR(1)"])
    def test_by_coverage(self, way: broken.Way, name: str) -> None:
        assert way(MODELS[name], RUNS).covered.under(study.COVERAGE_AT_LEAST)

    @pytest.mark.parametrize("way", [broken.one_process, broken.on_significance, broken.best_of_three])
    def test_by_false_positives(self, way: broken.Way) -> None:
        assert way(MODELS["AR(1)"], RUNS).false.over(study.FALSE_AT_MOST)

    @pytest.mark.parametrize("way", [broken.without_holm, broken.without_floor])
    def test_by_the_error_of_a_family(self, way: broken.FamilyWay) -> None:
        assert way(MODELS["bimodal"], 2 * FAMILIES).over(study.FAMILY_AT_MOST)
        assert not broken.with_both(MODELS["bimodal"], 2 * FAMILIES).over(study.FAMILY_AT_MOST)
