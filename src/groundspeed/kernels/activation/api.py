"""`activate`, the function that a model calls: it checks its arguments and chooses an implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.activations import ACTIVATIONS, activated
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor


def activate(x: Tensor, activation: str = "swiglu", *, gate: Tensor | None = None, impl: str = "auto") -> Tensor:
    """Return the activation of each element of x. For `activation` "swiglu" it is silu(gate)·x, with a `gate` of the
    shape and dtype of x; without a gate, x is [..., 2·N] with the gate in its first half, and the result [..., N].
    "gelu" is x·Φ(x), "gelu_tanh" the same with a hyperbolic tangent in place of the error function, and "relu2" is
    max(x, 0)².

    The result is a new tensor. Our kernel computes in FP32 and rounds once; its result is stored in the order of x, as
    with `torch.empty_like`.

    `impl="auto"` uses our kernel, otherwise PyTorch's path, with a one-time warning, for example for calls with
    gradients, for which we have no kernels yet. Naming an implementation (`"triton"`, `"torch"`) forces it, or raises
    if it cannot serve. Ours takes FP16, BF16 and FP32, and any strides except that the last one is 1, on NVIDIA GPUs
    since Ampere; PyTorch's path takes any device and strides, gradients, and also FP64."""
    tensors = (x,) if gate is None else (x, gate)
    served = _recall.find((activation, impl, gate is None), tensors)
    if served is not None:
        return served(x, gate)
    _check(x, activation, gate)
    if not calls.takes_ours("activate", impl, lambda: _why_not_ours(*tensors)):
        return activated(x, activation, gate)
    if calls.is_plain(*tensors):
        return _launch(x, gate, activation, impl)
    return torch.ops.groundspeed.activation_forward(x, gate, activation)


_recall = Recall()


def _why_not_ours(*tensors: Tensor) -> str | None:
    x = tensors[0]
    reason = calls.why_not_by_rows(*tensors)
    if reason is None and x.shape[-1] and x.numel() // x.shape[-1] > calls.MOST_ROWS:
        reason = f"our kernels support up to {calls.MOST_ROWS} rows, not {x.numel() // x.shape[-1]}"
    return reason


def _check(x: Tensor, activation: str, gate: Tensor | None) -> None:
    calls.need_tensors(x=x, gate=gate)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown; choose from {', '.join(ACTIVATIONS)}")
    if x.dim() < 1:
        raise ValueError("activate takes x [..., N], not a single number: use x[None]")
    if x.dtype not in (*calls.KINDS, torch.float64):
        raise ValueError(
            f"activate takes x in fp16, bf16, fp32 or fp64, not {x.dtype}: convert it, for example with x.bfloat16()"
        )
    if gate is not None and activation != "swiglu":
        raise ValueError(f"{activation} takes no gate: use activation='swiglu'")
    if gate is not None and (gate.shape, gate.dtype, gate.device) != (x.shape, x.dtype, x.device):
        kinds = [f"{list(each.shape)}, {each.dtype} on {each.device}" for each in (x, gate)]
        way = ": use gate.to(x)" if gate.shape == x.shape else ""
        raise ValueError(f"gate must match x, which is {kinds[0]}, not {kinds[1]}{way}")
    if gate is None and activation == "swiglu" and x.shape[-1] % 2:
        raise ValueError(f"swiglu without a gate takes x [..., 2·N], not {list(x.shape)}")


def _launch(x: Tensor, gate: Tensor | None, activation: str, impl: str = "triton") -> Tensor:
    asked, tensors = (activation, impl, gate is None), (x,) if gate is None else (x, gate)
    forward = _recall.find(asked, tensors)
    if forward is not None:
        return forward(x, gate)
    from groundspeed.kernels.activation import triton

    forward = triton.prepared(x, activation, gate, chained=calls.capability(x.device) >= calls.HOPPER)
    found = forward(x, gate)
    _recall.keep(asked, tensors, forward)  # only after it has served a call
    return found


def _fake(x: Tensor, gate: Tensor | None, activation: str) -> Tensor:
    halves = activation == "swiglu" and gate is None
    return torch.empty_like(x.narrow(-1, 0, x.shape[-1] // 2) if halves else x)


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags: Any = (torch.Tag.needs_exact_strides,)  # the result is stored in the order of x
_library.define("activation_forward(Tensor x, Tensor? gate, str activation) -> Tensor", tags=_tags)
_library.impl("activation_forward", _launch, "CUDA")
torch.library.register_fake("groundspeed::activation_forward", _fake, lib=_library)
