"""Hugging Face's GPT-2 with the weights of a case. It is the same model except for a position embedding, which is zero.
If keys were kept, they are in the cache that `generate` uses by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.available import not_in_a_graph
from groundspeed.suites.inference.pytorch import places_of
from groundspeed.suites.inference.reference import NORM_EPS
from groundspeed.suites.inference.shapes import WIDENING, shape_of
from groundspeed.suites.kept import PutBack, growing
from groundspeed.suites.rival import Rival

if TYPE_CHECKING:
    from torch import Tensor


def _gpt2(attention: str) -> Callable[[Case], Callable[..., Tensor]]:
    def build(case: Case) -> Callable[..., Tensor]:
        import torch
        from transformers import GPT2Config, GPT2Model

        shape = shape_of({key: value for key, value in case.params.items() if key in "LdHBSN"})
        config: Any = GPT2Config(
            vocab_size=1,
            bos_token_id=None,
            eos_token_id=None,
            n_positions=shape.S + shape.N,
            n_embd=shape.d,
            n_layer=shape.L,
            n_head=shape.H,
            n_inner=WIDENING * shape.d,
            activation_function="gelu",
            layer_norm_epsilon=NORM_EPS,
            attn_implementation=attention,
        )
        with torch.device("meta"):
            model = GPT2Model(config).eval()
        loaded: list[int] = []
        caches: list[tuple[Any, PutBack]] = []

        def call(x: Tensor, norms: Tensor, last: Tensor, *matrices: Tensor, heads: int, kept: int) -> Tensor:
            if loaded != (places := places_of(norms, last, *matrices)):  # in the first call, which is never timed
                model.load_state_dict(_named(x, norms, last, *matrices[:8], positions=config.n_positions), assign=True)
                model.requires_grad_(False)
                caches[:] = [growing(config, *matrices[8:])] if kept else []
                loaded[:] = places
            if not kept:
                return _states(model(inputs_embeds=x, use_cache=False))
            cache, put_back = caches[0]
            out = _states(model(inputs_embeds=x, past_key_values=cache, use_cache=True))
            put_back()
            return out

        return call

    return build


def _states(made: Any) -> Tensor:
    states: Tensor = made.last_hidden_state
    return states


def _named(x: Tensor, norms: Tensor, last: Tensor, *matrices: Tensor, positions: int) -> dict[str, Tensor]:
    """Return the weights by GPT-2's names; its matrices are transposed."""
    d = x.shape[2]
    found = {
        "wte.weight": x.new_zeros(1, d),
        "wpe.weight": x.new_zeros(positions, d),
        "ln_f.weight": last[0],
        "ln_f.bias": last[1],
    }
    parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    for layer in range(norms.shape[0]):
        for i, norm in enumerate(("ln_1", "ln_2")):
            found |= {f"h.{layer}.{norm}.weight": norms[layer, i, 0], f"h.{layer}.{norm}.bias": norms[layer, i, 1]}
        for part, weight, bias in zip(parts, matrices[::2], matrices[1::2], strict=True):
            found |= {
                f"h.{layer}.{part}.weight": weight[layer].T.contiguous(),
                f"h.{layer}.{part}.bias": bias[layer],
            }
    return found


def _launched(case: Case, device: str) -> str | None:
    """Without a cache, Transformers asks the device whether a prompt is several packed ones, and the host waits."""
    return None if case.params.get("N") else not_in_a_graph(case, device)


RIVALS = {
    f"hugging-face-{name}": Rival(
        f"hugging-face-{name}", "transformers", "transformers", ("transformers", "torch"), _gpt2(name), supports
    )
    for name, supports in (("eager", not_in_a_graph), ("sdpa", _launched))
}
"""The mask of `eager` copies a zero from the host in every call, even with a cache."""
