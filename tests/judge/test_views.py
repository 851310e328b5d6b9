"""The other views of a comparison, one after the other and without throttled blocks; the cache; and what a GPU is
warned of (statistics.md 4, 6; D5, D7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groundspeed.case import with_clock
from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import SEQUENTIAL, TIMED, WARMUP
from groundspeed.judge.judgement import judge
from groundspeed.judge.limits import cache_of
from groundspeed.judge.verdict import Comparison
from groundspeed.judge.views import HELD_BACK, reasons, sequential_thetas, unthrottled_thetas
from groundspeed.judge.warnings import Disturbance, environment_warnings, warnings_of
from groundspeed.suites.registry import suite_module
from records import MEANS, constant, interrupted, on_gpu, run

IDLE, CHOSEN, POWER, BOOST, HEAT = 0x1, 0x2, 0x4, 0x10, 0x20
HALF = math.log(2)


def held(block: int) -> bool:
    """Two blocks of five."""
    return block % 5 < 2


def drooping(contender: str, case: str, block: int) -> float:
    """A contender that is as slow as the baseline in the held blocks, and twice as fast in the others."""
    return 0.5e-3 if contender == "ours" and not held(block) else 1e-3


def with_bits(record: Record, bits: int, phase: int = TIMED, **where: int | Sequence[int]) -> Record:
    """The record of a GPU that gave these reasons in the samples whose columns are as said, and none in others."""
    columns = record.samples
    rows = columns["phase"] == phase
    for name, values in where.items():
        rows &= np.isin(columns[name], values)
    assert rows.any()
    before = np.maximum(columns["throttle"], 0)
    return replace(record, samples={**columns, "throttle": np.where(rows, before | bits, before)})


@pytest.fixture(scope="module")
def record() -> Record:
    """Three contenders on two cases in four processes of ten blocks, on a GPU that said nothing of itself."""
    one = on_gpu(run(drooping, ["base", "ours", "third"], looks=(10,), judged=["ours"]), "NVIDIA H200")
    assert {stop.blocks for stop in one.stops} == {10}
    return one


HELD = [block for block in range(10) if held(block)]


@pytest.fixture(scope="module")
def throttled(record: Record) -> Record:
    return with_bits(record, POWER, block=HELD)


def comparison(record: Record, case: int = 0, contender: str = "ours") -> Comparison:
    found = judge(record).cases[case].result(contender).comparison
    assert found is not None
    return found


def warning(record: Record, code: str) -> Disturbance | None:
    return next((found for found in judge(record).warnings if found.code == code), None)


def thetas(record: Record) -> list[float]:
    return unthrottled_thetas(record, record.cases[0].name, "ours")


class TestReasons:
    @pytest.mark.parametrize("bits", [0, IDLE, CHOSEN, BOOST, 0x100, IDLE | CHOSEN, -1 & ~sum(HELD_BACK)])
    def test_idle_and_chosen_clocks_are_not_held_back(self, bits: int) -> None:
        assert reasons(bits) == []

    @pytest.mark.parametrize(
        ("bits", "words"),
        [
            (0x04, "power cap"),
            (0x08, "hardware slowdown"),
            (0x20, "software thermal slowdown"),
            (0x40, "hardware thermal slowdown"),
            (0x80, "power brake"),
        ],
    )
    def test_each_that_holds_back_has_its_words_as_nvml_numbers_it(self, bits: int, words: str) -> None:
        assert reasons(bits) == [words] == reasons(bits | IDLE)

    def test_several_at_once_are_all_told(self) -> None:
        assert reasons(POWER | HEAT | IDLE) == ["power cap", "software thermal slowdown"]


class TestWithoutThrottledBlocks:
    def test_it_is_what_the_other_blocks_say(self, throttled: Record) -> None:
        assert thetas(throttled) == pytest.approx([HALF] * 4)
        seen = comparison(throttled)
        assert seen.unthrottled is not None
        assert seen.unthrottled.mean == pytest.approx(HALF)
        assert seen.interval.mean == pytest.approx(2 / 3 * HALF), "the verdict's own figure goes over all blocks"

    def test_no_verdict_rests_on_it(self, record: Record, throttled: Record) -> None:
        plain, seen = comparison(record), comparison(throttled)
        assert replace(seen, unthrottled=None) == plain

    def test_where_no_block_was_throttled_there_is_nothing_to_show(self, record: Record) -> None:
        for free in (record, with_bits(record, 0)):
            assert thetas(free) == []
            assert comparison(free).unthrottled is None

    def test_being_idle_is_not_being_throttled(self, record: Record) -> None:
        idle = with_bits(record, IDLE, block=HELD)
        assert thetas(idle) == []
        assert warning(idle, "throttled") is None

    def test_where_all_were_there_is_nothing_left_to_show(self, record: Record) -> None:
        all_of_them = with_bits(record, HEAT)
        assert thetas(all_of_them) == []
        assert comparison(all_of_them).unthrottled is None

    def test_where_one_process_was_throttled_throughout_the_rest_would_mislead(self, record: Record) -> None:
        one = with_bits(with_bits(record, POWER, process=2), POWER, block=HELD)
        assert thetas(one) == pytest.approx([HALF] * 3)
        assert comparison(one).unthrottled is None

    def test_a_process_that_never_was_keeps_all_its_blocks(self, record: Record) -> None:
        one = with_bits(record, POWER, block=HELD, process=1)
        assert thetas(one) == pytest.approx([2 / 3 * HALF, HALF, 2 / 3 * HALF, 2 / 3 * HALF])

    @pytest.mark.parametrize("contender", [0, 1, 2], ids=["base", "ours", "third"])
    def test_one_sample_is_enough_whosever_it_is(self, record: Record, contender: int) -> None:
        """The clocks are the device's: who runs next runs on the same ones."""
        assert thetas(with_bits(record, POWER, block=HELD, contender=contender)) == pytest.approx([HALF] * 4)

    def test_another_case_has_its_own_blocks(self, record: Record) -> None:
        other = with_bits(record, POWER, case=1, block=HELD)
        assert comparison(other, 0).unthrottled is None
        assert comparison(other, 1).unthrottled is not None

    def test_the_warm_up_is_none_of_the_blocks(self, record: Record) -> None:
        warm = with_bits(record, POWER, phase=WARMUP)
        assert thetas(warm) == []
        assert warning(warm, "throttled") is None

    def test_an_interrupted_attempt_is_not_judged(self, throttled: Record) -> None:
        unfinished = replace(
            throttled,
            processes=tuple(replace(p, finished=None if p.process == 3 else 1.0) for p in throttled.processes),
        )
        assert thetas(unfinished) == pytest.approx([HALF] * 3)


