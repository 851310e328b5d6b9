"""The gate: what is wrong is refused and named, what is right passes, inputs stay as they are (D6; statistics.md 1)."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.case import TORCH_DTYPES, Case
from groundspeed.measure import exam, gate, unchanged
from groundspeed.suites.attention import shape_cases
from groundspeed.suites.attention.pytorch import naive
from groundspeed.suites.functions.form import Form
from groundspeed.suites.functions.form import Tensor as Shape
from groundspeed.suites.functions.suite import Functions

CASE = shape_cases("H=2,S=16,D=16,causal=0", ("fp32",))[0]
LONG = shape_cases("H=2,S=600,D=16,causal=0", ("fp32",))[0]


def errors_of(case: Case, inputs: Any, output: Any, limit: int) -> gate.Errors:
    return gate.check(case, inputs, output, gate.ask(case, inputs, limit))


def right(case: Case, inputs: Any) -> Tensor:
    return scaled_dot_product_attention(*inputs, is_causal=case.arguments["causal"], scale=case.arguments["scale"])


def checked(change: Callable[[Tensor], Any], case: Case = CASE, limit: int = gate.ROWS_TIMED) -> str:
    inputs = case.inputs(0, "cpu")
    with pytest.raises(gate.Incorrect) as caught:
        errors_of(case, inputs, change(right(case, inputs)), limit)
    return str(caught.value)


@pytest.mark.parametrize("limit", [gate.ROWS_TIMED, 10_000])
def test_a_right_result_passes_with_its_errors(limit: int) -> None:
    inputs = CASE.inputs(0, "cpu")
    errors = errors_of(CASE, inputs, right(CASE, inputs), limit)
    assert set(errors) == set(CASE.tolerance)
    assert all(0 < errors[name] <= bound / 2 for name, bound in CASE.tolerance.items())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda out: out.tolist(), "returned list, not a tensor"),
        (lambda out: None, "returned NoneType, not a tensor"),
        (lambda out: (out, out), "returned tuple, not a tensor"),
        (lambda out: out.transpose(1, 2), "returned shape [1, 16, 2, 16], not [1, 2, 16, 16]"),
        (lambda out: out[0], "returned shape [2, 16, 16], not [1, 2, 16, 16]"),
        (lambda out: out.double(), "returned torch.float64 on cpu, not torch.float32 on cpu"),
        (lambda out: out.half(), "returned torch.float16 on cpu, not torch.float32 on cpu"),
        (lambda out: out.to("meta"), "returned torch.float32 on meta, not torch.float32 on cpu"),
        (lambda out: out * math.nan, "returned NaN or infinity"),
        (
            lambda out: -out.abs() / 0,
            "returned NaN or infinity, first at out[0, 0, 0, 0] of [1, 2, 16, 16], which is -inf",
        ),
        (torch.zeros_like, "max_abs error"),
        (lambda out: out * 1.001, "max_abs error"),
        (lambda out: out + 1.1e-5, "over the tolerance of 1e-05"),
        (lambda out: out.flip(2), "max_abs error"),
    ],
)
def test_d6_a_wrong_result_is_refused_and_named(change: Callable[[Tensor], Any], reason: str) -> None:
    assert reason in checked(change)


@pytest.mark.parametrize(
    ("error", "bound", "said"),
    [
        (0.25, 0.013, "0.25 is over the tolerance of 0.013"),
        (0.0134, 0.013, "0.0134 is over the tolerance of 0.013"),
        (0.013004, 0.0129996, "0.013004 is over the tolerance of 0.013"),
        (math.nextafter(0.5, 1), 0.5, "0.5000000000000001 is over the tolerance of 0.5"),
        (math.nan, 1e-5, "nan is over the tolerance of 1e-05"),
    ],
)
def test_an_error_just_over_the_tolerance_can_be_told_from_it(error: float, bound: float, said: str) -> None:
    assert gate.over_tolerance("max_abs", error, bound) == f"max_abs error {said}"


def test_a_result_just_over_the_tolerance_is_refused_in_numbers_that_differ() -> None:
    inputs = CASE.inputs(0, "cpu")
    errors = errors_of(CASE, inputs, right(CASE, inputs), 10_000)
    strict = replace(CASE, tolerance={name: error * 0.99999 for name, error in errors.items()})
    found = re.search(r"error (\S+) is over the tolerance of (\S+);", checked(lambda out: out, strict, 10_000))
    assert found is not None
    assert float(found[1]) > float(found[2])


def last_row(out: Tensor, value: float) -> Tensor:
    out[0, -1, -1] = value
    return out


@pytest.mark.parametrize("value", [0.0, math.nan])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("causal", [0, 1])
def test_d6_a_skipped_tail_is_refused_by_every_check(value: float, dtype: str, causal: int) -> None:
    """Whatever rows are drawn, the first and the last are among them; that the last rows of a long causal case are
    small beside the first ones does not hide it."""
    (case,) = shape_cases(f"H=1,S=2048,D=64,causal={causal}", (dtype,))
    for _ in range(5):
        checked(lambda out: last_row(out, value), case)
    checked(lambda out: last_row(out, value), case, gate.rows_before_timing(case))


def test_d6_one_wrong_row_is_found_before_anything_is_timed() -> None:
    def change(out: Tensor) -> Tensor:
        out[0, 1, 300] *= 1.01
        return out

    said = checked(change, LONG, gate.rows_before_timing(LONG))
    assert "over the tolerance" in said
    assert "out[0, 1, 300, " in said


def test_nan_is_found_in_rows_that_are_not_compared() -> None:
    def change(out: Tensor) -> Tensor:
        out[0, 1, 300, 3] = math.nan
        return out

    said = checked(change, LONG)
    assert "returned NaN or infinity, first at out[0, 1, 300, 3] of [1, 2, 600, 16]" in said
    assert "a result kept from an earlier call" in said


def test_a_wrong_value_is_told_with_its_place_and_with_the_right_one() -> None:
    (case,) = shape_cases("B=2,H=3,S=600,D=16,causal=0", ("fp32",))
    inputs = case.inputs(0, "cpu")
    good = right(case, inputs)

    def change(out: Tensor) -> Tensor:
        out[1, 2, 599, 7] = -4.0  # of the last row, which is always looked at
        return out

    for limit in (gate.ROWS_TIMED, 10_000):
        said = checked(change, case, limit)
        value = float(said.rpartition("the oracle has ")[2])
        assert said.rpartition("; ")[2].startswith("out[1, 2, 599, 7] of [2, 3, 600, 16] is -4, the oracle has ")
        assert value == pytest.approx(float(good[1, 2, 599, 7]), abs=1e-5)


def test_rows_are_drawn_anew_and_hold_both_ends() -> None:
    draws = [gate.choose_rows(LONG, 8) for _ in range(20)]
    assert len({tuple(rows.tolist()) for rows in draws if rows is not None}) > 15
    for rows in draws:
        assert rows is not None
        assert rows[0] == 0
        assert rows[-1] == 2 * 600 - 1
        assert 3 <= len(rows) <= 10
        assert rows.tolist() == sorted(set(rows.tolist()))
    seen = {
        row for rows in (gate.choose_rows(LONG, 200) for _ in range(60)) if rows is not None for row in rows.tolist()
    }
    assert len(seen) > 0.99 * 1200  # any row may come up


def test_short_sequences_are_looked_at_as_often_as_long_ones() -> None:
    """Of 17 tokens among 4,000 hardly a row would come up."""
    (case,) = shape_cases("H=2,D=64,lengths=2000+17+1983", ("fp16",))[:1]
    short = range(2 * 2000, 2 * 2017)
    timed = [gate.choose_rows(case, 8) for _ in range(60)]
    assert sum(any(row in short for row in rows.tolist()) for rows in timed if rows is not None) > 40
    before = gate.choose_rows(case, 100)
    assert before is not None
    assert {0, 3999, 4000, 4033, 4034, 7999} <= set(before.tolist())


def test_all_rows_are_compared_where_that_is_cheap() -> None:
    assert gate.choose_rows(CASE, gate.rows_before_timing(CASE)) is None
    assert gate.choose_rows(LONG, 1200) is None
    assert gate.choose_rows(LONG, 1199) is not None
    huge = shape_cases("B=1,H=1,S=1048576,D=256", ("fp16",))[0]
    assert gate.rows_before_timing(huge) == gate.ROWS_BEFORE


def test_b8_errors_by_hand() -> None:
    """The second row is a hundred times smaller, and counts as much."""
    expected = torch.tensor([[3.0, -4.0], [0.001, 0.04]], dtype=torch.float64)
    actual = expected + torch.tensor([[0.3, -0.1], [0.02, -0.002]], dtype=torch.float64)
    errors = gate.compare(actual.repeat(1, 8), expected.repeat(1, 8))
    square_sums = 0.3**2 / 12.5 + 0.1**2 / 12.5 + (0.02**2 + 0.002**2) / ((0.001**2 + 0.04**2) / 2)
    assert errors == pytest.approx(
        {
            "max_abs": 0.3,
            "mean_abs": 0.422 / 4,
            "max_rel": 0.002 / 0.04,  # 0.3 and 0.02 are off where the reference is small in its row
            "rms_rel": math.sqrt(square_sums / 4),
        }
    )


def test_b8_a_row_of_one_number_is_not_measured_by_itself() -> None:
    """One that is near zero by chance would have any error."""
    expected = torch.tensor([[1.0], [-1.0], [1e-9], [1.0]], dtype=torch.float64)
    errors = gate.compare(expected + 1e-8, expected)
    assert errors["rms_rel"] == pytest.approx(1e-8 / math.sqrt(3 / 4))
    assert errors["max_rel"] == pytest.approx(1e-8)


def test_b8_a_reference_of_zeros_has_an_absolute_error_only() -> None:
    zero = torch.zeros(2, 2, dtype=torch.float64)
    assert set(gate.compare(zero, zero).values()) == {0.0}
    errors = gate.compare(zero + 0.5, zero)
    assert errors["max_abs"] == errors["rms_rel"] == 0.5


@pytest.mark.parametrize(
    ("shape", "dtype", "factor"), [((131072, 16), "bf16", 0.0), ((4096, 8), "fp32", 1.001)], ids=["zero", "few columns"]
)
def test_d6_a_few_wrong_rows_are_found_among_very_many(shape: tuple[int, int], dtype: str, factor: float) -> None:
    """Averaged over rows, their error is within the tolerance."""
    x = torch.ones(*shape, dtype=getattr(torch, TORCH_DTYPES[dtype]))
    (case,) = Functions(Form({"x": Shape(shape, dtype)}, Shape(shape, dtype))).all_cases()
    answer = gate.Answer(None, x.double())
    gate.check(case, [x], x, answer)
    wrong = x.clone()
    wrong[700:701] *= factor
    assert gate.compare(wrong.double(), x.double())["rms_rel"] < case.tolerance["rms_rel"]
    with pytest.raises(gate.Incorrect, match=r"the error of one row is \S+ of its size.*out\[700, 0\]"):
        gate.check(case, [x], wrong, answer)


def test_d6_a_row_of_zeros_has_no_size_of_its_own() -> None:
    (case,) = Functions(Form({"x": Shape((4, 16), "fp32")}, Shape((4, 16), "fp32"))).all_cases()
    zero = torch.zeros(4, 16)
    gate.check(case, [zero], zero + 1e-9, gate.Answer(None, zero.double()))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_d6_a_changed_input_is_named(number: int) -> None:
    inputs = CASE.inputs(0, "cpu")
    pristine = [tensor.clone() for tensor in inputs]
    unchanged.check_inputs(CASE.input_names, inputs, pristine)
    inputs[number][0, 1, 7, 3] += 1e-3
    for look in (unchanged.check_inputs, unchanged.glance):
        with pytest.raises(gate.Incorrect, match=f"changed its input {'qkv'[number]}"):
            look(CASE.input_names, inputs, pristine)


@pytest.mark.parametrize(("size", "offset"), [(64, 0), (64, 3), (61, 0)])
def test_d6_bytes_are_compared_however_they_lie(size: int, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "AT_ONCE", 0)
    before = torch.arange(size, dtype=torch.uint8)
    now = torch.cat([torch.zeros(offset, dtype=torch.uint8), before])[offset:]
    unchanged.check_inputs(["q"], [now], [before])
    now[-1] ^= 1
    with pytest.raises(gate.Incorrect, match="changed its input q"):
        unchanged.check_inputs(["q"], [now], [before])


@pytest.mark.parametrize("change", [lambda q: q.resize_(2, 2), lambda q: q.transpose_(2, 3), lambda q: q.squeeze_(0)])
def test_d6_an_input_of_another_shape_is_a_changed_one(change: Callable[[Tensor], Any]) -> None:
    inputs = CASE.inputs(0, "cpu")
    pristine = [tensor.clone() for tensor in inputs]
    change(inputs[0])
    for look in (unchanged.check_inputs, unchanged.glance):
        with pytest.raises(gate.Incorrect, match="changed its input q"):
            look(CASE.input_names, inputs, pristine)


def test_a_glance_sees_any_place_of_a_large_input_in_the_end() -> None:
    before = torch.zeros(4 * unchanged.GLANCE, dtype=torch.uint8)
    now = before.clone()
    unchanged.glance(["x"], [now], [before])
    now[-unchanged.GLANCE // 2 :] = 1

    def seen() -> bool:
        try:
            unchanged.glance(["x"], [now], [before])
        except gate.Incorrect:
            return True
        return False

    found = sum(seen() for _ in range(400))
    assert 0.05 * 400 < found < 0.4 * 400  # half a stretch of the last of four: about one in six


@pytest.mark.parametrize("shape", ["H=1,S=16,D=16", "H=1,S=64,D=64", "H=4,S=128,D=64", "H=4,S=1024,D=64"])
@pytest.mark.parametrize("temporaries", [0, 3])
def test_d6_memory_that_was_never_written_is_refused(shape: str, temporaries: int) -> None:
    """Although right answers have just been there: they were overwritten before they were freed."""
    case = shape_cases(f"{shape},causal=0", ("fp32",))[0]
    inputs = case.inputs(0, "cpu")
    answers = [right(case, inputs) for _ in range(8)]
    for answer in answers:
        gate.spoil(answer, ())
    del answers, answer
    gate.poison(case, inputs[0])
    others = [torch.empty(case.output_shape) for _ in range(temporaries)]
    with pytest.raises(gate.Incorrect):
        errors_of(case, inputs, torch.empty(case.output_shape), gate.ROWS_BEFORE)
    assert len(others) == temporaries


def test_d6_an_output_that_is_handed_out_again_is_spoilt() -> None:
    inputs = [CASE.inputs(0, "cpu"), CASE.inputs(1, "cpu")]
    kept = right(CASE, inputs[0])
    errors_of(CASE, inputs[0], kept, gate.ROWS_TIMED)
    gate.spoil(kept, ())
    with pytest.raises(gate.Incorrect, match="NaN"):
        errors_of(CASE, inputs[0], kept, gate.ROWS_TIMED)


def test_spoiling_leaves_the_inputs_alone_and_minds_no_odd_output() -> None:
    inputs = [CASE.inputs(0, "cpu"), CASE.inputs(1, "cpu")]
    pristine = [[tensor.clone() for tensor in one] for one in inputs]
    with torch.inference_mode():
        inference = torch.zeros(3)
    outputs: list[Any] = [None, [1.0], torch.arange(3), torch.zeros(1).expand(3), inputs[0][0], inputs[1][2][0, 0, 1:]]
    storages = [tensor.untyped_storage().data_ptr() for one in inputs for tensor in one]
    for output in [*outputs, inference]:
        gate.spoil(output, storages)
    assert bool(torch.isnan(inference).all())
    for one, before in zip(inputs, pristine, strict=True):
        unchanged.check_inputs(CASE.input_names, one, before)


def summed(step: int, accumulator: torch.dtype) -> Callable[..., Tensor]:
    """Attention as a kernel does it, its sum over the keys kept in a dtype between steps."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        scores = q.float() @ k.float().mT * scale
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        total, weights = weights.sum(-1, keepdim=True), weights.to(q.dtype).float()
        out = torch.zeros(q.shape, dtype=accumulator)
        for begin in range(0, k.shape[-2], step):
            keys = slice(begin, begin + step)
            out = (out.float() + weights[..., keys] @ v[..., keys, :].float()).to(accumulator)
        return (out.float() / total).to(q.dtype)

    return attention


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("length", [512, 777, 2048])
class TestLongSums:
    """D6: accumulation in a lower precision than asked, by its error beside one that accumulates in FP32."""

    def check(self, function: Callable[..., Tensor], dtype: str, causal: int, length: int) -> None:
        (case,) = shape_cases(f"H=2,S={length},D=64,causal={causal}", (dtype,))
        sums = exam.ask_sums(case, case.inputs(1, "cpu"))
        assert sums is not None
        exam.check_sums(function(*sums[0], **case.arguments), sums[1])

    @pytest.mark.parametrize("step", [16, 128])
    def test_in_fp32_they_pass(self, dtype: str, causal: int, length: int, step: int) -> None:
        self.check(summed(step, torch.float32), dtype, causal, length)

    def test_so_does_who_rounds_once_more(self, dtype: str, causal: int, length: int) -> None:
        """Two halves of the keys, each added up in FP32 and kept in 16 bits."""
        self.check(
            summed(-(-length // 2), {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]), dtype, causal, length
        )

    @pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
    def test_so_do_those_of_pytorch(self, dtype: str, causal: int, length: int, backend: SDPBackend) -> None:
        def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

        self.check(attention, dtype, causal, length)
        self.check(naive, dtype, causal, length)

    @pytest.mark.parametrize("step", [16, 64])
    def test_in_the_dtype_itself_they_are_refused(self, dtype: str, causal: int, length: int, step: int) -> None:
        with pytest.raises(
            gate.Incorrect,
            match=r"times that of rounding the exact sums once: it repeatedly rounds partial sums to b?float16",
        ):
            self.check(summed(step, {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]), dtype, causal, length)


def by_scores(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Attention with changed scores and an exponential that is not kept in range."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        weights = change(q.float() @ k.float().mT * scale).exp()
        if causal:
            weights = weights.tril()
        return ((weights @ v.float()) / weights.sum(-1, keepdim=True)).to(q.dtype)

    return attention


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("told", ["H=2,S=64,D=64,causal=0", "H=2,S=2048,D=128,causal=1", "H=1,S=1,D=64,causal=0"])
def test_large_scores(dtype: str, told: str) -> None:
    """Whoever keeps scores in range is right, in PyTorch's plainest code too, which rounds them to the dtype."""
    (case,) = shape_cases(told, (dtype,))
    asked = exam.ask_enlarged(case, case.inputs(secrets.randbelow(1000), "cpu"))
    assert asked is not None
    for function in (naive, lambda q, k, v, **o: right(case, (q, k, v))):
        exam.check_enlarged(function(*asked[0], **case.arguments), asked[1])


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("told", ["H=2,S=64,D=64,causal=0", "H=2,S=2048,D=128,causal=1"])
def test_scores_that_overflow_or_are_clamped(dtype: str, told: str) -> None:
    (case,) = shape_cases(told, (dtype,))
    asked = exam.ask_enlarged(case, case.inputs(1, "cpu"))
    assert asked is not None
    with pytest.raises(gate.Incorrect, match=r"on large inputs.* it returned NaN or infinity"):
        exam.check_enlarged(by_scores(torch.clone)(*asked[0], **case.arguments), asked[1])
    clamped = by_scores(lambda scores: scores.clamp(-6, 6))
    with pytest.raises(gate.Incorrect, match=r"on large inputs.* its error is"):
        exam.check_enlarged(clamped(*asked[0], **case.arguments), asked[1])


@pytest.mark.parametrize("case", [*shape_cases("S=1024", ("fp32",)), *shape_cases("S=511", ("bf16",))])
def test_fp32_and_short_sums_are_not_told_apart(case: Case) -> None:
    assert exam.ask_sums(case, case.inputs(1, "cpu")) is None
