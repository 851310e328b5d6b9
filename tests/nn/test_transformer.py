"""`gs.nn.Transformer` is the model that Transformers has under the same weights, whatever it is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from played import graphed
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from groundspeed.kernels import calls
from groundspeed.nn import PagedCache, Transformer, TransformerConfig, transformer
from groundspeed.nn.transformer import _is_all

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed:UserWarning")

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
OURS = TransformerConfig(2, 64, 4, key_heads=2, intermediate=96, vocabulary=97, eps=1e-6, max_positions=64)


def theirs(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "mixtral":
        return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, rms_norm_eps=1e-6, rope_theta=1e4)).eval()
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=5, rms_norm_eps=1e-6)).eval()
    return LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=32 if kind == "wide heads" else None)).eval()


def with_its_weights(model: Any, config: TransformerConfig) -> Transformer:
    told = model.state_dict()
    found = {
        "embedding.weight": told["model.embed_tokens.weight"],
        "head.weight": told["lm_head.weight"],
        "norm.weight": told["model.norm.weight"],
    }
    for i in range(config.layers):
        at, to = f"model.layers.{i}.", f"blocks.{i}."
        found[f"{to}before_attention.weight"] = told[f"{at}input_layernorm.weight"]
        found[f"{to}before_mlp.weight"] = told[f"{at}post_attention_layernorm.weight"]
        found[f"{to}attention.qkv.weight"] = torch.cat([told[f"{at}self_attn.{x}_proj.weight"] for x in "qkv"])
        found[f"{to}attention.out.weight"] = told[f"{at}self_attn.o_proj.weight"]
        if config.experts:
            found[f"{to}mlp.router"] = told[f"{at}mlp.gate.weight"]
            found[f"{to}mlp.up"] = told[f"{at}mlp.experts.gate_up_proj"]
            found[f"{to}mlp.down"] = told[f"{at}mlp.experts.down_proj"]
        else:
            found[f"{to}mlp.up.weight"] = torch.cat([told[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")])
            found[f"{to}mlp.down.weight"] = told[f"{at}mlp.down_proj.weight"]
    made = Transformer(config).eval()
    made.load_state_dict(found)
    return made


KINDS = {
    "llama": {},
    "wide heads": {"head_dim": 32},
    "mistral": {"window": 4},  # theirs counts the token itself
    "mixtral": {"experts": 4},
}


def pair(kind: str) -> tuple[Any, Transformer]:
    model = theirs(kind)
    return model, with_its_weights(model, replace(OURS, **KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_logits(kind: str) -> None:
    model, made = pair(kind)
    tokens = torch.randint(0, 97, (3, 29))
    with torch.no_grad():
        expected = model(tokens).logits
        assert torch.allclose(made(tokens), expected, atol=2e-6, rtol=1e-5)
        assert torch.allclose(made(tokens, last_only=True), expected[:, -1:], atol=2e-6, rtol=1e-5)


def test_a_model_of_16_bits_keeps_its_angles() -> None:
    _, made = pair("llama")
    tokens = torch.randint(0, 97, (1, 60))
    with torch.no_grad():
        expected = made(tokens)
        assert made._angles is not None
        short = made.bfloat16()(tokens)
    assert made._angles.dtype == torch.float32
    assert (short.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_angles_are_made_with_the_weights_and_not_in_forward() -> None:
    """Memory of a CUDA graph, such as torch.compile(mode="reduce-overhead") has, is overwritten by the next replay."""
    _, model = pair("llama")
    prompts, angles = torch.randint(0, 97, (2, 7)), model._angles
    assert angles is not None
    with torch.no_grad():
        expected = model(prompts)
        results: list[int] = []

        def backend(made: Any, _: Any) -> Any:
            (found,) = (node.args[0] for node in made.graph.nodes if node.op == "output")
            results.append(len(found))
            return made.forward

        torch.compile(Transformer(OURS).eval(), backend=backend, fullgraph=True)(prompts)
        assert results == [1]  # the logits alone
        for assigned in (False, True):
            with torch.device("meta"):
                empty = Transformer(OURS)
            assert empty._angles.device.type == "meta"
            if not assigned:
                empty.to_empty(device="cpu")
                assert torch.equal(empty._angles, angles)
            empty.load_state_dict(model.state_dict(), assign=assigned)
            assert torch.equal(empty._angles, angles)
            assert torch.equal(empty.eval()(prompts), expected)
        model.bfloat16()
        assert model._angles is angles
        assert angles.dtype == torch.float32
        with torch.inference_mode():
            assert not Transformer(OURS)._angles.is_inference()
    assert Transformer(replace(OURS, positions="none"))._angles is None
    assert "_angles" not in model.state_dict()


def test_gradients_go_through() -> None:
    _, made = pair("llama")
    made(torch.randint(0, 97, (2, 9))).sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"norm": "group"}, "norm='group' is unknown; choose from rms, layer"),
        ({"positions": "alibi"}, "positions='alibi' is unknown"),
        ({"key_heads": 3}, "4 heads are not a multiple of 3"),
        ({"hidden": 63}, "set head_dim="),
        ({"head_dim": 15}, "even number of columns per head"),
        ({"activation": "tanh"}, "activation='tanh' is unknown"),
        ({"layers": 0}, "layers must be a whole number of at least 1, not 0"),
        ({"key_heads": 0}, "key_heads must be a whole number of at least 1"),
        ({"vocabulary": -3}, "vocabulary must be a whole number of at least 0"),
        ({"hidden": 64.0}, "hidden must be a whole number of at least 1, not 64.0"),
        ({"window": -7}, "window must be a whole number of at least -1"),
        ({"rope_theta": 0.0}, "rope_theta must be positive"),
    ],
)
def test_what_cannot_be_made_is_told_in_a_sentence(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Transformer(replace(OURS, **wrong))


def test_more_tokens_than_positions() -> None:
    with pytest.raises(ValueError, match="65 tokens exceed max_positions=64"):
        pair("llama")[1](torch.zeros(1, 65, dtype=torch.int64))


def test_hidden_states_with_learned_positions_and_layer_norms() -> None:
    """Without a vocabulary hidden states go in and come out; a token does not see what comes after it."""
    config = TransformerConfig(2, 32, 2, activation="gelu", norm="layer", positions="learned", bias=True)
    made = Transformer(config).eval()
    x = torch.randn(2, 11, 32)
    with torch.no_grad():
        whole = made(x)
        assert torch.allclose(made(x[:, :7]), whole[:, :7], atol=1e-6)
        moved = made(x.roll(1, 1))
    assert whole.shape == x.shape
    assert not torch.allclose(moved[:, 1:], whole[:, :-1], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_b4_it_writes_what_they_write(kind: str) -> None:
    """Greedily, through the cache: the same tokens, step by step."""
    model, made = pair(kind)
    prompts = torch.randint(0, 97, (3, 13))
    theirs = model.generate(prompts, max_new_tokens=50, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert torch.equal(made.generate(prompts, 50), theirs[:, 13:])


def test_b4_256_tokens() -> None:
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "max_position_embeddings": 300})).eval()
    made = with_its_weights(model, replace(OURS, max_positions=300))
    prompts = torch.randint(0, 97, (1, 5))
    theirs = model.generate(prompts, max_new_tokens=256, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert torch.equal(made.generate(prompts, 256), theirs[:, 5:])
    with pytest.raises(ValueError, match="5 \\+ 296 tokens exceed max_positions=300"):
        made.generate(prompts, 296)


def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inference.md").read_text()
    section = page.partition("## A transformer")[2].partition("\n## ")[0]
    here: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, here)
    assert (here["written"].shape, here["logits"].shape) == ((2, 8), (2, 3, 1000))
    assert here["cache"].tokens == [25, 27]


def test_prompts_of_different_lengths_and_in_parts() -> None:
    """Padded at their beginning; and the same read in two parts."""
    _, made = pair("mistral")
    tokens = torch.randint(0, 97, (2, 12))
    with torch.no_grad():
        whole, short = made(tokens), made(tokens[1:, 5:])
        cache = PagedCache(2, 2, 16, pages=8, sequences=2, longest=40, page_size=16)
        cache.allocate([12, 7])
        found = made(tokens, cache)
        assert torch.allclose(found[0], whole[0], atol=1e-5)
        assert torch.allclose(found[1, 5:], short[0], atol=1e-5)
        parts = PagedCache(2, 2, 16, pages=8, sequences=2, longest=40, page_size=16)
        parts.allocate([8, 8])
        first = made(tokens[:, :8], parts)
        parts.grow(4)
        assert torch.allclose(torch.cat([first, made(tokens[:, 8:], parts)], 1), whole, atol=1e-5)


def test_who_wrote_can_learn_afterwards() -> None:
    _, made = pair("llama")
    with torch.inference_mode():
        made.generate(torch.randint(0, 97, (1, 5)), 3)
    made(torch.randint(0, 97, (2, 9))).sum().backward()


def test_a_cache_that_does_not_fit_is_told() -> None:
    _, made = pair("llama")
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"65 positions of the cache \(its longest=\) exceed max_positions=64"):
            made(tokens, PagedCache(2, 2, 16, pages=8, sequences=1, longest=65, page_size=16))
        cache = PagedCache(2, 2, 16, pages=8, sequences=3, longest=64, page_size=16)
        with pytest.raises(ValueError, match="no row of the cache has a sequence"):
            made(tokens, cache)
        cache.allocate([4])
        with pytest.raises(ValueError, match="x must have a row for each of the 3 rows of the cache, not 1"):
            made(tokens, cache)
        with pytest.raises(ValueError, match="the cache is for 1 layers, but the model has 2"):
            made(tokens, PagedCache(1, 2, 16, pages=8, sequences=1, longest=64, page_size=16))
        other = PagedCache(2, 2, 16, pages=8, sequences=1, longest=64, dtype=torch.bfloat16)
        with pytest.raises(ValueError, match=r"2 key heads of 16 in torch.bfloat16 .* the model 2 key heads of 16 in"):
            made(tokens, other)
        with pytest.raises(ValueError, match=r"4 key heads of 8 .* use model.cache\(sequences, longest\)"):
            made(tokens, PagedCache(2, 4, 8, pages=8, sequences=1, longest=64))
        with pytest.raises(
            ValueError, match=r"dtype must be a floating-point dtype, such as torch.bfloat16, not 'bf16'"
        ):
            PagedCache(2, 2, 16, pages=8, sequences=1, longest=64, dtype="bf16")


def test_a_model_makes_the_cache_that_fits() -> None:
    made = pair("llama")[1].double()
    cache = made.cache(2, 60, page_size=16)
    assert "2 layers, 2 key heads of 16, 8 of 8 pages free, 16 positions per page, tokens=[0, 0]" in repr(cache)
    assert made.cache(2, 60, pages=5).free_pages == 5
    cache.allocate([4, 3])
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    with torch.inference_mode():
        assert made(tokens, cache).dtype == torch.float64
        with pytest.raises(
            ValueError, match=r"5 tokens are given, but no row of the cache has more than 4: call cache.alloc"
        ):
            made(torch.zeros(2, 5, dtype=torch.int64), cache)
    cache.free([1])
    with pytest.raises(TypeError):
        cache.allocate([1.5])  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [torch.zeros(4, dtype=torch.int64), torch.zeros(1, 4, 64), torch.zeros(1, 4)])
def test_what_are_no_tokens_is_told(wrong: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"x must be tokens, whole numbers \[B, S\], not"):
        pair("llama")[1](wrong)


def test_what_are_no_hidden_states_is_told() -> None:
    made = Transformer(TransformerConfig(1, 32, 2))
    for wrong in (torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, 33)):
        with pytest.raises(ValueError, match=r"hidden states \[B, S, 32\], since the model has no vocabulary="):
            made(wrong)
    with pytest.raises(ValueError, match="cannot generate tokens"):
        made.generate(torch.randn(1, 3, 32), 2)


@pytest.mark.parametrize(("tokens", "steps"), [((2, 0), 3), ((0, 2), 3), ((4,), 3), ((1, 4), -1), ((1, 4), 1.5)])
def test_what_cannot_be_written_after_is_told(tokens: tuple[int, ...], steps: Any) -> None:
    with pytest.raises(ValueError, match=r"tokens must be \[B, S\], at least one, and steps at least 0"):
        pair("llama")[1].generate(torch.zeros(tokens, dtype=torch.int64), steps)


def test_what_is_no_config_is_told() -> None:
    with pytest.raises(TypeError, match=r"config must be a gs.nn.TransformerConfig\(layers=…, hidden=…, …\), not dict"):
        Transformer({"layers": 1, "hidden": 32, "heads": 2})  # type: ignore[arg-type]


def test_autocast_is_told_what_to_do_instead() -> None:
    _, made = pair("llama")
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=r"with \.bfloat16\(\), instead"):
        made(torch.zeros(1, 4, dtype=torch.int64))


@pytest.mark.parametrize("positions", ["none", "learned", "rotary"])
def test_positions_are_computed_for_models_that_have_some(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, last = [], transformer._last
    monkeypatch.setattr(transformer, "_last", lambda *given: seen.append(1) or last(*given))
    made = Transformer(replace(OURS, positions=positions)).eval()
    tokens = torch.randint(0, 97, (2, 5))
    cache = made.cache(2, 8)
    cache.allocate([5, 5])
    with torch.no_grad():
        assert torch.allclose(made(tokens, cache), made(tokens), atol=1e-5)
    assert len(seen) == (positions != "none")


def test_nothing_to_read() -> None:
    _, made = pair("llama")
    with torch.no_grad():
        assert made(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 97)
        assert made(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3, 97)


def test_one_token_goes_the_way_that_all_later_ones_go() -> None:
    """Else a graph that was captured at the first token would see that one alone for ever."""
    cache = PagedCache(2, 2, 16, pages=8, sequences=2, longest=64, page_size=16)
    cache.allocate([1, 1])
    assert not _is_all(cache, torch.zeros(2, 1))
    cache.grow(3)
    assert _is_all(cache, torch.zeros(2, 4))
    with pytest.MonkeyPatch.context() as patch:  # as PyTorch's, which a compiler cannot trace
        patch.setattr(calls, "is_captured", lambda _: torch._dynamo.graph_break() or False)
        compiled = torch.compile(lambda x: x + _is_all(cache, x), backend="eager", fullgraph=True)
        assert not compiled(torch.zeros(2, 4)).any()
    seen: list[bool] = []
    graphed(lambda x: (seen.append(_is_all(cache, x)), x)[1])(torch.zeros(2, 4))
    assert set(seen) == {False}  # in warm-up calls too, which compile what the capture launches
