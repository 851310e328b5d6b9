"""Classes for patched blocks. Each is a subclass of the block's own class that replaces only `forward`, which computes
the same result from the block's own parts and parameters, and falls back to the block's own code for calls that it
cannot serve.

Functions of `gs` are looked up at each call; `patch` has resolved these lazy attributes beforehand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

import groundspeed as gs
from groundspeed.hf.families import ROTARY
from groundspeed.kernels.calls import PLAIN, has_global_hooks, is_derived, say_once
from groundspeed.kernels.linear.form import FEW_ROWS


def norm(self: Any, hidden_states: Tensor) -> Tensor:
    if not _is_plain(hidden_states, self.weight) or hidden_states.dtype != self.weight.dtype:
        return self.own_forward(hidden_states)  # it computes mixed dtypes in the wider one
    return gs.rms_norm(hidden_states, self.weight, eps=self.variance_epsilon)


def mlp(self: Any, x: Tensor) -> Tensor:
    if not _is_plain(x):
        return self.own_forward(x)
    if x.is_cuda and x.numel() <= FEW_ROWS * x.shape[-1] and _is_bare(x, self.up_proj, self.gate_proj):
        return self.down_proj(gs.linear(x, self.up_proj.weight, gate=self.gate_proj.weight, activation="swiglu"))
    up = self.up_proj(x)
    return self.down_proj(gs.activate(up, "swiglu", gate=self.gate_proj(x)))


def _is_bare(x: Tensor, *layers: Any) -> bool:
    """Whether the layers are plain matrix products with their original forward, without bias or hooks, and have the
    dtype and device of x."""
    if torch.is_autocast_enabled(x.device.type) or has_global_hooks():
        return False
    return all(
        type(layer) is torch.nn.Linear
        and layer.bias is None
        and not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
        and _is_plain(layer.weight)
        and (layer.weight.dtype, layer.weight.device) == (x.dtype, x.device)
        for layer in layers
    )


def experts(self: Any, hidden_states: Tensor) -> Tensor:
    gate, many = self.gate, self.experts
    weights = gate.weight, many.gate_up_proj, many.down_proj
    noisy = self.training and getattr(self, "jitter_noise", 0.0) > 0
    if noisy or not _is_alone(gate, many) or not _is_alike(hidden_states, *weights):
        return self.own_forward(hidden_states)
    if is_derived(hidden_states, *weights):  # the block's own code supports gradients
        say_once("moe", "our kernels have no backward pass yet, and this call needs gradients")
        return self.own_forward(hidden_states)
    shared = None
    if hasattr(self, "shared_expert"):
        share = torch.sigmoid(self.shared_expert_gate(hidden_states))
        shared = share * self.shared_expert(hidden_states)
    if gate._forward_hooks:
        gate(hidden_states)  # for hooks that record the router logits
    renormalize = getattr(gate, "norm_topk_prob", True)
    return gs.moe(hidden_states, *weights, top_k=gate.top_k, renormalize=renormalize, shared=shared)


def _is_plain(*tensors: Tensor) -> bool:
    """Whether all are ordinary tensors, held whole in this process, and not a subclass such as a sharded tensor."""
    return all(type(tensor) in PLAIN for tensor in tensors)


def _is_alike(x: Tensor, router: Tensor, *weights: Tensor) -> bool:
    """Whether the router and the weights have the dtype and device of x. False under autocast, where products have a
    different dtype from their operands."""
    if torch.is_autocast_enabled(x.device.type) or not _is_plain(x, router, *weights):
        return False
    return all(weight.dtype == x.dtype and weight.device == x.device for weight in (router, *weights))


RECORDS = "transformers.utils.output_capturing"
"""The module whose hooks only record outputs and change nothing."""


def _is_alone(gate: Any, many: Any) -> bool:
    """Whether the router and the experts have neither a replaced `forward` nor hooks other than recording ones: our
    kernel does not call these modules."""
    hooks = [
        *gate._forward_pre_hooks.values(),
        *gate._forward_hooks.values(),
        *many._forward_pre_hooks.values(),
        *many._forward_hooks.values(),
    ]
    back = gate._backward_hooks or gate._backward_pre_hooks or many._backward_hooks or many._backward_pre_hooks
    replaced = "forward" in vars(gate) or "forward" in vars(many)
    return not back and not replaced and all(getattr(hook, "__module__", "") == RECORDS for hook in hooks)


def _turning(forward: Any) -> Any:
    """Return an attention's forward with the same code, but with our rotary embedding under the global name `ROTARY`.
    The scope has no `__name__`, so that compilers look names up in the scope and not in the function's module."""
    scope = {**forward.__globals__, ROTARY: partial(_turned, forward.__globals__[ROTARY])}
    scope.pop("__name__")
    made = FunctionType(forward.__code__, scope, forward.__name__, forward.__defaults__, forward.__closure__)
    made.__kwdefaults__, made.__module__, made.__doc__ = forward.__kwdefaults__, forward.__module__, forward.__doc__
    return made


def _turned(own: Callable[..., Any], q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *given: Any, **told: Any) -> Any:
    alike = q.dtype == k.dtype == cos.dtype == sin.dtype and _is_plain(q, k, cos, sin)
    if given or told or not alike:
        return own(q, k, cos, sin, *given, **told)
    half = cos.shape[-1] // 2  # the second half of cos and sin repeats the first
    return gs.rotary(q, k, cos[..., :half], sin[..., :half])


FORWARDS: dict[str, Callable[..., Any]] = {"norms": norm, "mlps": mlp, "experts": experts}
NEEDED = {"norms": "rms_norm", "rotary": "rotary", "mlps": "activate", "experts": "moe"}
"""The function of `groundspeed` that each kind of block calls."""

_classes: dict[type, type] = {}
"""Our class for each class of Transformers."""


def class_for(own: Any, kind: str) -> type:
    if own not in _classes:
        inside = {
            "__module__": own.__module__,
            "__qualname__": own.__qualname__,
            "__doc__": own.__doc__,
            "__reduce_ex__": _reduced,
            "forward": _turning(own.forward) if kind == "rotary" else FORWARDS[kind],
            "own_forward": own.forward,
            "patched_kind": kind,
        }
        _classes[own] = type(own.__name__, (own,), inside)
    return _classes[own]


def own_class(block: torch.nn.Module) -> type | None:
    """Return the Transformers class that a patched block had before, or None if the block is not patched."""
    return type(block).__base__ if "patched_kind" in vars(type(block)) else None


def _reduced(self: Any, protocol: Any) -> Any:
    """Pickle a patched block by its original class and its kind, because our class cannot be imported by name."""
    return _restored, (type(self).__base__, self.patched_kind), self.__getstate__()


def _restored(own: type, kind: str) -> Any:
    ours: Any = class_for(own, kind)
    return ours.__new__(ours)
