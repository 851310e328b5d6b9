"""B4: launching, copying and fusing are told by what was measured, each with what it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import models
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.judge.copies import copy_shares, is_copy
from groundspeed.judge.fusion import FEW, FEW_ROWS, SMALL_MATRIX, SOME_ROWS, WIDENING, fusions
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.judge.launches import LaunchOverhead, launch_overheads
from groundspeed.kernels.linear import form
from groundspeed.suites.inference import shapes

LAUNCHING, COPYING, FUSING = "launch overhead under 50 µs", "copies under 1% of the time", "fusion gains more than 10%"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return models.run(tmp_path_factory.mktemp("models"))


def ticked(item: str, record: Record, contender: str = "ours") -> Ticked:
    found = checklist([Evidence("0" * 64, judge(record))], contender)
    return next(one for one in found if one.item == item)


def without(record: Record, *contenders: str) -> Record:
    """As if these had failed."""
    failed = tuple(replace(o, status="ERROR", reason="no") if o.contender in contenders else o for o in record.outcomes)
    return replace(record, outcomes=failed)


def of_cases(record: Record, by: Callable[[CaseFacts], float], slow: float = 1.0) -> Record:
    """With the speed of ours multiplied, case by case; and its time in the first process where that changes it."""
    columns, factors = record.samples, np.array([1 / by(case) for case in record.cases])
    where = columns["contender"] == record.contender_index["ours"]
    factor = np.where(where, factors[columns["case"]], 1.0)
    factor *= np.where((factor != 1) & (columns["process"] == 0), slow, 1.0)
    return replace(record, samples={**columns, "seconds": factor * columns["seconds"]})


def slower(record: Record, clock: str, by: float, process: int | None = None) -> Record:
    """With what ours takes by one clock, in one process or in all, multiplied."""
    columns = record.samples
    cases = [i for i, case in enumerate(record.cases) if case.params.get("clock") == clock]
    where = np.isin(columns["case"], cases) & (columns["contender"] == record.contender_index["ours"])
    where &= (columns["process"] == process) if process is not None else True
    return replace(record, samples={**columns, "seconds": np.where(where, by, 1.0) * columns["seconds"]})


class TestLaunches:
    def test_eager_and_in_a_graph_over_the_processes(self, record: Record) -> None:
        found = launch_overheads(judge(models.watched(record, models.SEEN)))
        assert [(one.case.name, one.contender) for one in found] == [
            (case.name, name) for case in record.cases if case.name.endswith("@eager") for name in models.NAMES
        ]
        for one in found:
            eager, wanted = models.EAGER_S[one.contender], models.EAGER_S[one.contender] - models.GRAPH_S[one.contender]
            assert one.graph
            assert one.graph.saved.low < one.graph.saved.mean < one.graph.saved.high
            assert one.graph.saved.n == 4
            assert one.graph.saved.mean == pytest.approx(wanted, rel=0.02)
            assert one.graph.share.mean == pytest.approx(wanted / eager, rel=0.02)
            assert one.launches == {"sdpa": 7, "ours": 7}.get(one.contender)
            assert (one.each is None) == (one.launches is None)
            if one.each:
                assert one.each.mean == pytest.approx(eager / 7, rel=0.02)
                assert one.each.low < one.each.mean < one.each.high
                assert one.each.high == pytest.approx(one.eager.high / 7)

    def test_one_slow_process_leaves_columns_that_add_up_and_a_share(self, record: Record) -> None:
        found = launch_overheads(judge(slower(record, "eager", 20.0, process=0)))
        for one in (one for one in found if one.contender == "ours"):
            assert one.graph
            assert one.eager.mean - one.graph.seconds.mean == pytest.approx(one.graph.saved.mean)
            assert one.graph.share.mean == pytest.approx((3 / 3 + (1 - 2 / 60)) / 4, rel=0.02)
            assert one.graph.share.mean <= 1

    def test_by_eager_calls_alone_there_is_the_bound(self, tmp_path: Path) -> None:
        record = models.watched(models.run(tmp_path, models.SHAPES[:1], ("eager",)), models.SEEN)
        found = launch_overheads(judge(record))
        assert {one.graph for one in found} == {None}
        assert ticked(LAUNCHING, record).tick == "yes"

    def test_in_a_graph_alone_there_is_none(self, tmp_path: Path) -> None:
        record = models.run(tmp_path, models.SHAPES[:1], ("graph",))
        assert launch_overheads(judge(record)) == ()
        assert ticked(LAUNCHING, record).why == "needs --clock eager"

    def test_who_did_not_pass_has_none(self, record: Record) -> None:
        assert {one.contender for one in launch_overheads(judge(without(record, "ours")))} == {*models.NAMES} - {"ours"}

    def test_one_process_has_no_interval(self, record: Record) -> None:
        alone = models.watched(replace(record, processes=record.processes[:1]), models.SEEN)
        found = launch_overheads(judge(alone))
        assert found
        assert all(one.graph and math.isinf(one.graph.saved.high) and math.isinf(one.eager.high) for one in found)
        told = ticked(LAUNCHING, alone)
        assert (told.tick, told.why) == ("not determined", "a single process has no interval")

    def test_the_checklist_goes_by_the_bound_for_each_launch(self, record: Record) -> None:
        told = ticked(LAUNCHING, models.watched(record, models.SEEN))
        assert told.tick == "yes"
        by = {figure.name: figure.value for figure in told.facts[0].figures}
        assert [*by] == [
            *(
                "eager time",
                "time in a CUDA graph",
                "launches",
                "host time per launch, at most",
                "lower end",
                "upper end",
            )
        ]
        assert by["lower end"] < by["host time per launch, at most"] < by["upper end"] < 50e-6

    def test_launches_that_nobody_counted_leave_it_open(self, record: Record) -> None:
        told = ticked(LAUNCHING, record)
        assert (told.tick, told.why) == ("not determined", "its launches were not counted")

    def test_slow_on_the_device_is_no_merit(self, record: Record) -> None:
        """In a graph as slow as eager: nothing is taken away, and nothing is known of a launch."""
        slow = slower(slower(models.watched(record, models.SEEN), "eager", 2.0), "graph", 3.0)
        assert all(one.graph and one.graph.saved.mean / 7 < 1e-6 for one in self.ours(slow))
        told = ticked(LAUNCHING, slow)
        assert told.tick == "not determined"
        assert "upper bound" in told.why
        assert told.facts[0].figures[3].value == pytest.approx(6e-4 / 7, rel=0.02)

    def test_nor_is_fast_a_fault(self, record: Record) -> None:
        """The faster the device, the more a graph takes away."""
        assert ticked(LAUNCHING, slower(models.watched(record, models.SEEN), "graph", 0.01)).tick == "yes"

    def test_it_has_to_hold_for_every_case(self, record: Record) -> None:
        counted = models.watched(record, models.SEEN)
        first = counted.cases[0].name
        one_less = replace(counted, launched=tuple(seen for seen in counted.launched if seen.case != first))
        assert ticked(LAUNCHING, one_less).tick == "not determined"
        few = {"ours": {"nvjet": (2, 9e-5)}}
        mixed = tuple(seen for seen in models.watched(record, few).launched if seen.case == first)
        told = ticked(LAUNCHING, replace(one_less, launched=(*one_less.launched, *mixed)))
        assert told.tick == "not determined"
        assert told.facts[0].case.startswith(first)

    def ours(self, record: Record) -> list[LaunchOverhead]:
        return [one for one in launch_overheads(judge(record)) if one.contender == "ours"]


class TestCopies:
    def test_of_all_that_the_device_did(self, record: Record) -> None:
        found = copy_shares(judge(models.watched(record, models.SEEN)))
        assert len(found) == 2 * len(models.SHAPES)  # once, whatever clocks
        by = {one.contender: one for one in found}
        assert (by["sdpa"].launches, by["sdpa"].copies) == (7, 3)
        assert by["sdpa"].share == pytest.approx(0.1)
        assert (by["ours"].copies, by["ours"].share) == (0, 0)
        assert [one.case.name for one in found[::2]] == [case.name for case in models.cases_of()]

    @pytest.mark.parametrize(
        ("seen", "tick"),
        [
            ({"a": (1, 1e-4)}, "yes"),
            ({"a": (1, 1e-4), "Memset (Device)": (1, 0.9e-6)}, "yes"),
            ({"a": (1, 1e-4), models.COPY: (1, 2e-6)}, "no"),
            ({models.COPY: (1, 0.0)}, "not determined"),
        ],
    )
    def test_the_checklist(self, record: Record, seen: dict[str, tuple[int, float]], tick: str) -> None:
        assert ticked(COPYING, models.watched(record, {"ours": seen})).tick == tick

    def test_where_nobody_told_or_it_failed_there_is_no_share(self, record: Record) -> None:
        assert copy_shares(judge(record)) == ()
        assert ticked(COPYING, record).tick == "not determined"
        assert copy_shares(judge(without(models.watched(record, models.SEEN), "ours", "sdpa"))) == ()

    @pytest.mark.parametrize(
        ("name", "copies"),
        [
            ("Memcpy DtoD (Device -> Device)", True),
            ("Memset (Device)", True),
            (models.COPY, True),
            ("void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(int)>", True),
            ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::OpaqueType<2u>>", True),
            ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, x>", True),
            ("triton_poi_fused_clone_3", True),
            ("triton_poi_fused__to_copy_cat_slice_12", True),
            ("triton_poi_fused_add_clone_3", False),
            ("triton_per_fused_native_layer_norm_0", False),
            ("triton_poi_fused_gelu_1", False),
            ("append_paged_kernel", True),
            ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>", False),
            ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", False),
            ("norm_forward_kernel", False),
            ("my_memcpy_like_kernel", False),
            ("", False),
            ("triton_poi_fused" + "_t" * 50_000, False),
            ("triton_poi_fused" + "_copy_" * 50_000, False),
            ("copy_" * 50_000, False),
        ],
    )
    def test_names_of_what_only_copies(self, name: str, copies: bool) -> None:
        assert is_copy(name) is copies


class TestFusion:
    def test_against_the_same_with_kernels_of_their_own(self, record: Record) -> None:
        found = fusions(judge(record))
        assert [(one.contender, one.case and one.case.name) for one in found] == [
            (name, of)
            for name in ("ours", "sdpa-compiled")
            for of in (*(case.name for case in record.cases if case.name.endswith("@graph")), None)
        ]
        for one in found:
            assert one.ratio == pytest.approx(models.GRAPH_S["sdpa"] / models.GRAPH_S[one.contender], rel=0.01)
            assert one.theta.low < one.theta.mean < one.theta.high
        assert {one.enough for one in found if one.contender == "ours"} == {True}

    def test_it_is_the_speed_up_where_that_is_the_baseline(self, record: Record) -> None:
        judgement = judge(record)
        by = {one.case.name: one.theta for one in fusions(judgement) if one.case and one.contender == "ours"}
        for case in judgement.cases:
            if case.facts.name in by and (c := case.result("ours").comparison):
                assert (by[case.facts.name].mean, by[case.facts.name].low) == (c.interval.mean, c.interval.low)

    @pytest.mark.parametrize(("seconds", "tick"), [(2.0e-4, "yes"), (2.35e-4, "no"), (2.4e-4 / 1.1, "not determined")])
    def test_the_checklist(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, tick: str) -> None:
        monkeypatch.setitem(models.GRAPH_S, "ours", seconds)
        found = ticked(FUSING, models.run(tmp_path, models.SHAPES[:1], ("graph",)))
        assert found.tick == tick
        speed, low, high = (figure.value for figure in found.facts[0].figures)
        assert speed == pytest.approx(2.4e-4 / seconds, rel=0.01)
        assert low < speed < high
        assert found.why == ("its interval contains the required gain" if tick == "not determined" else "")

    def test_the_best_of_several_shapes_does_not_stand_for_all(self, record: Record) -> None:
        """Two gain next to nothing, one much; and the mean of other three much, though one of them does not."""
        first = record.cases[0].params
        few = of_cases(record, lambda case: 1.0 if case.params["S"] == first["S"] else 1 / 1.18)
        assert [one.enough for one in fusions(judge(few)) if one.contender == "ours"] == [True, False, False, False]
        told = ticked(FUSING, few)
        assert (told.tick, told.facts[0].case) == ("no", "geometric mean of 3 prompts")
        many = of_cases(record, lambda case: 1 / 1.18 if case.params["S"] == first["S"] else 1.2)
        assert [one.enough for one in fusions(judge(many)) if one.contender == "ours"] == [False, True, True, True]
        assert ticked(FUSING, many).tick == "yes"

    def test_nor_does_the_only_one_that_is_sure(self, record: Record) -> None:
        """Of the others one process is so slow that their intervals hold what is asked for, and that of the mean."""
        first = record.cases[0].params["S"]
        unsure = of_cases(record, lambda case: 1.0 if case.params["S"] == first else 0.93, slow=1.2)
        unsure = of_cases(unsure, lambda case: 1.2 if case.params["S"] == first else 1.0)
        found = [one.enough for one in fusions(judge(unsure)) if one.contender == "ours"]
        assert found == [True, None, None, None]
        assert ticked(FUSING, unsure).tick == "not determined"

    @pytest.mark.parametrize(
        "shape",
        ["L=1,d=64,H=4,B=2,S=1,N=64", "L=1,d=64,H=4,B=32,S=1,N=64", "L=1,d=64,H=4,B=2,S=64", "L=1,d=2048,H=16,B=2,S=8"],
    )
    def test_steps_and_prompts_as_short_are_not_in_it(self, tmp_path: Path, shape: str) -> None:
        """Ours has products of its own there."""
        record = models.run(tmp_path, (shape,), ("graph",))
        assert fusions(judge(record)) == ()
        assert f"more than {FEW}" in ticked(FUSING, record).why

    @pytest.mark.parametrize("shape", ["L=1,d=64,H=4,B=1,S=129", "L=1,d=2048,H=16,B=1,S=17"])
    def test_a_prompt_of_one_token_more_is(self, tmp_path: Path, shape: str) -> None:
        assert fusions(judge(models.run(tmp_path, (shape,), ("graph",))))

    def test_few_rows_are_those_of_the_kernel(self) -> None:
        assert (FEW_ROWS, SOME_ROWS, SMALL_MATRIX) == (form.FEW_ROWS, form.MOST_PRODUCT_ROWS, form.SMALL_MATRIX)
        assert WIDENING == shapes.WIDENING

    def test_without_a_graph_the_other_or_another_suite_there_is_none(self, record: Record) -> None:
        assert fusions(judge(without(record, "sdpa"))) == ()
        assert fusions(judge(replace(record, run=replace(record.run, suite="attention")))) == ()
        plain = replace(record, cases=tuple(replace(c, params={**c.params, "clock": "warm"}) for c in record.cases))
        assert fusions(judge(plain)) == ()
        assert "CUDA graph" in ticked(FUSING, without(record, "sdpa")).why
