"""The suite `moe`: tokens are routed as a case says, everybody gets the same right result, and each call other tokens
(B1, B2)."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from groundspeed.case import Case
from groundspeed.errors import BadInput
from groundspeed.kernels.moe import reference
from groundspeed.kernels.moe.api import moe
from groundspeed.kernels.moe.form import Routing
from groundspeed.measure import gate
from groundspeed.measure.inputs import Inputs
from groundspeed.suites import registry
from groundspeed.suites.moe import cases, products, routed
from groundspeed.suites.moe.shapes import SHAPES, SMALL, Shape

CONTENDERS = registry.load("moe").contenders
ON_A_CPU = ("expert-loop", "grouped-mm")


@pytest.mark.parametrize("name", SMALL)
def test_tokens_choose_the_experts_that_the_case_says_by_more_than_any_rounding(name: str) -> None:
    shape = SMALL[name]._replace(T=200)
    x, router, *_ = cases.forward(name, shape, "gelu", "bf16").inputs(3, "cpu")
    chosen = reference.route(x, router, Routing(shape.K))
    assert torch.equal(chosen.experts.sort(1).values, torch.from_numpy(routed.choices(shape)).sort(1).values)
    assert chosen.margin.min() > 1
    rough = (x @ router.T).topk(shape.K, dim=1).indices  # logits in BF16
    assert torch.equal(rough.sort(1).values, chosen.experts.sort(1).values)


def test_b2_balanced_is_even_and_zipf_is_skewed() -> None:
    shape = Shape(4096, 128, 64, 32, 2)
    used = {
        kind: numpy.bincount(routed.choices(shape._replace(routing=kind)).flatten(), minlength=32)
        for kind in ("balanced", "random", "zipf")
    }
    varies = {kind: counts.std() / counts.mean() for kind, counts in used.items()}
    assert varies["balanced"] == 0
    assert 0 < varies["random"] < 0.1
    assert 1 < varies["zipf"] < 2
    for counts in used.values():
        assert counts.sum() == 4096 * 2


@pytest.mark.parametrize("routing", ["random", "zipf"])
@pytest.mark.parametrize("at_once", [16, 4096])
def test_b2_usage_is_what_the_kernels_call_routed(routing: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed, "AT_ONCE", at_once)
    shape = Shape(200, 64, 32, 8, 2, routing)
    case = cases.forward("some", shape, "gelu", "fp32")
    assert case.experts
    inputs = case.inputs(3, "cpu")
    tokens, loss = case.experts.usage(*inputs)
    _, told = moe(*inputs, **case.arguments, return_routing=True, impl="torch")
    assert tokens == told.counts.tolist() == numpy.bincount(routed.choices(shape).flatten(), minlength=8).tolist()
    assert (len(tokens), sum(tokens)) == (case.experts.number, case.experts.choices)
    assert loss == pytest.approx(float(told.balance_loss), rel=1e-5)
    case.refresh(inputs, tuple(tensor.clone() for tensor in inputs))
    assert case.experts.usage(*inputs)[0] == tokens


def test_b2_a_balance_loss_is_as_exact_as_its_digits() -> None:
    """Of three experts that are used alike it is 1; a third in FP32 would make it 1.00000003."""
    tokens, loss = routed.usage(torch.eye(3, 8).repeat(2, 1), torch.eye(3, 8), top_k=1)
    assert (tokens, loss) == ([2, 2, 2], pytest.approx(1, abs=1e-12))


def test_b2_products_have_no_experts() -> None:
    assert all((case.experts is None) == products.is_products(case) for case in cases.all_cases())


@pytest.mark.parametrize("name", SHAPES)
def test_bytes_count_the_experts_that_have_work(name: str) -> None:
    shape = SHAPES[name]
    assert routed.chosen_by_any(shape) == len(numpy.unique(routed.choices(shape)))


@pytest.mark.parametrize("name", ON_A_CPU)
@pytest.mark.parametrize("activation", ["swiglu", "gelu", "relu2"])
@pytest.mark.parametrize(
    ("shape", "dtype"), [("some", "fp32"), ("some-zipf", "bf16"), ("few", "fp16"), ("one", "bf16")]
)
def test_pytorchs_own_are_right(shape: str, dtype: str, activation: str, name: str) -> None:
    case = cases.forward(shape, SHAPES[shape], activation, dtype)
    inputs = case.inputs(5, "cpu")
    out = CONTENDERS[name].build(case)(*inputs, **case.arguments)
    errors = gate.check(case, inputs, out, gate.ask(case, inputs, 1000))
    assert errors["rms_rel"] <= case.tolerance["rms_rel"] / 2


def test_operands_in_fp8_are_refused() -> None:
    case = cases.forward("some", SHAPES["some"], "gelu", "bf16")
    x, router, *weights = inputs = case.inputs(5, "cpu")
    coarse = [w.to(torch.float8_e4m3fn).to(w.dtype) for w in weights]
    out = CONTENDERS["expert-loop"].build(case)(x, router, *coarse, **case.arguments)
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        gate.check(case, inputs, out, gate.ask(case, inputs, 1000))


@pytest.mark.parametrize("name", ["one", "some", "some-zipf"])
def test_refreshed_tokens_are_others_and_as_many_choose_each_expert(name: str) -> None:
    shape = SHAPES[name]
    case = cases.forward(name, shape, "gelu", "fp32")
    inputs, earlier = case.inputs(1, "cpu"), case.inputs(1, "cpu")
    case.refresh(inputs, earlier)
    assert all(torch.equal(a, b) for a, b in zip(inputs[1:], earlier[1:], strict=True))
    rows, before = ({tuple(row) for row in x[0].tolist()} for x in (inputs, earlier))
    assert not rows & before
    counted = [
        reference.route(x, router, Routing(shape.K)).experts.flatten().bincount(minlength=shape.E)
        for x, router, *_ in (inputs, earlier)
    ]
    assert torch.equal(*counted)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_of_further_sets_only_the_tokens_are_made_and_are_those_of_their_seeds(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experts are gigabytes."""
    case = cases.forward("some", SHAPES["some"], "swiglu", dtype)
    expected = [case.inputs(seed, "cpu") for seed in (1, 2, 3)]
    made: list[Shape] = []
    weights = routed.weights
    monkeypatch.setattr(routed, "weights", lambda shape, *told: made.append(shape) or weights(shape, *told))
    inputs = Inputs.make(case, (1, 2, 3), "cpu")
    assert made == [SHAPES["some"]]
    for found, right in zip(inputs.sets, expected, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


def test_every_case_is_known_again_by_its_parameters() -> None:
    for case in cases.all_cases():
        again = cases.case_of_params(dict(case.params))
        assert (again.params, again.work, again.arguments) == (case.params, case.work, case.arguments)


@pytest.mark.parametrize(
    ("text", "told"),
    [("T=7,K=3,E=2", "K=3 is more than the E=2 experts"),
     ("act=tanh", "unknown act in --shape 'tanh'"),
     ("E=40,H=64", "E=40 is more than half of H=64"),
     ("T=0", "T needs a whole number"), ("routing=fair", "unknown routing"),
     ("T=999999999,H=999999999,I=999999999", "more work than any machine"), ("X=1", "unknown key in --shape 'X'")],
)  # fmt: skip
def test_a_shape_that_is_none_is_told_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        cases.shape_cases(text, ("bf16",))


@pytest.mark.parametrize(
    "change",
    [{"T": 0}, {"T": True}, {"K": 99}, {"act": "tanh"}, {"routing": "random"}, {"dtype": "fp8"}, {"clock": "default"}],
)
def test_other_parameters_are_refused(change: dict[str, Any]) -> None:
    params = {**cases.forward("some", SHAPES["some"], "gelu", "bf16").params, **change}
    with pytest.raises(BadInput, match="not the parameters of a moe case"):
        cases.case_of_params(params)


def test_plain_products_are_measured_beside_the_layer() -> None:
    (case,) = [case for case in cases.preset_cases("standard", "cpu") if products.is_products(case)]
    inputs = case.inputs(2, "cpu")
    able = [name for name, one in CONTENDERS.items() if one.supports(case, "cpu") is None]
    assert able == ["plain-products", "ours-portable", "ours-hopper"]
    out = CONTENDERS["plain-products"].build(case)(*inputs, **case.arguments)
    gate.check(case, inputs, out, gate.ask(case, inputs, 1000))


def test_who_cannot_do_a_case_says_why() -> None:
    def reasons(case: Case) -> dict[str, str | None]:
        return {name: one.supports(case, "cuda") for name, one in CONTENDERS.items()}

    gelu = reasons(cases.forward("some", SHAPES["some"], "gelu", "fp16"))
    assert gelu["liger"] == gelu["hugging-face"] == "SwiGLU only"
    assert "BF16 only" in str(gelu["grouped-mm-compiled"])
    (odd,) = cases.shape_cases("T=64,H=100,I=64,E=4,act=swiglu", ("bf16",))
    assert "multiple of 8" in str(reasons(odd)["ours-hopper"])
    assert reasons(odd)["ours-portable"] is None
