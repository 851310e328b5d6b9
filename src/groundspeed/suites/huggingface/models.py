"""Transformers' own Llama with the weights of a case, as it is and with groundspeed in it. All contenders are this one
model, whose weights lie in memory once; they differ in what a user would set.

Calls are those that `generate` makes: a prompt fills a cache that grows, and a step reads a cache and writes into it.
No call gets a padding mask, since there is no padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.compiled import compiled_for_one_shape
from groundspeed.suites.huggingface.reference import NORM_EPS, THETA
from groundspeed.suites.huggingface.shapes import Shape, shape_of
from groundspeed.suites.inference.pytorch import places_of
from groundspeed.suites.kept import PutBack, fixed, growing

if TYPE_CHECKING:
    from torch import Tensor


def llama(attention: str, *, patched: bool = False, compiled: bool = False) -> Callable[[Case], Callable[..., Tensor]]:
    """Return a contender's `build`. If it is compiled, a step takes a cache of fixed size and its mask is made before
    the step; `generate` does both, too, when it compiles."""

    def build(case: Case) -> Callable[..., Tensor]:
        shape = shape_of({key: value for key, value in case.params.items() if key in Shape._fields})
        model = _made(shape, attention, patched)
        run = _forward(model, shape)
        run = compiled_for_one_shape(run) if compiled else run
        given: list[int] = []
        caches: list[tuple[Any, PutBack]] = []
        told: dict[str, Any] = {}

        def call(ids: Tensor, *inputs: Tensor, **_: Any) -> Tensor:
            if given != (places := places_of(*inputs)):  # in the first call, which is never timed
                _give(model, shape, *inputs)
                if shape.N and compiled:
                    caches[:] = [fixed(model.config, inputs[-2], inputs[-1], shape.S)]
                    told["position_ids"] = _places(shape, ids)
                elif shape.N:
                    caches[:] = [growing(model.config, inputs[-2], inputs[-1])]
                given[:] = places
            if not shape.N:
                return run(ids, None)[0]
            cache, put_back = caches[0]
            if compiled:
                told["attention_mask"] = _mask(model, shape, cache, told["position_ids"])
            out = run(ids, cache, **told)[0]
            put_back()
            return out

        return call

    return build


def _made(shape: Shape, attention: str, patched: bool) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import groundspeed as gs

    if attention == "groundspeed":
        import groundspeed.hf  # makes the name known
    config: Any = LlamaConfig(
        vocab_size=shape.V,
        hidden_size=shape.d,
        intermediate_size=shape.I,
        num_hidden_layers=shape.L,
        num_attention_heads=shape.H,
        num_key_value_heads=shape.G,
        max_position_embeddings=shape.N + shape.S,
        rms_norm_eps=NORM_EPS,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its angles are not among the weights
    if patched and (left := gs.patch(model).left):
        raise NotImplementedError(f"gs.patch left {left[0].name} as it is: {left[0].reason}")
    return model


def _give(model: Any, shape: Shape, *inputs: Tensor) -> None:
    """Give the model the weights of a case without copying any."""
    words, norms, last, qkv, out, gate_up, down, head = inputs[:8]
    named = {"model.embed_tokens.weight": words, "model.norm.weight": last, "lm_head.weight": head}
    rows = [shape.d, shape.G * shape.head_dim, shape.G * shape.head_dim]
    for number in range(shape.L):
        q, k, v = qkv[number].split(rows)
        gate, up = gate_up[number].chunk(2)
        parts = {
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": out[number],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": down[number],
            "input_layernorm": norms[number, 0],
            "post_attention_layernorm": norms[number, 1],
        }
        named |= {f"model.layers.{number}.{part}.weight": tensor for part, tensor in parts.items()}
    model.load_state_dict(named, assign=True)
    model.requires_grad_(False)
    model.model.rotary_emb.to(words.device)


def _forward(model: Any, shape: Shape) -> Callable[..., Any]:
    """Return a function that returns the output of a case and the cache. If the cache were not returned, a compiler
    would drop the writes to it."""

    def read(ids: Tensor, cache: Any, **told: Any) -> tuple[Any, Any]:
        made = model.model(input_ids=ids, past_key_values=cache, use_cache=True, **told)
        return made.last_hidden_state, made.past_key_values

    def write(ids: Tensor, cache: Any, **told: Any) -> tuple[Any, Any]:
        made = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, **told)
        return made.logits, made.past_key_values

    return write if shape.writes else read


def _places(shape: Shape, ids: Tensor) -> Tensor:
    import torch

    return torch.arange(shape.N, shape.N + shape.S, device=ids.device)[None]


def _mask(model: Any, shape: Shape, cache: Any, places: Tensor) -> Any:
    from transformers.masking_utils import create_masks_for_generate

    like = model.lm_head.weight.new_empty(shape.B, shape.S, 0)
    return create_masks_for_generate(
        config=model.config, inputs_embeds=like, attention_mask=None, past_key_values=cache, position_ids=places
    )
