"""The suite `inference` (B4): one model under many names, which all compute the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from groundspeed.case import with_clock
from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.record import CaseFacts
from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.grading.targets import target_for
from groundspeed.lab.declare import case_facts
from groundspeed.measure import gate
from groundspeed.measure.survey import able
from groundspeed.suites import registry
from groundspeed.suites.inference import cases, ours, pytorch
from groundspeed.suites.inference.shapes import DECODE, MEMORY, PREFILL, TINY_MEMORY, Shape

CONTENDERS = registry.load("inference").contenders
READING, NEXT, CHUNK = Shape(2, 64, 4, 3, 33), Shape(2, 64, 4, 3, 1, 40), Shape(2, 64, 4, 2, 5, 40)
pytestmark = pytest.mark.filterwarnings("ignore:groundspeed:UserWarning")


def check(case: Any, function: Callable[..., Any]) -> None:
    """Twice: a first call may prepare things."""
    inputs = case.inputs(1, "cpu")
    answer = gate.ask(case, inputs, 1000)
    for _ in range(2):
        gate.check(case, inputs, function(*inputs, **case.arguments), answer)


@pytest.mark.parametrize("shape", [READING, NEXT, CHUNK], ids=["reading", "next", "chunk"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["naive", "sdpa", "hugging-face-eager", "hugging-face-sdpa"])
def test_b4_all_compute_the_same(name: str, dtype: str, shape: Shape) -> None:
    case = cases.forward("x", shape, dtype)
    assert CONTENDERS[name].supports(case, "cpu") is None
    check(case, CONTENDERS[name].build(case))


@pytest.mark.parametrize("shape", [READING, NEXT, CHUNK], ids=["reading", "next", "chunk"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_b4_so_does_ours_by_pytorchs_path(dtype: str, shape: Shape) -> None:
    case = cases.forward("x", shape, dtype)
    check(case, ours.model(case))
    assert CONTENDERS["ours"].absent("cpu") == "needs an NVIDIA GPU"


def without_a_mask(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_model_that_sees_what_comes_is_refused(dtype: str) -> None:
    case = cases.forward("x", READING, dtype)
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        check(case, pytorch.model(without_a_mask))


@pytest.mark.parametrize("left_out", ["up_bias", "last", "out"])
def test_a_model_without_one_of_its_parts_is_refused(left_out: str) -> None:
    case = cases.forward("x", READING, "bf16")
    right = pytorch.model(pytorch.fused)

    def wrong(*inputs: Any, **arguments: Any) -> Any:
        told = list(inputs)
        place = case.input_names.index(left_out)
        told[place] = torch.zeros_like(told[place])
        return right(*told, **arguments)

    with pytest.raises(gate.Incorrect):
        check(case, wrong)


def in_8_bits(matrix: torch.Tensor) -> torch.Tensor:
    """Each row by its own scale."""
    step = matrix.float().abs().amax(-1, keepdim=True) / 127
    return (matrix.float() / step).round().mul(step).to(matrix.dtype)


def in_fp8(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.float().to(torch.float8_e4m3fn).to(matrix.dtype)


@pytest.mark.parametrize(
    ("shape", "what", "coarse"),
    [
        (Shape(12, 256, 4, 1, 64), ("qkv", "out", "up", "down"), in_8_bits),
        (Shape(4, 256, 4, 3, 1, 256), ("qkv", "out", "up", "down"), in_8_bits),
        (Shape(4, 256, 4, 3, 1, 256), ("keys", "values"), in_fp8),
    ],
    ids=["weights in 8 bits", "the same, next token", "keys and values in FP8"],
)
def test_d6_what_was_rounded_beforehand_is_refused(
    shape: Shape, what: tuple[str, ...], coarse: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """It would be read in half of the time, and is prepared in a call that nobody times."""
    case = cases.forward("x", shape, "bf16")
    right = pytorch.model(pytorch.fused)
    check(case, right)

    def faster(*inputs: Any, **arguments: Any) -> Any:
        told = [coarse(x) if n in what else x for n, x in zip(case.input_names, inputs, strict=True)]
        return right(*told, **arguments)

    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        check(case, faster)


def test_weights_that_were_put_elsewhere_are_found_there() -> None:
    """As the gate does it where somebody changed them."""
    case = cases.forward("x", NEXT, "fp32")
    for build in (ours.model, CONTENDERS["sdpa"].build, CONTENDERS["hugging-face-sdpa"].build):
        inputs, call = case.inputs(1, "cpu"), build(case)
        expected = call(*inputs, **case.arguments)
        for tensor in inputs[1:]:
            kept = tensor.clone()
            tensor.zero_()
            tensor.data = kept
        assert torch.allclose(call(*inputs, **case.arguments), expected, atol=1e-5)


def copied(case: Any, build: Callable[..., Any]) -> int:
    """Elements that `torch.cat` makes in a second call: the first one may prepare things."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            self.count += out.numel() if func is torch.ops.aten.cat.default else 0
            return out

    inputs, call = case.inputs(1, "cpu"), build(case)
    call(*inputs, **case.arguments)
    with Counting() as seen:
        call(*inputs, **case.arguments)
    return seen.count


def test_hugging_face_writes_into_its_cache_in_every_call_and_finds_the_same_in_the_next() -> None:
    """A cache that grew would be longer each time, and one that was filled anew would be copied twice."""
    case = cases.forward("x", NEXT, "fp32")
    inputs, call = case.inputs(1, "cpu"), CONTENDERS["hugging-face-sdpa"].build(case)
    first, second = (call(*inputs, **case.arguments).clone() for _ in range(2))
    assert torch.equal(first, second)
    L, d, _, B, S, N = NEXT
    assert copied(case, CONTENDERS["hugging-face-sdpa"].build) == 2 * L * B * (N + S) * d


