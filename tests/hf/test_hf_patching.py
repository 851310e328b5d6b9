"""gs.patch has the blocks of one model call our kernels and compute what they computed; gs.unpatch takes that back."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_models import PATCHED, VOCABULARY, largest, made, padding, tokens
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import groundspeed as gs
from groundspeed.hf import Patched, blocks, families

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch")

TOLERANCE = 1e-5
COUNTS = {
    "llama": (5, 2, 2, 0),
    "llama3": (5, 2, 2, 0),
    "mistral": (5, 2, 2, 0),
    "qwen2": (5, 2, 2, 0),
    "qwen3": (9, 2, 2, 0),
    "mixtral": (5, 2, 0, 2),
    "qwen2_moe": (5, 2, 2, 2),
    "qwen3_moe": (9, 2, 1, 1),
}
"""Norms, attentions, MLPs (those that all tokens share among them) and mixtures of experts."""
OPS = ("rms_norm", "rotary", "activate", "moe")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """With what each of our functions was called."""
    seen: dict[str, list[Any]] = {name: [] for name in OPS}

    def watched(name: str, function: Any) -> Any:
        return lambda *given, **told: seen[name].append(given) or function(*given, **told)

    for name in OPS:
        monkeypatch.setattr(gs, name, watched(name, getattr(gs, name)))
    return seen


def functions(model: Any) -> dict[str, Any]:
    """What is called of each module."""
    return {name: getattr(module.forward, "__func__", module.forward) for name, module in model.named_modules()}


@torch.no_grad()
@pytest.mark.parametrize("name", PATCHED)
def test_the_same_outputs_patched_and_the_same_bits_after(name: str, called: dict[str, list[Any]]) -> None:
    model, bystander, mask = made(name), made(name), padding("both")
    before, forwards, keys = model(tokens(), attention_mask=mask).logits, functions(model), list(model.state_dict())
    patched = gs.patch(model)
    assert (patched.norms, patched.rotary, patched.mlps, patched.experts) == COUNTS[name]
    assert patched.left == ()
    found = model(tokens(), attention_mask=mask).logits
    assert largest(found, before, mask) < TOLERANCE
    assert tuple(len(called[op]) for op in OPS) == COUNTS[name]
    assert list(model.state_dict()) == keys
    assert functions(bystander) == forwards
    gs.unpatch(model)
    assert functions(model) == forwards
    assert torch.equal(model(tokens(), attention_mask=mask).logits, before)
    assert tuple(len(called[op]) for op in OPS) == COUNTS[name]
    gs.unpatch(model)  # nothing is left to take back


@torch.no_grad()
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", PATCHED)
def test_generate(name: str, cache: str | None) -> None:
    """With our attention too."""
    model = made(name)
    told = {"attention_mask": padding("left"), "max_new_tokens": 16, "do_sample": False, "cache_implementation": cache}
    expected = model.generate(tokens(), **told)
    gs.patch(model)
    model.set_attn_implementation("groundspeed")
    assert torch.equal(model.generate(tokens(), **told), expected)


@torch.no_grad()
def test_weights_of_experts_are_taken_where_they_lie(called: dict[str, list[Any]]) -> None:
    model = made("qwen2_moe")
    gs.patch(model)
    model(tokens())
    block = model.model.layers[0].mlp
    _, router, up, down = called["moe"][0]
    assert router is block.gate.weight
    assert up is block.experts.gate_up_proj
    assert down is block.experts.down_proj


def test_what_is_patched_stays_so_and_only_what_was_asked_for() -> None:
    model = made("llama")
    assert gs.patch(model, only="norms") == Patched(norms=5)
    norm = type(model.model.norm)
    assert gs.patch(model, only=("norms", "mlps")) == Patched(norms=5, mlps=2)
    assert gs.patch(model) == gs.patch(model) == Patched(norms=5, rotary=2, mlps=2)
    assert type(model.model.norm) is norm
    assert norm.__name__ == "LlamaRMSNorm"  # by which models are spread over devices
    assert repr(gs.patch(model)) == "Patched(norms=5, rotary=2, mlps=2, experts=0)"


@torch.no_grad()
def test_copies_are_patched_as_the_model_is(tmp_path: Path, called: dict[str, list[Any]]) -> None:
    model = made("mixtral")
    expected, forwards = model(tokens()).logits, functions(model)
    gs.patch(model)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for copied in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
        called["moe"].clear()
        copied.model.norm.weight.data *= 2  # its own, not that of the model
        assert largest(copied(tokens()).logits, 2 * expected) < TOLERANCE
        assert len(called["moe"]) == 2
        gs.unpatch(copied)
        assert functions(copied) == forwards
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(again(tokens()).logits, expected)
    assert gs.patch(again).experts == 2
    assert largest(model(tokens()).logits, expected) < TOLERANCE


@pytest.mark.parametrize("model", [torch.nn.Linear(3, 3), "llama", None])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(
        TypeError, match=r"is not a model of Transformers: gs.patch takes one of llama, mistral, mixtral"
    ):
        gs.patch(model)


def test_what_is_no_module_cannot_be_unpatched() -> None:
    with pytest.raises(TypeError, match=r"gs.unpatch takes a model that gs.patch has patched, not str"):
        gs.unpatch("llama")
    gs.unpatch(torch.nn.Linear(3, 3))  # of which nothing is patched


def test_a_family_that_is_not_known_is_named_and_nothing_is_patched() -> None:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    forwards = functions(model)
    with pytest.raises(ValueError, match=r"does not support the family 'gpt2', only llama, .*qwen3_moe; attn_impl"):
        gs.patch(model)
    assert functions(model) == forwards
    with pytest.raises(ValueError, match="unknown kind of block 'norm'; choose from norms, rotary, mlps, experts"):
        gs.patch(made("llama"), only=("rotary", "norm"))


def test_an_op_that_is_missing_leaves_nothing_half_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("llama")
    forwards = functions(model)
    monkeypatch.setitem(blocks.NEEDED, "mlps", "no_such_op")
    with pytest.raises(AttributeError, match="no_such_op"):
        gs.patch(model)
    assert functions(model) == forwards


def replaced(model: Any) -> None:
    norm = model.model.norm
    norm.forward = norm.forward


def other_activation(model: Any) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.GELU()


class Mine(LlamaRMSNorm):
    """Which may compute something else."""

    def forward(self, hidden_states: Any) -> Any:
        return 2 * super().forward(hidden_states)


def own_class(model: Any) -> None:
    model.model.norm.__class__ = Mine


@pytest.mark.parametrize(
    ("change", "counts", "left"),
    [
        (replaced, (4, 2, 2), "; left: 1 norms (its forward was replaced)"),
        (other_activation, (5, 2, 1), "; left: 1 mlps (its activation is GELU(approximate='none'), not SiLU)"),
        (own_class, (4, 2, 2), f"; left: 1 norms (its class is {__name__}.Mine, not that of Transformers)"),
    ],
)
@torch.no_grad()
def test_what_is_left_is_named(change: Any, counts: tuple[int, ...], left: str) -> None:
    model = made("llama")
    change(model)
    before = model(tokens()).logits
    patched = gs.patch(model)
    assert repr(patched) == "Patched(norms={}, rotary={}, mlps={}, experts=0{})".format(*counts, left)
    assert all(one.name in dict(model.named_modules()) for one in patched.left)
    assert largest(model(tokens()).logits, before) < TOLERANCE


def test_blocks_that_a_later_transformers_computes_otherwise_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    model, block = made("mixtral"), type(made("mixtral").model.layers[0].mlp)
    home = __import__(block.__module__, fromlist=["x"])

    def scaled(self: Any, hidden_states: Any) -> Any:
        return self.experts(hidden_states) * self.routed_scaling_factor

    def turned(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        return q.interleaved(), k

    monkeypatch.setattr(block, "forward", scaled)
    monkeypatch.setattr(home, families.ROTARY, turned)
    reasons = {(one.kind, one.reason) for one in gs.patch(model).left}
    said = "in this version of Transformers it reads unknown names: "
    assert reasons == {("experts", f"{said}routed_scaling_factor"), ("rotary", f"{said}interleaved")}
    monkeypatch.undo()
    monkeypatch.setattr(home.MixtralExperts, "_apply_gate", lambda self, x: x.clamp(max=self.limit))
    assert {one.reason for one in gs.patch(model).left} == {f"{said}clamp, limit"}


def test_rotary_embeddings_that_the_package_kernels_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a module of a function, and another forward where it puts a kernel of its own."""
    home = __import__(LlamaRMSNorm.__module__, fromlist=["x"])

    def wrapped(func: Any) -> Any:
        class Func(torch.nn.Module):
            def forward(self, *given: Any, **told: Any) -> Any:
                return func(*given, **told)

        return Func()

    module = wrapped(getattr(home, families.ROTARY))
    monkeypatch.setattr(home, families.ROTARY, module)
    model = made("llama")
    assert gs.patch(model, only="rotary") == Patched(rotary=2)
    gs.unpatch(model)
    module.forward = module.forward
    assert {one.reason for one in gs.patch(model).left} == {"apply_rotary_pos_emb was replaced"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda block: setattr(block.experts, "is_transposed", True), "not laid out as"),
        (lambda block: setattr(block.experts, "gate_up_proj", None), "not laid out as"),
        (lambda block: setattr(block.experts, "act_fn", torch.nn.GELU()), "its activation is GELU"),
        (lambda block: block.add_module("adapter", torch.nn.Linear(2, 2)), "unknown parts: adapter"),
    ],
)
def test_experts_that_are_others_are_left(change: Any, said: str) -> None:
    model = made("mixtral")
    change(model.model.layers[1].mlp)
    patched = gs.patch(model)
    assert patched.experts == 1
    assert [(one.name, said in one.reason) for one in patched.left] == [("model.layers.1.mlp", True)]


