"""attn_implementation="groundspeed" gives what Transformers' own attention gives: with and without padding, windows,
caches and compilers, by the way of masks and by that of packed sequences. What it cannot do it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from small_models import FAMILIES, LENGTH, PADDINGS, SMALL, VOCABULARY, largest, made, padding, tokens
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import groundspeed as gs
from groundspeed.hf import attention as registered
from groundspeed.hf import packing
from groundspeed.kernels import calls
from nn.played import graphed

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch")

TOLERANCE = 1e-5
"""Of FP32 logits, over their size: some ten roundings."""
SPELT_OUT = ("gemma2", "gpt_oss")
"""Families whose soft-caps and sinks SDPA does not have, or forgets."""


@pytest.fixture(params=["masked", "packed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How padding is done: with a mask as on a CPU, or as packed sequences as where our kernels serve."""
    taken = []
    attention = packing.attention
    monkeypatch.setattr(packing, "attention", lambda *given, **told: taken.append(1) or attention(*given, **told))
    if request.param == "packed":
        monkeypatch.setattr(registered, "why_not_ours", lambda *_: None)
    yield request.param
    assert bool(taken) == (request.param == "packed")


def own(name: str) -> str:
    return "eager" if name in SPELT_OUT else "sdpa"


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_forward(name: str, way: str) -> None:
    theirs, ours = made(name, own(name)), made(name, "groundspeed")
    for kind in PADDINGS:
        mask = padding(kind)
        expected = theirs(tokens(), attention_mask=mask).logits
        assert largest(ours(tokens(), attention_mask=mask).logits, expected, mask) < TOLERANCE
    assert largest(ours(tokens()).logits, theirs(tokens()).logits) < TOLERANCE


