"""What is known about the models of Transformers: which classes of which families can be patched, and what their blocks
must look like for our kernels to compute the same results."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

KINDS = ("norms", "rotary", "mlps", "experts")
"""Kinds of blocks that can be patched."""

FAMILIES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
}
"""The prefix of class names, by model type."""

HANDED_ON = frozenset({*FAMILIES, "bert", "gemma2", "gpt2", "gpt_oss"})
"""Model types whose code passes masks to attention unchanged. Other models may add to a mask or slice it, so they get
the masks of SDPA."""

ENDINGS = {"norms": "RMSNorm", "rotary": "Attention", "mlps": "MLP", "experts": "SparseMoeBlock"}

READS = {
    "norms": {"dtype", "to", "torch", "float32", "pow", "mean", "rsqrt", "variance_epsilon", "weight"},
    "mlps": {"down_proj", "act_fn", "gate_proj", "up_proj"},
    "experts": {
        *("shape", "training", "jitter_noise", "torch", "empty_like", "uniform_", "view", "reshape"),
        *("gate", "experts", "F", "sigmoid", "shared_expert", "shared_expert_gate"),
    },
}
"""All names that the forward of a known block reads. A forward that reads any other name computes something unknown."""
ROUTER_READS = {
    *("reshape", "hidden_dim", "F", "linear", "weight", "torch", "nn", "functional", "softmax", "float", "topk"),
    *("top_k", "norm_topk_prob", "sum", "to", "dtype"),
}
EXPERTS_READ = {
    *("act_fn", "chunk", "down_proj", "dtype", "functional", "gate_up_proj", "greater", "index_add_", "linear", "nn"),
    *("no_grad", "nonzero", "num_experts", "one_hot", "permute", "sum", "to", "torch", "where", "zeros_like"),
}
ROTARY = "apply_rotary_pos_emb"
ROTARY_READS = {"unsqueeze", "rotate_half"}


class Family(NamedTuple):
    model_type: str
    begins: str

    @property
    def home(self) -> str:
        return f"transformers.models.{self.model_type}.modeling_{self.model_type}"

    def kind_of(self, module: torch.nn.Module) -> str | None:
        """Return the kind of a block by the name of its class or of a base class, or None."""
        names = {parent.__name__ for parent in type(module).__mro__}
        return next((kind for kind, ending in ENDINGS.items() if self.begins + ending in names), None)


def family_of(model: Any) -> Family:
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, torch.nn.Module) or model_type is None:
        raise TypeError(f"{type(model).__name__} is not a model of Transformers: gs.patch takes one of {_known()}")
    if model_type not in FAMILIES:
        raise ValueError(
            f"gs.patch does not support the family {model_type!r}, only {_known()}; "
            "attn_implementation='groundspeed' works with every family"
        )
    return Family(model_type, FAMILIES[model_type])


def _known() -> str:
    return ", ".join(FAMILIES)


def why_not(kind: str, module: torch.nn.Module, family: Family) -> str | None:
    """Return why a block cannot be patched, or None if it can."""
    own = type(module)
    if own is not getattr(sys.modules.get(family.home), family.begins + ENDINGS[kind], None):
        return f"its class is {own.__module__}.{own.__qualname__}, not that of Transformers"
    if "forward" in vars(module):
        return "its forward was replaced"
    if _plain(type(module).forward) is None:
        return "its forward is wrapped"
    return _WHY_NOT[kind](module)


def _why_not_norm(module: Any) -> str | None:
    return _unknown(type(module), READS["norms"])


def _why_not_rotary(module: Any) -> str | None:
    forward = type(module).forward
    if ROTARY not in forward.__code__.co_names:
        return f"its forward does not call {ROTARY}"
    own = _plain(_unwrapped(forward.__globals__.get(ROTARY)))
    return f"{ROTARY} was replaced" if own is None else _unknown_names(own, ROTARY_READS)


def _why_not_mlp(module: Any) -> str | None:
    return _unknown(type(module), READS["mlps"]) or _why_not_silu(module.act_fn)


def _why_not_silu(act_fn: Any) -> str | None:
    return None if type(act_fn).__name__ in ("SiLU", "SiLUActivation") else f"its activation is {act_fn}, not SiLU"


def _why_not_experts(module: Any) -> str | None:
    gate, experts = module.gate, module.experts
    inner = inspect.unwrap(type(experts).forward)  # Transformers wraps it to choose an implementation of the products
    unknown = (
        _unknown(type(module), READS["experts"])
        or _unknown(type(gate), ROUTER_READS)
        or _unknown_names(inner, EXPERTS_READ)
        or _unknown_names(getattr(type(experts), "_apply_gate", inner), EXPERTS_READ)
    )
    if unknown:
        return unknown
    extra = {name for name, _ in module.named_children()} - {"gate", "experts", "shared_expert", "shared_expert_gate"}
    if extra:
        return f"it has unknown parts: {', '.join(sorted(extra))}"
    laid_out = {"is_transposed": False, "is_concatenated": True, "has_bias": False, "has_gate": True}
    weights: list[Any] = [getattr(experts, name, None) for name in ("gate_up_proj", "down_proj")]
    if any(not isinstance(w, torch.Tensor) or w.dim() != 3 or not w.is_floating_point() for w in weights) or any(
        getattr(experts, name, usual) != usual for name, usual in laid_out.items()
    ):
        return "its experts are not laid out as [E, 2·I, H] and [E, H, I]"
    (E, H), width = gate.weight.shape, weights[1].shape[2]
    if weights[0].shape != (E, 2 * width, H) or weights[1].shape != (E, H, width):
        return "its experts are not laid out as [E, 2·I, H] and [E, H, I]"
    return _why_not_silu(experts.act_fn)


_WHY_NOT: dict[str, Callable[[Any], str | None]] = {
    "norms": _why_not_norm,
    "rotary": _why_not_rotary,
    "mlps": _why_not_mlp,
    "experts": _why_not_experts,
}


def _unwrapped(function: Any) -> Any:
    """Return the function behind a module. If the package `kernels` is installed, Transformers replaces functions with
    modules that call them, until another `forward` is set on the module."""
    if not isinstance(function, torch.nn.Module) or "forward" in vars(function):
        return function
    forward = type(function).forward
    cells = dict(zip(forward.__code__.co_freevars, forward.__closure__ or (), strict=True))
    return cells["func"].cell_contents if "func" in cells else None


def _plain(function: Any) -> Any:
    """Return the function if it is a Python function that wraps no other function, else None."""
    return function if hasattr(function, "__code__") and not hasattr(function, "__wrapped__") else None


def _unknown(block: type, known: set[str]) -> str | None:
    forward = _plain(block.forward)  # type: ignore[attr-defined]
    return "its forward is wrapped" if forward is None else _unknown_names(forward, known)


def _unknown_names(function: Any, known: set[str]) -> str | None:
    unknown = set(function.__code__.co_names) - known
    return f"in this version of Transformers it reads unknown names: {', '.join(sorted(unknown))}" if unknown else None