@torch.no_grad()
@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe"])
def test_the_logits_of_routers_can_be_had(name: str, called: dict[str, list[Any]]) -> None:
    model = made(name)
    told = {"labels": tokens(), "output_router_logits": True}
    expected = model(tokens(), **told)
    gs.patch(model)
    found = model(tokens(), **told)
    assert len(found.router_logits) == len(expected.router_logits) == 2
    for ours, theirs in zip(found.router_logits, expected.router_logits, strict=True):
        assert largest(ours, theirs) < TOLERANCE
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
    assert len(called["moe"]) == 2


@torch.no_grad()
def test_whoever_changes_what_routers_or_experts_give_is_heard(called: dict[str, list[Any]]) -> None:
    model, theirs = made("mixtral"), made("mixtral")
    gs.patch(model)
    for one in (model, theirs):
        block = one.model.layers[0].mlp
        block.experts.register_forward_hook(lambda module, given, out: 2 * out)
        block = one.model.layers[1].mlp
        block.gate.forward = lambda x, own=block.gate.forward: (*own(x)[:1], own(x)[1] * 3, own(x)[2])
    assert largest(model(tokens()).logits, theirs(tokens()).logits) < TOLERANCE
    assert called["moe"] == []


@pytest.mark.parametrize("name", ["qwen3", "mixtral"])
def test_gradients(name: str, called: dict[str, list[Any]]) -> None:
    results = []
    for patched in (False, True):
        model = made(name)
        if patched:
            gs.patch(model)
        model.train()(tokens(), attention_mask=padding("left"), labels=tokens()).loss.backward()
        results.append(dict(model.named_parameters()))
    assert called["moe"] == []  # of which its own code is made for gradients
    assert len(called["rotary"]) == 2
    for key, expected in results[0].items():
        assert (results[1][key].grad - expected.grad).norm() <= 1e-4 * expected.grad.norm(), key