@pytest.mark.parametrize("shape", [READING, CHUNK], ids=["reading", "chunk"])
def test_the_oracle_of_some_rows_is_that_of_all(shape: Shape) -> None:
    case = cases.forward("x", shape, "fp32")
    inputs = case.inputs(2, "cpu")
    rows = torch.tensor([0, 3, shape.B * shape.S - 1])
    assert torch.allclose(case.oracle(*inputs, rows=rows), case.oracle(*inputs)[rows], atol=1e-12)


def test_other_tokens_are_other_inputs_and_weights_stay() -> None:
    case = cases.forward("x", READING, "fp32")
    first, other = case.inputs(1, "cpu"), case.inputs(2, "cpu")
    assert not torch.equal(first[0], other[0])
    assert all(torch.equal(a, b) for a, b in zip(first[1:], other[1:], strict=True))
    case.refresh(first, other)
    assert sorted(first[0].flatten().tolist()) == sorted(other[0].flatten().tolist())


def test_every_case_is_known_again_by_its_parameters() -> None:
    for case in cases.all_cases():
        again = cases.case_of_params(dict(case.params))
        assert (again.params, again.work, again.output_shape) == (case.params, case.work, case.output_shape)


def test_b4_the_models_of_the_specification() -> None:
    names = {case.name for case in cases.preset_cases("standard", "cuda")}
    assert {f"{name}-bf16" for name in (*PREFILL, *DECODE)} <= names
    assert {"small-1x128-bf16@graph", "small-1x128-bf16@eager", "large-decode-1-bf16@eager"} <= names
    assert len(PREFILL) == len(DECODE) == 9
    work = cases.forward("x", PREFILL["large-8x2048"], "bf16").work
    assert 2.0e14 < work.flops < 2.3e14


def test_b5_cases_of_memory_differ_in_the_length_alone() -> None:
    """And are asked for: among the others they would be judged for their time."""
    for device, some in (("cuda", MEMORY), ("cpu", TINY_MEMORY)):
        assert {shape._replace(S=1) for shape in some.values()} == {next(iter(some.values()))._replace(S=1)}
        for preset in ("quick", "standard"):
            chosen = {case.name.rpartition("-")[0] for case in cases.preset_cases(preset, device)}
            assert not set(some) & chosen


def test_who_is_measured_by_eager_calls_is_measured_in_a_graph_too() -> None:
    assert "small-1x128" in cases.EAGER
    for preset in ("quick", "standard"):
        names = {case.name for case in cases.preset_cases(preset, "cuda")}
        eager = {name.partition("@")[0] for name in names if name.endswith("@eager")}
        assert eager
        assert {f"{name}@graph" for name in eager} <= names


def waits(case: Any, call: Callable[..., Any]) -> set[str]:
    """Operators in a second call by which the host asks the device for a number, or brings it one of its own."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._schema.name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::lift_fresh"):
                found.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    inputs = case.inputs(1, "cpu")
    with torch.no_grad():
        call(*inputs, **case.arguments)
        with Watching():
            call(*inputs, **case.arguments)
    return found


@pytest.mark.parametrize("shape", [READING, NEXT], ids=["reading", "next"])
@pytest.mark.parametrize("name", ["naive", "sdpa", "hugging-face-eager", "hugging-face-sdpa"])
def test_who_waits_for_the_device_is_not_measured_in_a_graph(name: str, shape: Shape) -> None:
    """It would fail there, and take the process of all with it."""
    case, contender = cases.forward("x", shape, "bf16"), CONTENDERS[name]
    refused = contender.supports(with_clock(case, "graph"), "cuda")
    assert (refused is not None) == bool(waits(case, contender.build(case)))
    assert contender.supports(case, "cuda") is None
    assert able(contender, case, "cuda", ["default", "graph", "eager"]) == [
        name for name in ("default", "graph", "eager") if name != "graph" or refused is None
    ]


def test_b9_the_models_of_the_specification_have_their_targets() -> None:
    found = {}
    for case in (case for case in cases.all_cases() if case.params["dtype"] == "fp16"):
        facts = decode(CaseFacts, json.loads(json.dumps(case_facts(case))), "case")
        if target := target_for(packaged().of_column("H100"), "inference", facts):
            found[case.name] = target.case
    assert found == {f"{name}-fp16": name for name in PREFILL}


@pytest.mark.parametrize(
    ("text", "told"),
    [("L=2,d=65,H=4", "65 dimensions are not a multiple of 4 heads"), ("S=0", "whole number"),
     ("Z=1", "unknown key in --shape 'Z'"), ("B=1048576,S=1048576,L=1048576", "more work than any machine")],
)  # fmt: skip
def test_a_shape_that_is_none_is_told_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        cases.shape_cases(text, ("bf16",))


@pytest.mark.parametrize("change", [{"L": 0}, {"S": 2.5}, {"dtype": "fp4"}, {"N": 0}, {"H": 5}, {"clock": "sun"}])
def test_other_parameters_are_refused(change: dict[str, str | int | float]) -> None:
    params = {**cases.forward("x", READING, "fp32").params, **change}
    with pytest.raises(BadInput, match="not the parameters of an inference case"):
        cases.case_of_params(params)
