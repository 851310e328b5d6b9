"""The figures of a judgement, each from the samples (A4, A6) and none from a contender that failed (promise 1)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fakes import Died, Silence
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.figures import wrong_on
from groundspeed.judge.judgement import CaseJudgement, judge
from groundspeed.judge.statistics import t_interval
from groundspeed.measure import exam
from histories import SHAPE, record_of
from records import MEANS, interrupted, on_gpu, run

THREE = {"base": 1e-3, "sdpa-flash": 0.5e-3, "ours": 0.8e-3}


@pytest.fixture(scope="module")
def record() -> Record:
    return run(THREE)


@pytest.fixture(scope="module")
def case(record: Record) -> CaseJudgement:
    return judge(record).cases[1]


def times(record: Record, case: int, contender: int) -> np.ndarray:
    columns = record.samples
    keep = (columns["phase"] == TIMED) & (columns["case"] == case) & (columns["contender"] == contender)
    return columns["seconds"][keep]


class TestLatency:
    def test_over_all_timed_samples(self, record: Record, case: CaseJudgement) -> None:
        """A4: mean, std, median, min, max, p5, p95, p99."""
        seconds, latency = times(record, 1, 2), case.result("ours").latency
        assert latency is not None
        assert latency.samples == len(seconds) == 40
        assert latency.mean == pytest.approx(seconds.mean())
        assert latency.std == pytest.approx(seconds.std(ddof=1))
        assert (latency.min, latency.max) == (seconds.min(), seconds.max())
        quantiles = tuple(np.quantile(seconds, (0.05, 0.95, 0.99)))
        assert (latency.p5, latency.p95, latency.p99) == pytest.approx(quantiles)
        medians = np.median(seconds.reshape(4, 10), axis=1)
        assert latency.median == pytest.approx(np.exp(np.log(medians).mean()))  # each process counts alike

    def test_its_interval_goes_over_process_medians(self, record: Record, case: CaseJudgement) -> None:
        """statistics.md 9."""
        seconds, latency = times(record, 1, 2).reshape(4, 10), case.result("ours").latency
        expected = t_interval([math.log(np.median(process)) for process in seconds])
        assert latency is not None
        assert (latency.low, latency.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))

    def test_warm_up_does_not_count(self, record: Record, case: CaseJudgement) -> None:
        warm_up = record.samples["phase"] != TIMED
        slow = {**record.samples, "seconds": np.where(warm_up, 9.0, record.samples["seconds"])}
        assert judge(replace(record, samples=slow)).cases[1].results == case.results

    def test_a_time_is_that_of_one_call(self, record: Record, case: CaseJudgement) -> None:
        """statistics.md 2: short work is batched, k launches to an interval."""
        batched = {**record.samples, "launches": np.full_like(record.samples["launches"], 4)}
        latency, single = judge(replace(record, samples=batched)).cases[1].results[0].latency, case.results[0].latency
        assert latency is not None
        assert single is not None
        assert latency.median == pytest.approx(single.median / 4)

    def test_outliers_are_counted_and_kept(self) -> None:
        def seconds(contender: str, case: str, block: int) -> float:
            return 1.0 if block == 4 else 1e-3 * (1 + 0.001 * block)

        latency = judge(run(seconds, ["base", "ours"], half_width=10.0)).cases[0].results[0].latency
        assert latency is not None
        assert (latency.samples, latency.outliers, latency.max) == (40, 4, 1.0)

    def test_one_process_has_no_interval(self) -> None:
        latency = judge(run(processes=1)).cases[0].results[0].latency
        assert latency is not None
        assert math.isnan(latency.low)
        assert math.isnan(latency.high)

    def test_one_sample_has_no_deviation(self) -> None:
        record = run(processes=1, looks=(1,))
        latency = judge(record).cases[0].results[0].latency
        assert latency is not None
        assert (latency.samples, latency.std) == (1, 0.0)


class TestRates:
    def test_from_the_work_of_the_maths(self, case: CaseJudgement) -> None:
        """4·B·H·S²·D FLOPs, and q, k, v and the output moved once."""
        latency, rates = case.result("ours").latency, case.result("ours").rates
        assert latency is not None
        assert rates is not None
        assert rates.flops == pytest.approx(4 * 2 * 8 * 64 * 64 * 64 / latency.median)
        assert rates.bytes == pytest.approx(4 * 2 * 8 * 64 * 64 * 4 / latency.median)
        assert rates.counts == pytest.approx(
            {"tokens": 128 / latency.median, "queries": 1024 / latency.median, "samples": 2 / latency.median}
        )
        assert (rates.flops_share, rates.bytes_share) == (None, None)

    def test_shares_of_the_peak_where_the_device_has_one(self, record: Record) -> None:
        rates = judge(on_gpu(record, "NVIDIA H200")).cases[0].result("ours").rates
        assert rates is not None
        assert rates.flops_share == pytest.approx(rates.flops / 66.9e12)
        assert rates.bytes_share == pytest.approx(rates.bytes / 4.8e12)

    def test_difference_to_flash(self, case: CaseJudgement) -> None:
        """A4: below 0 is faster than flash."""
        assert case.result("base").difference_to_flash == pytest.approx(1.0, abs=0.05)
        assert case.result("ours").difference_to_flash == pytest.approx(0.6, abs=0.05)
        assert case.result("sdpa-flash").difference_to_flash == 0.0

    def test_without_flash_there_is_none(self) -> None:
        assert judge(run()).cases[0].result("ours").difference_to_flash is None

    def test_memory_and_errors_are_the_largest_over_the_processes(self, record: Record) -> None:
        outcomes = tuple(
            replace(o, host_peak_bytes=100 + o.process, host_extra_bytes=o.process, max_abs=1e-6 * o.process)
            for o in record.outcomes
        )
        result = judge(replace(record, outcomes=outcomes)).cases[0].result("ours")
        assert (result.memory.host_peak_bytes, result.memory.extra_bytes) == (103, 3)
        assert (result.errors.max_abs, result.errors.rms_rel) == (3e-6, 1e-7)

    def test_unknown_memory_is_none(self, record: Record) -> None:
        outcomes = tuple(replace(o, host_peak_bytes=None, host_extra_bytes=None) for o in record.outcomes)
        memory = judge(replace(record, outcomes=outcomes)).cases[0].result("ours").memory
        assert (memory.host_peak_bytes, memory.extra_bytes) == (None, None)


class TestStatus:
    @pytest.mark.parametrize(
        ("fault", "status", "reason"),
        [
            ({"status": "INCORRECT", "reason": "off"}, "INCORRECT", "off"),
            ({"status": "ERROR", "reason": "raised"}, "ERROR", "raised"),
            (Died("killed"), "ERROR", "killed"),
            (Died("eaten", out_of_memory=True), "OOM", "eaten"),
            (Silence(), "TIMEOUT", "no answer within 30 s"),
        ],
    )
    def test_a_contender_that_failed_has_no_time(self, fault: object, status: str, reason: str) -> None:
        """Promise 1, in whichever process it failed; its samples stay in the record."""

        def faulty(contender: str, case: str, block: int | None) -> object:
            return fault if (contender, case, block) == ("ours", "b1-s64", 5) else None

        record = run(THREE, fault=faulty)  # type: ignore[arg-type]
        result = judge(record).cases[0].result("ours")
        assert result.status == status
        assert result.reason is not None
        assert result.reason.startswith(reason)
        assert (result.latency, result.rates, result.comparison) == (None, None, None)
        assert len(times(record, 0, 2)) > 0
        others = judge(record).cases[0]
        assert {others.result(name).status for name in ("base", "sdpa-flash")} == {"PASSED"}

    def test_one_failure_in_one_process_is_enough_and_is_named(self, record: Record) -> None:
        outcomes = [
            replace(o, status="ERROR", reason="it broke") if (o.process, o.contender) == (2, "ours") else o
            for o in record.outcomes
        ]
        result = judge(replace(record, outcomes=tuple(outcomes))).cases[0].result("ours")
        assert (result.status, result.reason) == ("ERROR", "it broke (process 3)")

    def test_the_gravest_status_stands(self, record: Record) -> None:
        statuses = ["SKIPPED", "TIMEOUT", "INCORRECT", "ERROR"]
        outcomes = [replace(o, status=statuses[o.process], reason=statuses[o.process]) for o in record.outcomes]
        assert judge(replace(record, outcomes=tuple(outcomes))).cases[0].results[0].status == "INCORRECT"

    def test_what_an_interrupted_run_did_not_reach_is_skipped(self, record: Record) -> None:
        result = judge(interrupted(record, 0)).cases[0].result("ours")
        assert (result.status, result.latency) == ("SKIPPED", None)
        assert "no process finished" in str(result.reason)

    def test_contenders_that_were_not_measured_are_not_judged(self, record: Record) -> None:
        absent = tuple(
            replace(c, status="ABSENT", reason="no such package") if c.name == "ours" else c for c in record.contenders
        )
        judgement = judge(replace(record, contenders=absent))
        assert [r.contender for r in judgement.cases[0].results] == ["base", "sdpa-flash"]

    def test_samples_of_an_interrupted_attempt_are_not_judged(self, record: Record) -> None:
        """Resume's unit is the process: what a broken attempt left is evidence, not measurement."""
        processes = tuple(replace(p, finished=None) if p.process == 3 else p for p in record.processes)
        judgement = judge(replace(record, processes=processes))
        latency = judgement.cases[0].result("ours").latency
        assert latency is not None
        assert latency.samples == 30
        assert judgement.cases[0].result("ours").comparison is not None


