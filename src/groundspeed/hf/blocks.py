"""What stands for the forward of a patched block. Each computes what the block's own does, out of the block's own parts
and parameters, and leaves to that what it cannot do.

`gs` is asked for its functions at each call: they are looked up for the first time when a model is patched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

import groundspeed as gs
from groundspeed.hf.families import ROTARY
from groundspeed.kernels.calls import PLAIN, is_derived, say_once


def norm(module: Any, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != module.weight.dtype:  # what it then gives is in the wider of both
        return _own(module, hidden_states)
    return gs.rms_norm(hidden_states, module.weight, eps=module.variance_epsilon)


def mlp(module: Any, x: Tensor) -> Tensor:
    up = module.up_proj(x)
    return module.down_proj(gs.activate(up, "swiglu", gate=module.gate_proj(x)))


def experts(module: Any, hidden_states: Tensor) -> Tensor:
    gate, many = module.gate, module.experts
    noisy = module.training and getattr(module, "jitter_noise", 0.0) > 0
    if noisy or not _is_alone(gate, many) or not _is_alike(hidden_states, many):
        return _own(module, hidden_states)
    if is_derived(hidden_states, gate.weight, many.gate_up_proj, many.down_proj):  # its own code is made for that
        say_once("moe", "our kernels have no backward yet, and this call needs gradients")
        return _own(module, hidden_states)
    shared = None
    if hasattr(module, "shared_expert"):
        share = torch.sigmoid(module.shared_expert_gate(hidden_states))
        shared = share * module.shared_expert(hidden_states)
    if gate._forward_hooks:
        gate(hidden_states.reshape(-1, hidden_states.shape[-1]))  # for whoever records its logits
    return gs.moe(
        hidden_states,
        gate.weight,
        many.gate_up_proj,
        many.down_proj,
        top_k=gate.top_k,
        renormalize=getattr(gate, "norm_topk_prob", True),
        shared=shared,
    )


def _is_alike(x: Tensor, many: Any) -> bool:
    """Weights that lie in this process as they are, in the dtype of what goes through them; autocast has another."""
    weights = many.gate_up_proj, many.down_proj
    if torch.is_autocast_enabled(x.device.type):
        return False
    return all(type(w) in PLAIN and w.dtype == x.dtype and w.device == x.device for w in weights)


RECORDS = "transformers.utils.output_capturing"
"""Where the hooks come from that look on and change nothing."""


def _is_alone(gate: Any, many: Any) -> bool:
    """Whether nobody waits for the router or the experts to be called, which they are not."""
    hooks = [
        *gate._forward_pre_hooks.values(),
        *gate._forward_hooks.values(),
        *many._forward_pre_hooks.values(),
        *many._forward_hooks.values(),
    ]
    back = gate._backward_hooks or gate._backward_pre_hooks or many._backward_hooks or many._backward_pre_hooks
    replaced = "forward" in vars(gate) or "forward" in vars(many)
    return not back and not replaced and all(getattr(hook, "__module__", "") == RECORDS for hook in hooks)


def rotary(module: Any, *given: Any, **told: Any) -> Any:
    """The attention of a model, in which our rotary is called and nothing else is another."""
    return (_turning.get(type(module)) or turning(type(module)))(module, *given, **told)


_turning: dict[type, Any] = {}
"""By their classes, forwards of attention that call ours: a dictionary, since compilers do not see through caches."""


def turning(attention: Any) -> Callable[..., Any]:
    """The very code of its forward, in which one name means ours. Without a `__name__` in its scope a compiler looks
    names up there, and not in the module that it is from."""
    if attention not in _turning:
        forward = attention.forward
        scope = {**forward.__globals__, ROTARY: partial(_turned, forward.__globals__[ROTARY])}
        scope.pop("__name__")
        made = FunctionType(forward.__code__, scope, forward.__name__, forward.__defaults__, forward.__closure__)
        made.__kwdefaults__, made.__module__, made.__doc__ = forward.__kwdefaults__, forward.__module__, forward.__doc__
        _turning[attention] = made
    return _turning[attention]


def _turned(own: Callable[..., Any], q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *given: Any, **told: Any) -> Any:
    if given or told or not q.dtype == k.dtype == cos.dtype == sin.dtype:
        return own(q, k, cos, sin, *given, **told)
    half = cos.shape[-1] // 2  # the second half of both is as the first
    return gs.rotary(q, k, cos[..., :half], sin[..., :half])


def _own(module: Any, hidden_states: Tensor) -> Tensor:
    return type(module).forward(module, hidden_states)


FORWARDS: dict[str, Callable[..., Any]] = {"norms": norm, "rotary": rotary, "mlps": mlp, "experts": experts}
NEEDED = {"norms": "rms_norm", "rotary": "rotary", "mlps": "activate", "experts": "moe"}
"""Of `groundspeed`."""
