"""The tolerances of attention: PyTorch's own code stays under half of each, a lower precision is refused (B8, D6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from groundspeed.case import Case
from groundspeed.kernels.attention.reference import TOLERANCE
from groundspeed.measure import gate
from groundspeed.suites import registry

SUITE = registry.load("attention")
HONEST = ("sdpa-math", "sdpa-flash", "naive")
SHAPES = ("S=1,D=64", "S=2,D=16", "H=2,S=37,D=80", "S=513,D=128", "S=777,D=256", "S=2048,D=64", "B=2,H=8,S=33,D=128")


def cases(shape: str, *dtypes: str) -> list[Case]:
    return list(SUITE.module.shape_cases(shape if "H=" in shape else f"H=1,{shape}", dtypes or tuple(TOLERANCE)))


def result(contender: str, case: Case, inputs: tuple[Tensor, ...]) -> Tensor:
    one = SUITE.contenders[contender]
    with one.around(), torch.no_grad():
        out: Tensor = one.build(case)(*inputs, **case.arguments)
    return out


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_b8_pytorchs_own_code_stays_under_half_of_every_tolerance(shape: str, dtype: str) -> None:
    for case in cases(shape, dtype):
        for seed in range(3 if case.params["S"] < 500 else 1):
            inputs = case.inputs(seed, "cpu")
            expected = case.oracle(*inputs)
            for name in HONEST:
                out = result(name, case, inputs)
                errors = gate.compare(out.reshape(expected.shape).double(), expected)
                shares = {key: errors[key] / bound for key, bound in case.tolerance.items()}
                assert max(shares.values()) < 0.5, (case.name, name, seed, shares)


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_b8_a_few_rows_of_a_timed_call_pass_too(dtype: str) -> None:
    """Over few elements the errors vary more: an honest result must not fail by the luck of the draw."""
    for case in [*cases("S=2,D=16", dtype), *cases("S=512,D=16", dtype), *cases("S=513,D=64", dtype)]:
        inputs = case.inputs(5, "cpu")
        expected = case.oracle(*inputs)
        actual = result("naive", case, inputs).reshape(expected.shape).double()
        for _ in range(100):
            rows = gate.choose_rows(case, gate.ROWS_TIMED)
            chosen = slice(None) if rows is None else rows
            errors = gate.compare(actual[chosen], expected[chosen])
            assert all(errors[key] <= bound for key, bound in case.tolerance.items()), (case.name, errors)


def fp8(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float8_e4m3fn).to(tensor.dtype)


def tf32(tensor: Tensor) -> Tensor:
    """Rounded to 10 mantissa bits."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def bf16(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().to(tensor.dtype)


def test_the_roundings_are_what_they_are_called() -> None:
    assert fp8(torch.tensor([1.0, 1.0625, 1.1])).tolist() == [1.0, 1.0, 1.125]
    assert tf32(torch.tensor([1.0, 1 + 2**-10, 1 + 2**-12])).tolist() == [1.0, 1 + 2**-10, 1.0]


@pytest.mark.parametrize(("dtype", "rounded"), [("fp16", fp8), ("bf16", fp8), ("fp32", tf32), ("fp32", bf16)])
@pytest.mark.parametrize("operands", ["qkv", "qk", "v"])
@pytest.mark.parametrize("shape", ["S=64,D=64", "H=2,S=37,D=80", "S=513,D=128"])
def test_d6_operands_in_a_lower_precision_are_refused(
    shape: str, operands: str, dtype: str, rounded: Callable[[Tensor], Tensor]
) -> None:
    """Whichever product is done in it, before timing and on the few rows of a timed call."""
    for case in cases(shape, dtype):
        inputs = case.inputs(1, "cpu")
        coarse = tuple(rounded(t) if name in operands else t for name, t in zip("qkv", inputs, strict=True))
        out = result("sdpa-math", case, coarse)
        for limit in (gate.rows_before_timing(case), gate.ROWS_TIMED):
            with pytest.raises(gate.Incorrect, match="over the tolerance") as caught:
                gate.check(case, inputs, out, gate.ask(case, inputs, limit))
            assert caught.value.errors["rms_rel"] > case.tolerance["rms_rel"]


@pytest.mark.parametrize(("dtype", "rounded"), [("fp16", fp8), ("bf16", fp8), ("fp32", tf32)])
def test_d6_a_lower_precision_is_refused_on_the_smallest_shapes(
    dtype: str, rounded: Callable[[Tensor], Tensor]
) -> None:
    for case in [*cases("S=1,D=64", dtype), *cases("S=2,D=64", dtype)]:
        inputs = case.inputs(1, "cpu")
        out, answer = result("sdpa-math", case, tuple(map(rounded, inputs))), gate.ask(case, inputs, gate.ROWS_BEFORE)
        with pytest.raises(gate.Incorrect, match="over the tolerance"):
            gate.check(case, inputs, out, answer)