class TestThrottledWarning:
    def test_it_counts_blocks_and_names_the_reasons(self, record: Record) -> None:
        some = with_bits(with_bits(record, POWER | IDLE, block=[0, 1]), HEAT, block=[1, 2], process=0)
        found = warning(some, "throttled")
        assert found is not None
        # Blocks 0 and 1 in 4 processes and 2 cases, block 2 in the first process; 10 blocks in each
        assert found.message == (
            "the device throttled its clocks (power cap, software thermal slowdown) in 18 of 80 blocks"
        )
        assert found.remedy

    def test_blocks_of_interrupted_attempts_count_nowhere(self, throttled: Record) -> None:
        unfinished = tuple(replace(p, finished=None if p.process == 3 else 1.0) for p in throttled.processes)
        found = warning(replace(throttled, processes=unfinished), "throttled")
        assert found is not None
        assert found.message.endswith("in 24 of 60 blocks")

    def test_a_device_that_says_nothing_is_not_warned_of(self, record: Record) -> None:
        assert warning(record, "throttled") is None


@pytest.fixture(scope="module")
def series() -> Record:
    """With ten samples of each contender in a row after the blocks."""
    return run(MEANS, sequential=10, looks=(10,))


class TestOneAfterTheOther:
    def with_ratio(self, record: Record, ratio: float, **where: int) -> Record:
        """As if the series had shown this speed-up, where the columns are as said."""
        columns = record.samples
        rows = (columns["phase"] == SEQUENTIAL) & (columns["contender"] == record.contender_index["ours"])
        for name, value in where.items():
            rows &= columns[name] == value
        base = (columns["phase"] == SEQUENTIAL) & (columns["contender"] == record.contender_index["base"])
        seconds = np.where(base, 1e-3, np.where(rows, 1e-3 / ratio, columns["seconds"]))
        return replace(record, samples={**columns, "seconds": seconds})

    def without(self, record: Record, contender: str, process: int) -> Record:
        columns = record.samples
        gone = (columns["phase"] == SEQUENTIAL) & (columns["contender"] == record.contender_index[contender])
        keep = ~(gone & (columns["process"] == process))
        return replace(record, samples={name: column[keep] for name, column in columns.items()})

    def thetas(self, record: Record) -> list[float]:
        return sequential_thetas(record, record.cases[0].name, "ours")

    def test_it_is_the_ratio_of_the_series(self, series: Record) -> None:
        twice = self.with_ratio(series, 2.0)
        assert self.thetas(twice) == pytest.approx([HALF] * 4)
        seen = comparison(twice)
        assert seen.sequential is not None
        assert seen.sequential.mean == pytest.approx(HALF)

    def test_each_process_has_its_own(self, series: Record) -> None:
        twice = self.with_ratio(self.with_ratio(series, 1.0), 2.0, process=1)
        assert self.thetas(twice) == pytest.approx([0.0, HALF, 0.0, 0.0])

    def test_outliers_of_a_series_are_trimmed(self, series: Record) -> None:
        twice = self.with_ratio(series, 2.0)
        odd = self.with_ratio(twice, 50.0, block=3)
        assert self.thetas(odd) == pytest.approx([HALF] * 4)

    def test_no_verdict_rests_on_it(self, series: Record) -> None:
        plain, seen = (comparison(self.with_ratio(series, ratio)) for ratio in (1.0, 2.0))
        assert seen.sequential != plain.sequential
        assert replace(seen, sequential=None) == replace(plain, sequential=None)

    def test_without_a_series_there_is_none(self) -> None:
        plain = run()
        assert sequential_thetas(plain, plain.cases[0].name, "ours") == []
        assert comparison(plain).sequential is None

    @pytest.mark.parametrize("contender", ["base", "ours"])
    def test_where_a_process_lacks_one_there_is_none_to_compare_with(self, series: Record, contender: str) -> None:
        part = self.without(series, contender, process=2)
        assert len(self.thetas(part)) == 3
        assert comparison(part).sequential is None

    def test_an_interrupted_attempt_is_not_judged(self, series: Record) -> None:
        assert len(self.thetas(interrupted(series, 2))) == 2

    def test_a_series_that_disagrees_is_warned_of(self, series: Record) -> None:
        found = warning(self.with_ratio(series, 2.0), "sequential")
        assert found is not None
        name = series.cases[0].name
        told = f"ours on {name} reads 2× instead of 1.25×, a difference above the floor, likewise in 1 more comparison"
        assert found.message == f"timed one after the other, {told}"
        assert "interleaved" in found.remedy

    def test_one_case_has_no_more(self, series: Record) -> None:
        agreeing = self.with_ratio(series, 1.25)
        found = warning(self.with_ratio(agreeing, 2.0, case=1), "sequential")
        assert found is not None
        assert f"ours on {series.cases[1].name} reads 2×" in found.message
        assert "and so" not in found.message

    def test_within_the_floor_it_agrees(self, series: Record) -> None:
        """1% for work of a millisecond."""
        measured = comparison(series).interval.mean
        for apart, warned in ((0.008, False), (0.015, True), (-0.008, False), (-0.015, True)):
            other = self.with_ratio(series, math.exp(measured + apart), case=0)
            other = self.with_ratio(other, math.exp(comparison(series, 1).interval.mean), case=1)
            assert (warning(other, "sequential") is not None) is warned