@torch.no_grad()
def test_noise_on_routers_is_left_to_their_own_code(called: dict[str, list[Any]]) -> None:
    model = made("mixtral").train()
    gs.patch(model)
    model(tokens())
    assert len(called["moe"]) == 2
    for layer in model.model.layers:
        layer.mlp.jitter_noise = 0.5
    called["moe"].clear()
    model(tokens())
    assert called["moe"] == []
    model.eval()(tokens())
    assert len(called["moe"]) == 2


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "qwen2_moe"])
def test_other_dtypes(name: str, called: dict[str, list[Any]]) -> None:
    """BF16 within its rounding. Under autocast what is FP32 stays so, and blocks whose weights are of another dtype
    than what goes through them compute as they did."""
    expected = made(name)(tokens()).logits
    model = made(name).bfloat16()
    apart = largest(model(tokens()).logits.float(), expected)
    gs.patch(model)
    assert largest(model(tokens()).logits.float(), expected) < max(2 * apart, 2e-2)
    assert len(called["rotary"]) == 2
    model, theirs = made(name), made(name)
    gs.patch(model)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(tokens()).logits, theirs(tokens()).logits
    assert found.dtype == expected.dtype
    assert largest(found.float(), expected.float()) < 4e-2


def test_who_patches_after_us_is_not_overrun() -> None:
    model = made("llama")
    forwards = functions(model)
    gs.patch(model)
    ours = model.model.layers[0].mlp.forward
    model.model.layers[0].mlp.forward = lambda x: ours(x)
    with pytest.raises(ValueError, match=r"forward of model.layers.0.mlp was replaced after gs.patch"):
        gs.unpatch(model)
    assert functions(model)["model.norm"] is not forwards["model.norm"]
    del model.model.layers[0].mlp.forward
    gs.unpatch(model)
    assert functions(model) == forwards


def test_a_model_that_nobody_needs_goes_at_once() -> None:
    """Its weights would wait for the collector on a GPU, if a block knew itself."""
    model = made("llama")
    gs.patch(model)
    gone = weakref.ref(model.model.norm)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


@torch.no_grad()
def test_replicas_use_their_own_parameters() -> None:
    """As nn.DataParallel makes them, from what a module has in itself."""
    model = made("qwen3")
    gs.patch(model)
    for block in (model.model.norm, model.model.layers[0].mlp, model.model.layers[0].self_attn):
        replica = block._replicate_for_data_parallel()
        assert replica.forward.__self__ is replica


@torch.no_grad()
def test_compiled(called: dict[str, list[Any]]) -> None:
    """In one graph, in which our rotary is."""
    model = made("qwen3", "groundspeed")
    expected = model(tokens()).logits
    gs.patch(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert largest(compiled(tokens(), use_cache=False).logits, expected) < TOLERANCE
