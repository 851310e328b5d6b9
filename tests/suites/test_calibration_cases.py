"""The suite `calibration`: enough work of either length, right by its oracle, and the same by both names."""

from __future__ import annotations

import pytest
import torch

from groundspeed.case import Case
from groundspeed.errors import BadInput
from groundspeed.judge.floors import LEAST
from groundspeed.lab.cases import SHORT_WORK_BYTES, SHORT_WORK_FLOPS
from groundspeed.suites import registry
from groundspeed.suites.calibration import cases

SMALL = [case for case in cases.preset_cases("standard", "cpu") if case.work.bytes <= 1 << 20]


def test_d2_there_is_enough_of_short_and_of_long_work_for_a_floor() -> None:
    on_gpu = cases.preset_cases("standard", "cuda")
    short = [c for c in on_gpu if c.work.flops <= SHORT_WORK_FLOPS and c.work.bytes <= SHORT_WORK_BYTES]
    assert len(short) >= LEAST
    assert len(on_gpu) - len(short) >= LEAST
    on_cpu = cases.preset_cases("standard", "cpu")
    assert len(on_cpu) >= 2 * LEAST


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_both_contenders_do_it_right(case: Case) -> None:
    suite = registry.load("calibration")
    inputs = case.inputs(1, "cpu")
    expected = case.oracle(*inputs)
    rows = torch.tensor([0, expected.shape[0] - 1])
    assert torch.equal(case.oracle(*inputs, rows=rows), expected[rows]) or torch.allclose(
        case.oracle(*inputs, rows=rows), expected[rows], rtol=1e-12
    )
    for contender in suite.contenders.values():
        out = contender.build(case)(*inputs, **case.arguments)
        assert tuple(out.shape) == case.output_shape
        assert torch.allclose(out.double().reshape(expected.shape), expected, atol=1e-3)


def test_a_case_is_known_again_by_its_parameters() -> None:
    for case in cases.all_cases():
        again = cases.case_of_params(dict(case.params))
        assert (again.name, again.params, again.work) == (case.name, case.params, case.work)


@pytest.mark.parametrize(
    "params",
    [{}, {"op": "copy"}, {"op": "copy", "KiB": 0, "dtype": "fp32"}, {"op": "sort", "n": 4, "dtype": "fp32"},
     {"op": "matmul", "n": 4, "dtype": "fp8"}, {"op": "matmul", "n": 4, "dtype": "fp32", "clock": "default"}],
)  # fmt: skip
def test_other_parameters_are_refused(params: dict[str, str | int]) -> None:
    with pytest.raises(BadInput, match="not the parameters of a calibration case"):
        cases.case_of_params(dict(params))


def test_its_shapes_are_its_own() -> None:
    with pytest.raises(BadInput, match="--shape"):
        cases.shape_cases("S=7", ("fp32",))