CASE = suite_module("attention").shape_cases("B=1,H=8,S=64,D=64,causal=0", ("bf16",))[0]
MOVED = 4 * 8 * 64 * 64 * 2
"""q, k, v and the result of two bytes each."""


@pytest.fixture(scope="module")
def graph() -> Record:
    return on_gpu(run(cases=[with_clock(CASE, "graph")], looks=(10,)), "NVIDIA H200")


class TestCache:
    """D5: work that stays in the L2 cache is not held to the bandwidth of the memory."""

    def with_l2(self, record: Record, size: Any) -> Record:
        return replace(record, environment={**record.environment, "worker": {"l2_bytes": size}})

    def stays(self, record: Record) -> bool:
        (case,) = record.cases
        return cache_of(record, case).resident

    def test_all_sets_of_inputs_must_fit_together(self, graph: Record) -> None:
        assert graph.cases[0].bytes == MOVED
        assert graph.protocol.input_sets == 3
        assert self.stays(self.with_l2(graph, 3 * MOVED))
        assert not self.stays(self.with_l2(graph, 3 * MOVED - 1))

    @pytest.mark.parametrize(("clock", "stays"), [("warm", True), ("graph", True), ("eager", True), ("default", False)])
    def test_a_clock_that_flushes_leaves_nothing_there(self, clock: str, stays: bool) -> None:
        case = CASE if clock == "default" else with_clock(CASE, clock)
        record = on_gpu(run(cases=[case], looks=(10,), processes=1), "NVIDIA H200")
        assert self.stays(self.with_l2(record, 1 << 40)) is stays

    def test_a_cpu_has_no_l2_to_speak_of(self, graph: Record) -> None:
        on_cpu = replace(graph, run=replace(graph.run, device="cpu"))
        assert not self.stays(self.with_l2(on_cpu, 1 << 40))

    @pytest.mark.parametrize("worker", [None, {}, [], {"l2_bytes": None}, {"l2_bytes": "52428800"}])
    def test_where_its_size_is_not_known_nothing_stays(self, graph: Record, worker: Any) -> None:
        assert not self.stays(replace(graph, environment={**graph.environment, "worker": worker}))
        assert not self.stays(replace(graph, environment={"gpu": {"name": "NVIDIA H200"}}))

    def test_the_bandwidth_bounds_only_what_leaves_the_cache(self, graph: Record) -> None:
        (far,), (near,) = (judge(self.with_l2(graph, size)).cases for size in (0, 3 * MOVED))
        assert far.limit is not None
        assert near.limit is not None
        assert (far.l2_resident, far.limit.bound) == (False, "bandwidth")
        assert (near.l2_resident, near.limit.bound) == (True, "compute")
        assert far.limit.seconds == pytest.approx(MOVED / 4.8e12)
        assert near.limit.seconds == pytest.approx(4 * 8 * 64 * 64 * 64 / 989.4e12)

    def test_what_is_quicker_than_the_memory_is_invalid_only_outside_the_cache(self) -> None:
        quick = constant({"base": 1e-3, "ours": 40e-9})  # the memory takes 55 ns, the tensor cores 8
        record = on_gpu(run(quick, list(MEANS), cases=[with_clock(CASE, "graph")], looks=(10,)), "NVIDIA H200")
        status = {size: judge(self.with_l2(record, size)).cases[0].result("ours").status for size in (0, 1 << 30)}
        assert status == {0: "INVALID", 1 << 30: "PASSED"}


