"""Targets are goals, never measurements, and always labelled against the device's limit (B9)."""

from __future__ import annotations

import pytest
from records import on_gpu, run

from groundspeed.judge.judgement import CaseJudgement, judge
from groundspeed.judge.limits import Limit
from groundspeed.judge.targets import TARGETS, label, targets_for
from groundspeed.suites.registry import suite_module

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
    milliseconds = tuple(1e3 * s for s in (case.target.reference_s, case.target.target_s, case.target.excellent_s))
    assert milliseconds == pytest.approx(figures[family])
    assert case.target_label == expected


def test_there_is_no_other_target() -> None:
    assert {(t.suite, t.case, t.gpu) for t in TARGETS} == {("attention", s, g) for s in TABLE for g in GPUS}


@pytest.mark.parametrize("case", ["ref-64-causal-fp16", "ref-64-full-bf16", "claim-full-fp16"])
def test_the_specification_is_about_fp16_and_the_full_mask(case: str) -> None:
    other = judged(case, GPUS["H100"])
    assert (other.target, other.target_label) == (None, None)


def test_a_target_is_found_under_an_alias() -> None:
    """The reference shape may go by another name in a run."""
    assert targets_for("attention", ("mine", "ref-64"), GPUS["A10"]) is not None
    assert targets_for("moe", ("ref-64",), GPUS["A10"]) is None


@pytest.mark.parametrize("device", ["NVIDIA A10G", "NVIDIA H200", "NVIDIA A1000", "Test CPU (1 thread)", ""])
def test_another_device_has_no_target(device: str) -> None:
    assert targets_for("attention", ("ref-64",), device) is None


@pytest.mark.parametrize("device", ["NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA H100 PCIe"])
def test_every_member_of_a_family_has_its_target(device: str) -> None:
    found = targets_for("attention", ("ref-128",), device)
    assert found is not None
    assert found.gpu in device


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