def generated(model: Any, cache: str | None, mask: Any = None, **more: Any) -> Any:
    """The tokens, and the logits of each."""
    told = {"max_new_tokens": 16, "do_sample": False, "return_dict_in_generate": True, "output_logits": True, **more}
    found = model.generate(tokens(), attention_mask=mask, cache_implementation=cache, **told)
    return found.sequences, torch.stack(found.logits, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", FAMILIES)
def test_generate_with_padding_on_the_left(name: str, cache: str | None, way: str) -> None:
    expected, logits = generated(made(name, own(name)), cache, padding("left"))
    found, ours = generated(made(name, "groundspeed"), cache, padding("left"))
    assert torch.equal(found, expected)
    assert largest(ours, logits) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_generate_without_padding(name: str) -> None:
    for mask in (None, padding("none")):
        expected, logits = generated(made(name), None, mask)
        found, ours = generated(made(name, "groundspeed"), None, mask)
        assert torch.equal(found, expected)
        assert largest(ours, logits) < TOLERANCE


@torch.no_grad()
def test_beams(way: str) -> None:
    asked = {"num_beams": 3, "max_new_tokens": 8}
    expected, _ = generated(made("qwen2"), None, padding("left"), **asked)
    assert torch.equal(generated(made("qwen2", "groundspeed"), None, padding("left"), **asked)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["none", "left"])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2"])
def test_going_on_with_a_cache(name: str, fixed: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tokens at once after a beginning, as a chat, a prompt in parts and guessed tokens have it; the window of
    five is reached on the way."""
    if kind == "left":
        monkeypatch.setattr(registered, "why_not_ours", lambda *_: None)
    results = []
    for attention in ("sdpa", "groundspeed"):
        model, logits = made(name, attention), []
        given = {"config": model.config, **({"max_cache_len": 20} if fixed else {})}
        cache = (transformers.StaticCache if fixed else transformers.DynamicCache)(**given)
        for begin, end in ((0, 4), (4, 9), (9, 10), (10, LENGTH)):
            mask = padding(kind)[:, :end]
            mask[2, :3], mask[:, 3:] = mask[2, :3], 1  # a row begins before the first part ends
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, begin:end]
            told = {"attention_mask": mask, "past_key_values": cache, "position_ids": positions}
            logits.append(model(tokens()[:, begin:end], **told).logits[:, -1])
        results.append(torch.stack(logits))
    assert largest(results[1], results[0]) < TOLERANCE


@torch.no_grad()
def test_masks_of_somebodys_own_and_padding_with_holes() -> None:
    theirs, ours = made("llama"), made("llama", "groundspeed")
    seen = torch.rand(3, 1, LENGTH, LENGTH) < 0.5
    seen |= torch.eye(LENGTH, dtype=torch.bool)
    floats = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    holes = padding("left")
    holes[1, 4] = holes[1, 7] = 0
    for mask in (seen, floats, holes):
        expected = theirs(tokens(), attention_mask=mask).logits
        kept = mask if mask.dim() == 2 else None
        assert largest(ours(tokens(), attention_mask=mask).logits, expected, kept) < TOLERANCE
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]])  # three samples in a row
    told = {"position_ids": positions, "use_cache": False}
    assert largest(ours(tokens(1), **told).logits, theirs(tokens(1), **told).logits) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("kind", PADDINGS)
def test_encoders(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT sees both sides; as a decoder it is causal, and looks across at what an encoder has, which is padded too."""
    monkeypatch.setattr(registered, "why_not_ours", lambda *_: None)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 48, "initializer_range": 0.25}
    across = {"encoder_hidden_states": torch.randn(3, LENGTH, 64), "encoder_attention_mask": padding("both")}
    for settings, more in (({}, {}), ({"is_decoder": True, "add_cross_attention": True}, across)):
        torch.manual_seed(0)
        config = transformers.BertConfig(**sizes, **settings)
        model, mask = transformers.BertModel(config).eval(), padding(kind)
        expected = model(tokens(), attention_mask=mask, **more).last_hidden_state
        model.set_attn_implementation("groundspeed")
        assert largest(model(tokens(), attention_mask=mask, **more).last_hidden_state, expected, mask) < TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("cache", [None, "static"])
def test_gpt_2(cache: str | None, way: str) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, initializer_range=0.25, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    expected, logits = generated(model, cache, padding("left"), pad_token_id=0)
    model.set_attn_implementation("groundspeed")
    found, ours = generated(model, cache, padding("left"), pad_token_id=0)
    assert torch.equal(found, expected)
    assert largest(ours, logits) < TOLERANCE


@torch.no_grad()
def test_a_model_whose_masks_are_not_handed_on_gets_those_of_sdpa() -> None:
    """Doge makes a mask of its own out of them."""
    torch.manual_seed(0)
    model = transformers.DogeForCausalLM(transformers.DogeConfig(**SMALL)).eval()
    expected, logits = generated(model, None, padding("left"))
    model.set_attn_implementation("groundspeed")
    found, ours = generated(model, None, padding("left"))
    assert torch.equal(found, expected)
    assert largest(ours, logits) < TOLERANCE


def test_gradients() -> None:
    results = []
    for attention in ("sdpa", "groundspeed"):
        model = made("qwen2", attention)
        for kind in ("none", "both"):
            mask = padding(kind)
            labels = tokens().masked_fill(mask == 0, -100)
            model(tokens(), attention_mask=mask, labels=labels).loss.backward()
        results.append([parameter.grad for parameter in model.parameters()])
    for found, expected in zip(results[1], results[0], strict=True):
        assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_dropout_is_that_of_sdpa() -> None:
    losses = []
    for attention in ("sdpa", "groundspeed"):
        model = made("llama", attention).train()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        torch.manual_seed(7)
        losses.append(model(tokens(), attention_mask=padding("left"), labels=tokens()).loss)
    assert torch.equal(*losses)


class Module(torch.nn.Module):
    """An attention that is causal and has groups of two."""

    is_causal, num_key_value_groups = True, 2


def qkv(M: int = 5, N: int = 5) -> list[Any]:
    return [torch.randn(2, H, length, 8) for H, length in ((4, M), (2, N), (2, N))]


def test_biases_of_positions_are_added() -> None:
    bias, given = torch.randn(1, 4, 5, 5), qkv()
    found, weights = registered.attention(Module(), *given, None, position_bias=bias)
    assert torch.equal(found, sdpa_attention_forward(Module(), *given, None, position_bias=bias)[0])
    assert weights is None


def test_without_a_mask_queries_stand_at_the_first_keys() -> None:
    """As for `sdpa`: a cache of a fixed size is longer than what is in it."""
    for M, N in ((3, 9), (1, 9), (5, 5), (9, 3)):
        given = qkv(M, N)
        expected, _ = sdpa_attention_forward(Module(), *given, None)
        assert torch.allclose(registered.attention(Module(), *given, None)[0], expected, atol=1e-6)
        expected, _ = sdpa_attention_forward(Module(), *given, None, is_causal=False)
        assert torch.allclose(registered.attention(Module(), *given, None, is_causal=False)[0], expected, atol=1e-6)


def test_what_it_has_not_says_who_has() -> None:
    with pytest.raises(ValueError, match=r"output_attentions=True asks for: use model.set_attn_implementation"):
        made("llama", "groundspeed")(tokens(), output_attentions=True)
    with pytest.raises(ValueError, match=r"does not support dropout together with soft-caps or sinks: .*'eager'"):
        registered.attention(Module(), *qkv(), None, dropout=0.1, s_aux=torch.zeros(4))
    with pytest.raises(ValueError, match="does not support position biases together with soft-caps"):
        registered.attention(Module(), *qkv(), None, softcap=2.0, position_bias=torch.randn(1, 4, 5, 5))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "our kernels run on NVIDIA GPUs, but these tensors are on cpu"),
        ({"attention_mask": padding("left")}, "our kernels run on NVIDIA GPUs"),
        ({"attention_mask": torch.ones(3, 1, LENGTH, LENGTH)}, "support only causal masks, windows and padding"),
    ],
)
@pytest.mark.parametrize("patched", [False, True])
def test_pytorchs_path_is_said_once_to_who_called_the_model(told: dict[str, Any], said: str, patched: bool) -> None:
    calls._said.clear()
    model = made("llama", "groundspeed")
    if patched:
        gs.patch(model)
    with torch.no_grad(), pytest.warns(UserWarning, match=f"falls back to PyTorch: .*{said}") as w:
        model(tokens(), **told)
    assert {one.filename for one in w} == {__file__}
    assert sum(said in str(one.message) for one in w) == 1