@pytest.fixture(scope="module")
def quiet() -> Record:
    return run()


class TestWarnings:
    def said(self, record: Record) -> dict[str, str]:
        return {found.code: found.message for found in warnings_of(record) if found.code != "uncalibrated"}

    def with_processes(self, record: Record, *changes: dict[str, Any]) -> Record:
        changed = tuple(replace(p, **change) for p, change in zip(record.processes, changes, strict=True))
        return replace(record, processes=changed)

    def test_neighbours_are_named_once_in_alphabetical_order(self, quiet: Record) -> None:
        users = [("zoom, 3 MiB",), (), ("ollama, 5 MiB", "zoom, 3 MiB"), ()]
        record = self.with_processes(quiet, *({"gpu_users": some} for some in users))
        assert self.said(record) == {
            "neighbours": "other programs held the GPU during this run: ollama, 5 MiB, zoom, 3 MiB"
        }

    def test_nobody_is_no_neighbour(self, quiet: Record) -> None:
        assert self.said(quiet) == {}

    def test_several_gpus(self, quiet: Record) -> None:
        record = self.with_processes(quiet, {"gpu": "a"}, {"gpu": "b"}, {"gpu": "a"}, {"gpu": "c"})
        assert list(self.said(record)) == ["several-gpus"]
        assert "3 GPUs" in self.said(record)["several-gpus"]

    def test_one_gpu_or_none_known_is_one(self, quiet: Record) -> None:
        record = self.with_processes(quiet, {"gpu": "a"}, {"gpu": None}, {"gpu": "a"}, {"gpu": "a"})
        assert self.said(record) == {}

    def test_a_gpu_on_which_no_process_ended_is_in_no_figure(self, quiet: Record) -> None:
        record = self.with_processes(quiet, {"gpu": "a"}, {"gpu": "a"}, {"gpu": "a"}, {"gpu": "b", "finished": None})
        assert "several-gpus" not in self.said(record)

    def test_users_before_the_run_are_named(self) -> None:
        (found,) = environment_warnings({"gpu": {"users": ["zoom, 3 MiB", "a program"]}})
        assert found.code == "gpu-users"
        assert found.message == "other programs hold the GPU: zoom, 3 MiB, a program"
        assert "CUDA_VISIBLE_DEVICES" in found.remedy

    @pytest.mark.parametrize("gpu", [None, {}, {"users": []}, {"users": None}, {"users": "zoom"}, []])
    def test_none_are_not(self, gpu: Any) -> None:
        assert list(environment_warnings({"gpu": gpu})) == []
