"""The suite `huggingface` (C1): one Llama of Transformers in many ways, which all compute the same."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from groundspeed.case import with_clock
from groundspeed.errors import BadInput
from groundspeed.lab import session
from groundspeed.lab.check import verify
from groundspeed.lab.request import Request
from groundspeed.measure import gate
from groundspeed.measure.inputs import Inputs
from groundspeed.suites import registry
from groundspeed.suites.huggingface import cases, models
from groundspeed.suites.huggingface.shapes import DECODE, MODELS, PREFILL, Shape

CONTENDERS = registry.load("huggingface").contenders
SMALL = 2, 64, 96, 4, 2, 50
READING, NEXT, CHUNK = Shape(*SMALL, 3, 33), Shape(*SMALL, 3, 1, 40), Shape(*SMALL, 2, 5, 40)
SHAPES = pytest.mark.parametrize("shape", [READING, NEXT, CHUNK], ids=["reading", "next", "chunk"])
pytestmark = pytest.mark.filterwarnings("ignore:groundspeed:UserWarning")


def check(case: Any, function: Callable[..., Any]) -> None:
    """Twice: a first call may prepare things, and each must leave its cache as it was."""
    inputs = case.inputs(1, "cpu")
    answer = gate.ask(case, inputs, 1000)
    for _ in range(2):
        with torch.no_grad():
            gate.check(case, inputs, function(*inputs, **case.arguments), answer)


@SHAPES
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_all_compute_the_same(name: str, dtype: str, shape: Shape) -> None:
    case = cases.forward("x", shape, dtype)
    assert CONTENDERS[name].absent("cpu") is None
    assert CONTENDERS[name].supports(case, "cpu") is None
    check(case, CONTENDERS[name].build(case))


@SHAPES
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["groundspeed", "patched"])
def test_so_do_ours_by_pytorchs_path_which_is_never_measured(name: str, dtype: str, shape: Shape) -> None:
    case = cases.forward("x", shape, dtype)
    check(case, CONTENDERS[name].build(case))
    assert CONTENDERS[name].absent("cpu") == "needs an NVIDIA GPU"


def test_a_mask_with_a_number_from_the_host_is_not_measured_in_a_graph() -> None:
    """Transformers makes it for each call of `eager`, and of nobody else."""
    case = with_clock(cases.forward("x", NEXT, "bf16"), "graph")
    refused = [name for name, contender in CONTENDERS.items() if "waits" in str(contender.supports(case, "cuda"))]
    assert refused == ["eager"]


@SHAPES
@pytest.mark.parametrize("name", ["sdpa-compiled", "patched-compiled"])
def test_so_do_those_with_a_cache_of_fixed_size(name: str, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled, not compiled."""
    monkeypatch.setattr(models, "compiled_for_one_shape", lambda function: function)
    case = cases.forward("x", shape, "fp32")
    check(case, CONTENDERS[name].build(case))


@pytest.mark.slow
def test_a_step_is_compiled_whole_in_a_real_worker_and_passes_the_gate(tmp_path: Path) -> None:
    if reason := CONTENDERS["sdpa-compiled"].absent("cpu"):
        pytest.skip(reason)
    request = Request(
        "huggingface",
        "quick",
        shape=("L=1,d=64,I=96,H=4,G=2,V=50,B=2,S=1,N=40",),
        only=("sdpa-compiled",),
        processes=1,
        warmup_s=0.01,
        timeout_s=60.0,
        out=tmp_path,
    )
    made = session.run(request)
    verify(made.path)
    outcomes = {o.contender: (o.status, o.reason) for o in made.record.outcomes}
    assert outcomes == {"sdpa": ("PASSED", None), "sdpa-compiled": ("PASSED", None)}


def test_it_is_the_drop_in_that_is_measured() -> None:
    """Attention by its name alone, and the other blocks where they are patched."""
    patched = {name: models._made(READING, *told) for name, told in {
        "groundspeed": ("groundspeed", False), "patched": ("groundspeed", True), "sdpa": ("sdpa", False)
    }.items()}  # fmt: skip
    kinds = {name: {getattr(module, "patched_kind", None) for module in model.modules()} - {None}
             for name, model in patched.items()}  # fmt: skip
    assert kinds == {"groundspeed": set(), "patched": {"norms", "rotary", "mlps"}, "sdpa": set()}
    assert {name: model.config._attn_implementation for name, model in patched.items()} == {
        "groundspeed": "groundspeed", "patched": "groundspeed", "sdpa": "sdpa",
    }  # fmt: skip