def test_a_step_with_a_fixed_cache_is_one_graph_with_our_kernel_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels are not there on a CPU, so it is only traced. The mask is made outside, as `generate` has it."""
    model = made("llama", "groundspeed")
    cache = transformers.StaticCache(config=model.config, max_cache_len=20)
    with torch.no_grad():
        model(tokens(), attention_mask=padding("left"), past_key_values=cache)
        grown = torch.cat([padding("left"), torch.ones(3, 1, dtype=torch.long)], dim=1)
        told = model.prepare_inputs_for_generation(tokens()[:, :1], attention_mask=grown, past_key_values=cache)
        assert told["attention_mask"].shape == (3, 2, 1, 4)
        from groundspeed.kernels.attention import varlen

        for module in (registered, varlen.able):
            monkeypatch.setattr(module, "why_not_ours", lambda *_: None)
        traced: list[str] = []

        def backend(graph: Any, _: Any) -> Any:
            traced.extend(str(node.target) for node in graph.graph.nodes)
            return lambda *_: (torch.zeros(3, 1, VOCABULARY),)

        torch._dynamo.reset()
        torch.compile(model, backend=backend, fullgraph=True)(**told)
    assert sum("attention_varlen_forward" in target for target in traced) == 2


@torch.no_grad()
@pytest.mark.parametrize(("name", "kind"), [("llama", None), ("mistral", "left")])
def test_compiled_with_its_masks(name: str, kind: str | None) -> None:
    model, mask = made(name, "groundspeed"), None if kind is None else padding(kind)
    torch._dynamo.reset()
    found = torch.compile(model, backend="eager", fullgraph=True)(tokens(), attention_mask=mask).logits
    assert largest(found, model(tokens(), attention_mask=mask).logits, mask) < TOLERANCE


@torch.no_grad()
def test_generate_compiles_the_steps_of_a_fixed_cache_once() -> None:
    """As it does by itself on a GPU; here the blocks are patched too."""
    expected, _ = generated(made("llama"), None, padding("left"))
    model = made("llama", "groundspeed")
    gs.patch(model)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    config = transformers.CompileConfig(backend="eager", fullgraph=True, mode=None)
    config._compile_all_devices = True
    found, _ = generated(model, "static", padding("left"), compile_config=config)
    assert torch.equal(found, expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@torch.no_grad()
def test_a_graph_around_a_static_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    model, prompt, steps = made("llama", "groundspeed"), tokens(1, 6), tokens(1, 4)

    def start() -> Any:
        cache = transformers.StaticCache(config=model.config, max_cache_len=10)
        model(prompt, past_key_values=cache)
        return cache

    def step(ids: Any, place: Any, cache: Any) -> Any:
        return model(ids, past_key_values=cache, position_ids=place).logits

    fast = graphed(lambda ids, place: step(ids, place, cache))
    for _ in range(2):
        cache, theirs = start(), start()
        for i in range(4):
            ids, place = steps[:, i : i + 1], torch.tensor([[6 + i]])
            assert torch.equal(fast(ids, place), step(ids, place, theirs))
        assert [graph.replays for graph in fast.graphs] == [4]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["none", "left"])
@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_autocast_without_a_cache(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries and keys come out of the rotary embedding in FP32, values in BF16; a cache would have made them alike."""
    monkeypatch.setattr(registered, "why_not_ours", lambda *_: None)
    mask = padding(kind)
    expected = made(name, "eager")(tokens(), attention_mask=mask).logits
    for model in (made(name, "groundspeed"), torch.compile(made(name, "groundspeed"), backend="eager")):
        with torch.autocast("cpu", torch.bfloat16):
            found = model(tokens(), attention_mask=mask, use_cache=False).logits
        assert largest(found.float(), expected, mask) < 0.1


def test_training_under_autocast_and_fp64_in_it() -> None:
    model = made("llama", "groundspeed").train()
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens(), labels=tokens(), use_cache=False).loss.backward()
        x = torch.ones(1, 1, 3, 8, dtype=torch.float64)
        assert registered.attention(model, x, x, x, None)[0].dtype == torch.float64
    assert model.model.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0
