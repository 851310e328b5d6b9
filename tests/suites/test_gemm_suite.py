"""The suite `gemm` (B3): a product, its oracle, and a result of another dtype where the inputs are FP8."""

from __future__ import annotations

import pytest
import torch

from groundspeed.errors import BadInput
from groundspeed.measure import gate
from groundspeed.suites import registry
from groundspeed.suites.gemm import cases
from groundspeed.suites.gemm.cases import Shape

LIBRARY = registry.load("gemm").contenders["pytorch"]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_b3_pytorchs_own_is_right(dtype: str) -> None:
    case = cases.forward(Shape(48, 80, 512), dtype)
    inputs = case.inputs(1, "cpu")
    gate.check(case, inputs, LIBRARY.build(case)(*inputs), gate.ask(case, inputs, 1000))


def test_of_fp8_the_result_is_bf16() -> None:
    case = cases.forward(Shape(32, 64, 128), "fp8")
    a, b = inputs = case.inputs(1, "cpu")
    assert a.dtype == torch.float8_e4m3fn
    answer = gate.ask(case, inputs, 1000)
    right = a.float() @ b.float().T
    gate.check(case, inputs, right.bfloat16(), answer)
    with pytest.raises(gate.Incorrect, match=r"returned torch.float32 on cpu, not torch.bfloat16"):
        gate.check(case, inputs, right, answer)
    assert case.work.bytes == 32 * 128 + 64 * 128 + 2 * 32 * 64
    gate.poison(case, a)
    assert LIBRARY.supports(case, "cpu") == "FP8 on a GPU only"


def test_every_case_is_known_again_by_its_parameters() -> None:
    for case in cases.all_cases():
        again = cases.case_of_params(dict(case.params))
        assert (again.name, again.params, again.work) == (case.name, case.params, case.work)


def test_b9_the_product_of_the_specification_goes_by_its_sizes() -> None:
    names = {case.name for case in cases.preset_cases("standard", "cuda")}
    assert {"8192x11008x4096-fp16", "8192x11008x4096-fp8"} <= names


@pytest.mark.parametrize(
    ("text", "dtypes", "told"),
    [("M=7,N=9", ("fp8",), "multiples of 16 in FP8"), ("M=-1", ("bf16",), "whole number"),
     ("Z=1", ("bf16",), "unknown key in --shape 'Z'")],
)  # fmt: skip
def test_a_shape_that_is_none_is_told_in_one_sentence(text: str, dtypes: tuple[str, ...], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        cases.shape_cases(text, dtypes)


@pytest.mark.parametrize("change", [{"M": 0}, {"M": 2.5}, {"dtype": "fp4"}, {"clock": "default"}, {"clock": "sun"}])
def test_other_parameters_are_refused(change: dict[str, str | int | float]) -> None:
    with pytest.raises(BadInput, match="not the parameters of a gemm case"):
        cases.case_of_params({**cases.forward(Shape(64, 64, 64), "bf16").params, **change})


def test_a_result_in_the_wrong_order_of_rows_is_seen() -> None:
    case = cases.forward(Shape(64, 64, 64), "fp32")
    inputs = case.inputs(1, "cpu")
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        gate.check(case, inputs, LIBRARY.build(case)(*inputs).flip(0), gate.ask(case, inputs, 1000))