def test_weights_lie_in_memory_once() -> None:
    """A model of 8B that everybody copies would not fit a GPU."""
    inputs = cases.forward("x", READING, "fp32").inputs(1, "cpu")
    known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    model = models._made(READING, "sdpa", False)
    models._give(model, READING, *inputs[1:])
    assert all(parameter.untyped_storage().data_ptr() in known for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(tensor.numel() for tensor in inputs[1:])


def without_a_mask(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.is_causal = False


def with_other_places(model: Any) -> None:
    model.model.rotary_emb.inv_freq *= 1.05


def with_another_last_norm(model: Any) -> None:
    model.model.norm.variance_epsilon = 1.0


@pytest.mark.parametrize("wrong", [without_a_mask, with_other_places, with_another_last_norm])
def test_a_model_that_is_another_one_is_refused(wrong: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    right, case = models._made, cases.forward("x", READING._replace(S=128), "bf16")
    check(case, models.llama("sdpa")(case))

    def made(*told: Any) -> Any:
        model = right(*told)
        wrong(model)
        return model

    monkeypatch.setattr(models, "_made", made)
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        check(case, models.llama("sdpa")(case))


def in_8_bits(matrix: torch.Tensor) -> torch.Tensor:
    """Each row by its own scale."""
    step = matrix.float().abs().amax(-1, keepdim=True) / 127
    return (matrix.float() / step).round().mul(step).to(matrix.dtype)


def in_fp8(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.float().to(torch.float8_e4m3fn).to(matrix.dtype)


WIDE = 4, 256, 512, 4, 2, 500
MATRICES = "qkv", "out", "gate_up", "down", "head"


@pytest.mark.parametrize(
    ("shape", "what", "coarse"),
    [
        (Shape(*WIDE, 1, 128), MATRICES, in_8_bits),
        (Shape(*WIDE, 8, 1, 256), MATRICES, in_8_bits),
        (Shape(*WIDE, 8, 1, 256), ("keys", "values"), in_fp8),
    ],
    ids=["weights in 8 bits", "the same, next word", "keys and values in FP8"],
)
def test_d6_what_was_rounded_beforehand_is_refused(
    shape: Shape, what: tuple[str, ...], coarse: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    case = cases.forward("x", shape, "bf16")
    right = models.llama("sdpa")(case)
    check(case, right)

    def faster(*inputs: Any, **arguments: Any) -> Any:
        told = [coarse(x) if n in what else x for n, x in zip(case.input_names, inputs, strict=True)]
        return right(*told, **arguments)

    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        check(case, faster)


@pytest.mark.parametrize("compiled", [False, True], ids=["growing", "fixed"])
def test_weights_that_were_put_elsewhere_are_found_there(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the gate does it where somebody changed them."""
    monkeypatch.setattr(models, "compiled_for_one_shape", lambda function: function)
    case = cases.forward("x", NEXT, "fp32")
    inputs, call = case.inputs(1, "cpu"), models.llama("sdpa", compiled=compiled)(case)
    expected = call(*inputs, **case.arguments)
    for tensor in inputs[1:]:
        kept = tensor.clone()
        tensor.zero_()
        tensor.data = kept
    assert torch.allclose(call(*inputs, **case.arguments), expected, atol=1e-5)


@SHAPES
def test_the_oracle_of_some_rows_is_that_of_all(shape: Shape) -> None:
    case = cases.forward("x", shape, "fp32")
    inputs = case.inputs(2, "cpu")
    rows = torch.tensor([shape.B * shape.S - 1, 0, shape.B])[: 3 if shape.S > 1 else 2]
    assert torch.allclose(case.oracle(*inputs, rows=rows), case.oracle(*inputs)[rows], atol=1e-12)


def test_the_oracle_takes_as_many_sequences_at_once_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases.forward("x", READING, "fp32")
    inputs = case.inputs(2, "cpu")
    expected = case.oracle(*inputs)
    monkeypatch.setattr("groundspeed.suites.huggingface.reference.SCORES", 2 * 4 * 33 * 33)
    assert torch.allclose(case.oracle(*inputs), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [READING, NEXT._replace(B=1)], ids=["reading", "one token"])
def test_other_tokens_are_other_inputs_and_weights_stay(shape: Shape) -> None:
    case = cases.forward("x", shape, "fp32")
    inputs = Inputs.make(case, (1, 2, 3), "cpu")
    before = inputs.sets[0][0].clone()
    inputs.renew(0)
    now = inputs.sets[0][0]
    assert not bool((now == before).any())
    assert 0 <= int(now.min()) <= int(now.max()) < shape.V
    assert all(one[1] is inputs.sets[0][1] for one in inputs.sets)
    inputs.check_all()


def test_every_case_is_known_again_by_its_parameters() -> None:
    for case in cases.all_cases():
        again = cases.case_of_params(dict(case.params))
        assert (again.params, again.work, again.output_shape) == (case.params, case.work, case.output_shape)


def test_the_models_that_people_have() -> None:
    names = {case.name for case in cases.preset_cases("standard", "cuda")}
    assert {f"{name}-bf16" for name in (*PREFILL, *DECODE)} <= names
    assert "llama-1b-decode-8-bf16@graph" in names
    size = {
        name: sum(torch.Size(size).numel() for part, size in Shape(*model, 1, 1).weights().items() if part != "head")
        for name, model in MODELS.items()
    }
    assert round(size["llama-1b"] / 1e9, 2) == 1.24  # whose head is its words
    assert round((size["llama-8b"] + 128256 * 4096) / 1e9, 2) == 8.03


def test_work_counts_the_head_where_a_word_is_asked_for() -> None:
    step, prompt = (cases.work(Shape(*MODELS["llama-1b"], 1, S, N), "bf16") for S, N in ((1, 2048), (2048, 0)))
    assert step.flops == pytest.approx(2 * 1.236e9 + 16 * 4 * 2049 * 2048, rel=1e-3)
    assert step.bytes == pytest.approx(2 * 1.236e9 + 16 * 2 * 2048 * 512 * 2, rel=1e-3)
    assert prompt.flops == pytest.approx(2 * 2048 * 0.973e9 + 16 * 2 * 2048 * 2049 * 2048, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "told"),
    [("d=65,H=4", "65 dimensions do not divide into 4 heads"),
     ("H=32,G=5", "32 heads are not a multiple of 5 key heads"),
     ("S=0", "whole number"), ("Z=1", "unknown key in --shape 'Z'"),
     ("B=1048576,S=1048576,L=1048576", "more work than any machine")],
)  # fmt: skip
def test_a_shape_that_is_none_is_told_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        cases.shape_cases(text, ("bf16",))


@pytest.mark.parametrize(
    "change", [{"L": 0}, {"S": 2.5}, {"V": True}, {"dtype": "fp4"}, {"N": 0}, {"G": 3}, {"clock": "sun"}]
)
def test_other_parameters_are_refused(change: dict[str, str | int | float]) -> None:
    params = {**cases.forward("x", READING, "fp32").params, **change}
    with pytest.raises(BadInput, match="not the parameters of a huggingface case"):
        cases.case_of_params(params)


@pytest.mark.parametrize(("kernels", "why"), [
    (["attention_forward_hopper", "norm_forward_kernel"], None),
    (["attention_relay_kernel", "norm_forward_kernel"], None),
    (["attention_decode_kernel", "vectorized_elementwise_kernel"], "norm_forward_kernel"),
    (["flash_fwd_kernel", "norm_forward_kernel"], "attention_forward_kernel"),
])  # fmt: skip
def test_d9_what_did_not_launch_our_kernels_was_not_ours(kernels: list[str], why: str | None) -> None:
    said = CONTENDERS["patched"].launches(kernels)
    assert said is None if why is None else why in str(said)


def test_who_lacks_transformers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.57.1")
    assert "needs transformers 5 or newer, but 4.57.1 is installed" in str(CONTENDERS["sdpa"].absent("cpu"))
    monkeypatch.setattr(sys.modules["groundspeed.suites.huggingface.contenders"], "installed", lambda name: False)
    assert CONTENDERS["sdpa"].absent("cpu") == "transformers is not installed: pip install 'groundspeed[hf]'"
    assert "needs an NVIDIA GPU; transformers is not installed" in str(CONTENDERS["patched"].absent("cpu"))
