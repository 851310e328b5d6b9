"""Targets are goals, never measurements, and always labelled against the device's limit (B9)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.grading.targets import goals, is_about, label, limit_of, target_for
from groundspeed.judge.judgement import CaseJudgement, judge
from groundspeed.judge.limits import PEAKS, Limit
from groundspeed.suites.registry import suite_module
from records import on_gpu, run

CASES = {case.name: case for case in suite_module("attention").all_cases()}

GPUS = {"H100": "NVIDIA H100 80GB HBM3", "A100": "NVIDIA A100-SXM4-80GB", "A10": "NVIDIA A10"}

# requirements.md: reference, target, excellent in ms, and the label of the row.
TABLE = {
    "ref-64": ({"H100": (3.2, 4.5, 3.8), "A100": (6.8, 9.5, 8.0), "A10": (18.5, 26.0, 22.0)}, "trivial"),
    "ref-128": ({"H100": (18.5, 26.0, 22.0), "A100": (42.0, 60.0, 50.0), "A10": (115.0, 165.0, 138.0)}, "possible"),
}


def judged(case: str, gpu: str) -> CaseJudgement:
    record = run({"base": 1.0, "ours": 0.5}, cases=[CASES[case]])
    return judge(on_gpu(record, gpu)).cases[0]


@pytest.mark.parametrize("family", GPUS)
@pytest.mark.parametrize("shape", TABLE)
def test_the_table_of_the_specification(shape: str, family: str) -> None:
    figures, expected = TABLE[shape]
    case = judged(f"{shape}-full-fp16", GPUS[family])
    assert case.target is not None
    milliseconds = tuple(1e3 * case.target.goals[name] for name in ("reference", "target", "excellent"))
    assert milliseconds == pytest.approx(figures[family])
    assert case.target_label == expected


# requirements.md: the labels of what no suite measures yet, on the GPU of each column.
LABELS = {
    "moe 4x512": "possible possible possible",
    "moe 16x2048": "possible possible possible",
    "moe 32x2048": "possible possible possible",
    "gemm 8192x11008x4096": "possible possible -",
    "inference small-1x128": "possible possible possible",
    "inference small-4x512": "possible trivial trivial",
    "inference small-16x2048": "possible possible possible",
    "inference medium-8x1024": "possible possible possible",
    "inference large-4x512": "possible impossible impossible",
    "inference large-8x2048": "impossible impossible impossible",
}


@pytest.mark.parametrize("row", LABELS)
def test_a_target_has_its_label_before_anybody_measures_it(row: str) -> None:
    suite, _, name = row.partition(" ")
    found = []
    for gpu, device in GPUS.items():
        target = next((t for t in packaged().of_column(gpu) if (t.suite, t.case) == (suite, name)), None)
        bound = limit_of(target, next(p for p in PEAKS if device in p.names)) if target else None
        found.append(label(target.goals["target"], bound, target.launches) if target and bound else "-")
    assert " ".join(found) == LABELS[row]


def test_every_row_of_the_specification_is_there() -> None:
    rows = {(t.suite, t.case) for t in packaged().targets}
    assert {suite: sum(s == suite for s, _ in rows) for suite, _ in rows} == {
        "attention": 2,
        "moe": 3,
        "gemm": 1,
        "inference": 9,
        "memory": 3,
    }


@pytest.mark.parametrize("target", packaged().of_column("H100")[:2], ids=lambda t: t.case)
def test_the_work_of_a_target_is_that_of_its_case(target: Any) -> None:
    case = CASES[f"{target.case}-full-fp16"]
    assert (target.flops, target.bytes) == (case.work.flops, case.work.bytes)


@pytest.mark.parametrize("case", ["ref-64-causal-fp16", "ref-64-full-bf16", "claim-full-fp16"])
def test_the_specification_is_about_fp16_and_the_full_mask(case: str) -> None:
    other = judged(case, GPUS["H100"])
    assert (other.target, other.target_label) == (None, None)


def test_a_target_is_found_under_an_alias() -> None:
    """The reference shape may go by another name in a run."""
    facts = judged("ref-64-full-fp16", GPUS["A10"]).facts
    assert not facts.name.startswith("ref-64")
    assert target_for(packaged().targets, "attention", facts) is not None
    assert target_for(packaged().targets, "moe", facts) is None
    target = packaged().of_column("A10")[0]
    assert not is_about(target, "attention", replace(facts, aliases=("ref-640-full-fp16",)))


@pytest.mark.parametrize("device", ["NVIDIA A10G", "NVIDIA B200", "NVIDIA A1000", "Test CPU (1 thread)", ""])
def test_another_device_has_no_target(device: str) -> None:
    assert packaged().column(device) is None


@pytest.mark.parametrize(
    ("device", "column"),
    [
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("NVIDIA H200", "H100"),
    ],
)
def test_every_member_of_a_family_has_its_column(device: str, column: str) -> None:
    assert packaged().column(device) == column


class TestLabel:
    def test_below_the_limit_is_impossible(self) -> None:
        assert label(0.9e-3, Limit(1e-3, "compute")) == "impossible"
        assert label(1e-3, Limit(1e-3, "compute")) == "possible"

    def test_a_small_share_of_the_rate_is_trivial(self) -> None:
        assert label(1e-3 / 0.14, Limit(1e-3, "compute")) == "trivial"
        assert label(1e-3 / 0.16, Limit(1e-3, "compute")) == "possible"

    def test_launch_bound_work_is_never_trivial(self) -> None:
        assert label(1.0, Limit(49e-6, "compute")) == "possible"
        assert label(1.0, Limit(50e-6, "compute")) == "trivial"


@pytest.fixture(scope="module")
def ref_64() -> CaseJudgement:
    """On an A10: 26 ms as target, 22 ms excellent, 18.5 ms for the reference."""
    return judged("ref-64-full-fp16", GPUS["A10"])


class TestReached:
    def between(self, case: CaseJudgement, low: float, high: float) -> tuple[list[str], ...]:
        """The goals that a contender with this interval reached, missed, and neither."""
        ours = case.result("ours")
        assert ours.latency is not None
        found = goals(replace(case, results=(replace(ours, latency=replace(ours.latency, low=low, high=high)),)))
        return tuple(
            [goal.name for goal in found if getattr(goal, part)] for part in ("reached", "missed", "undecided")
        )

    def test_by_the_whole_interval(self, ref_64: CaseJudgement) -> None:
        assert self.between(ref_64, 20e-3, 21e-3) == (["target", "excellent"], ["reference"], [])
        assert self.between(ref_64, 17e-3, 23e-3) == (["target"], [], ["excellent", "reference"])
        assert self.between(ref_64, 26.1e-3, 30e-3) == ([], ["target", "excellent", "reference"], [])

    def test_a_goal_is_to_be_under_it(self, ref_64: CaseJudgement) -> None:
        assert ref_64.target is not None
        assert ref_64.target.target_s is not None
        assert self.between(ref_64, 20e-3, ref_64.target.target_s)[2] == ["target", "excellent"]
        assert self.between(ref_64, ref_64.target.target_s, 1.0)[1] == ["target", "excellent", "reference"]

    def test_without_an_interval_it_is_not_decided(self, ref_64: CaseJudgement) -> None:
        """One process has none."""
        assert self.between(ref_64, math.nan, math.nan) == ([], [], ["target", "excellent", "reference"])

    @pytest.mark.parametrize(("status", "part"), [("INCORRECT", "missed"), ("SKIPPED", "undecided")])
    def test_without_a_time_it_is_never_reached(self, ref_64: CaseJudgement, status: str, part: str) -> None:
        failed = replace(ref_64.result("ours"), status=status, latency=None)
        for goal in goals(replace(ref_64, results=(failed,))):
            assert getattr(goal, part) == ("ours",)
            assert goal.reached == ()

    def test_every_goal_has_its_own_label(self, ref_64: CaseJudgement) -> None:
        """3.5 ms are 13% of the target's 26 ms, and 16% of the 22 ms that are excellent."""
        near = replace(ref_64, limit=Limit(3.5e-3, "compute"))
        assert [goal.label for goal in goals(near)] == ["trivial", "possible", "possible"]
        assert [goal.label for goal in goals(replace(ref_64, limit=None))] == [None] * 3

    def test_a_case_without_a_target_has_no_goals(self, ref_64: CaseJudgement) -> None:
        assert goals(replace(ref_64, target=None)) == ()
