"""B4: launching, copying and fusing are told by what was measured, each with what it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import models
from groundspeed.evidence.record import Record
from groundspeed.judge.copies import copy_shares, is_copy
from groundspeed.judge.fusion import fusions
from groundspeed.judge.grading.checklist import Ticked, checklist
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import judge
from groundspeed.judge.launches import launch_overheads

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


class TestLaunches:
    def test_eager_less_graph_over_the_processes(self, record: Record) -> None:
        found = launch_overheads(judge(models.watched(record, models.SEEN)))
        assert [(one.case.name, one.contender) for one in found] == [
            (case.name, name) for case in record.cases if case.name.endswith("@eager") for name in models.NAMES
        ]
        for one in found:
            wanted = models.EAGER_S[one.contender] - models.GRAPH_S[one.contender]
            assert one.seconds.low < one.seconds.mean < one.seconds.high
            assert one.seconds.n == 4
            assert one.seconds.mean == pytest.approx(wanted, rel=0.02)
            assert one.share == pytest.approx(wanted / models.EAGER_S[one.contender], rel=0.02)
            assert one.launches == {"sdpa": 7, "ours": 7}.get(one.contender)
            assert one.each_s == (one.launches and one.seconds.mean / one.launches)

    @pytest.mark.parametrize("clock", ["eager", "graph"])
    def test_a_shape_by_one_clock_has_none(self, tmp_path: Path, clock: str) -> None:
        record = models.run(tmp_path, models.SHAPES[:1], (clock,))
        assert launch_overheads(judge(record)) == ()
        assert "eager,graph" in ticked(LAUNCHING, record).why

    def test_who_did_not_pass_has_none(self, record: Record) -> None:
        assert {one.contender for one in launch_overheads(judge(without(record, "ours")))} == {*models.NAMES} - {"ours"}

    def test_one_process_has_no_interval(self, record: Record) -> None:
        alone = replace(record, processes=record.processes[:1])
        found = launch_overheads(judge(alone))
        assert found
        assert all(math.isinf(one.seconds.high) for one in found)
        assert ticked(LAUNCHING, alone).tick == "not determined"

    def test_the_checklist_asks_for_each_launch(self, record: Record) -> None:
        """100 µs of a call are much for one launch and little for seven."""
        assert ticked(LAUNCHING, record).tick == "no"
        told = ticked(LAUNCHING, models.watched(record, models.SEEN))
        assert told.tick == "yes"
        assert [figure.name for figure in told.facts[0].figures] == ["eager", "from a graph", "launches"]


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
        if tick != "not determined":
            assert found.facts[0].figures[0].value == pytest.approx(2.4e-4 / seconds, rel=0.01)

    def test_without_a_graph_the_other_or_another_suite_there_is_none(self, record: Record) -> None:
        assert fusions(judge(without(record, "sdpa"))) == ()
        assert fusions(judge(replace(record, run=replace(record.run, suite="attention")))) == ()
        plain = replace(record, cases=tuple(replace(c, params={**c.params, "clock": "warm"}) for c in record.cases))
        assert fusions(judge(plain)) == ()
        assert "CUDA graph" in ticked(FUSING, without(record, "sdpa")).why