def test_two_contenders_that_never_met_in_a_block_have_no_comparison(record: Record) -> None:
    columns = record.samples
    even = columns["block"] % 2 == 0
    keep = (columns["phase"] != TIMED) | np.where(columns["contender"] == 0, even, ~even)
    judgement = judge(replace(record, samples={name: column[keep] for name, column in columns.items()}))
    assert judgement.cases[0].result("ours").status == "PASSED"
    assert judgement.cases[0].result("ours").comparison is None
    assert judgement.grids[0].failed == {"NO BASELINE": 2}


def test_verdicts_are_for_the_judged_alone() -> None:
    judgement = judge(run({**MEANS, "other": 0.9e-3}, judged=["ours"]))
    compared = {r.contender: r.comparison for r in judgement.cases[0].results}
    assert compared["ours"] is not None
    assert compared["other"] is not None
    assert compared["base"] is None
    assert compared["ours"].verdict == "FASTER"
    assert (compared["other"].verdict, compared["other"].adjusted_p) == (None, None)


@pytest.mark.parametrize(
    ("reason", "told"), [("returned NaN or infinity, first at ", 1), ("", 2), (f"{exam.LATER}max_abs error 1; ", 0)]
)
def test_inputs_on_which_it_was_wrong_are_told_if_one_call_on_them_is_wrong_again(reason: str, told: int) -> None:
    """Where it returned no numbers on a later case, it may have kept its result of an earlier one, which who calls it
    once has not. Where a later call was wrong, the inputs of the first are those on which it was right."""
    wrong = {"status": "INCORRECT", "reason": f"{reason}out[0, 0, 0, 1] of [1, 1, 16, 16]"}
    record = record_of(
        1,
        shapes=(SHAPE, "B=1,S=65,causal=0"),
        fault=lambda name, case, block: wrong if (name, block) == ("sdpa-flash", None) else None,
    )
    seeds = [wrong_on(record, case.name, "sdpa-flash") for case in record.cases]
    assert sum(seed is not None for seed in seeds) == told
