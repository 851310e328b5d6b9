"""`linear`, the function that a model calls: it checks its arguments and chooses an implementation."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.linear import parts
from groundspeed.kernels.linear.form import (
    FEW_ROWS,
    MOST_NORMED,
    MOST_PRODUCT_ROWS,
    MOST_ROWS,
    NOTHING,
    SMALL_MATRIX,
    Norm,
)
from groundspeed.kernels.norm import api as norm_api
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

KINDS = (torch.float16, torch.bfloat16)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    gate: Tensor | None = None,
    norm: Norm | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    impl: str = "auto",
) -> Tensor:
    """Return activation(norm(x)·weightᵀ + bias) + residual for x [..., K], with weight [N, K] and bias [N] as in
    `torch.nn.functional.linear`; whatever is not given is left out. `norm` is a `groundspeed.Norm`, and `activation`
    one that `groundspeed.activate` takes. With "swiglu", weight is [2·N, K] and bias [2·N], with the gate first; or the
    gate is a separate matrix `gate`, which is like weight, without biases. `residual` is like the result, [..., N].

    For up to 16 rows, as in token-by-token generation, a single kernel of ours does all of it but a norm of more than
    1,024 columns: it reads the weights once, computes in FP32, and rounds the normalised rows and the result. Up to 128
    rows it does all but the norm, if the matrix has at most 4 Mi elements, on Hopper and datacenter Blackwell. For more
    rows, norm and activation are separate kernels, and the product is cuBLAS's; on Hopper it is ours with the
    activation in it, where that is faster. The same holds if rows are not multiples of 16 bytes, on any other
    device, with gradients, and in FP32 or FP64.

    `impl="auto"` chooses, with a one-time warning if none of our kernels could serve. `"triton"` forces the single
    kernel, for up to 1024 rows (16 with a norm), or raises; `"torch"` uses PyTorch's path for all parts. Our kernel
    takes FP16 and BF16, with adjacent elements and a single stride between rows, on NVIDIA GPUs since Ampere."""
    if norm is not None and not isinstance(norm, Norm):
        way = ": for a module use Norm(module.weight, eps=module.eps), for a LayerNorm with bias= and centered=True"
        raise TypeError(f"norm must be a groundspeed.Norm(weight, bias, eps, centered), not {type(norm).__name__}{way}")
    if norm is not None:
        norm_api.check_norm(norm.weight, norm.eps)
    tensors = _tensors(x, weight, bias, gate, norm, residual)
    served = _recall.find(_key(impl, activation, bias, gate, norm, residual), tensors)
    if served is not None:
        return served(x, weight, bias, gate, norm, residual)
    check(x, weight, bias, gate, norm, activation, residual)
    if impl not in ("auto", "triton", "torch"):
        raise ValueError(f"impl={impl!r} is unknown; choose from auto, triton, torch")
    if impl == "torch":
        return parts.linear(x, weight, bias, gate, norm, activation, residual, "torch")
    apart = impl == "auto" and norm is not None and has_norm_apart(x)
    reason = why_not_ours(x, weight, bias, norm, residual, gate, apart=apart)
    if reason and impl == "triton":
        raise NotImplementedError(f"impl='triton' cannot serve this call: {reason}; impl='torch' or 'auto' can")
    if impl == "auto" and not is_chosen(x, weight):
        if reason and x.numel() <= FEW_ROWS * x.shape[-1]:
            calls.say_once("linear", reason)
        return parts.linear(x, weight, bias, gate, norm, activation, residual, "auto")
    if reason:
        calls.say_once("linear", reason)
        return parts.linear(x, weight, bias, gate, norm, activation, residual, "auto")
    if apart and norm is not None:
        return _launch_after(x, weight, bias, gate, norm, activation, residual)
    if calls.is_plain(*tensors):
        return _launch(x, weight, bias, gate, norm, activation, residual, impl)
    scale, shift, eps, centered = norm or NOTHING
    return torch.ops.groundspeed.linear_forward(
        x, weight, bias, gate, scale, shift, eps, centered, activation, residual
    )


_recall = Recall()


def _tensors(x: Tensor, weight: Tensor, bias: Any, gate: Any, norm: Norm | None, residual: Any) -> tuple[Tensor, ...]:
    scale, shift = (None, None) if norm is None else norm[:2]
    return tuple(tensor for tensor in (x, weight, bias, gate, scale, shift, residual) if tensor is not None)


def _key(impl: str, activation: str | None, bias: Any, gate: Any, norm: Norm | None, residual: Any) -> Any:
    """Return what a launch assumes besides its tensors. The eps of the norm is an argument of the launch."""
    told = None if norm is None else (norm.bias is None, norm.centered)
    return impl, activation, bias is None, gate is None, residual is None, told


def why_not_ours(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Norm | None = None,
    residual: Tensor | None = None,
    gate: Tensor | None = None,
    *,
    apart: bool = False,
) -> str | None:
    """Return why our single kernel cannot serve the call, or None. `apart`: the norm is a kernel of its own."""
    reason = calls.why_not_by_rows(*_tensors(x, weight, bias, gate, norm, residual))
    if reason is None and x.dtype not in KINDS:
        reason = f"our kernel supports fp16 and bf16, not {x.dtype}"
    if reason is None and x.numel() > MOST_ROWS * x.shape[-1]:
        reason = f"our kernel supports up to {MOST_ROWS} rows, not {x.numel() // x.shape[-1]}"
    if reason is None and norm is not None and not apart and x.numel() > FEW_ROWS * x.shape[-1]:
        reason = f"our kernel applies norms to up to {FEW_ROWS} rows, not {x.numel() // x.shape[-1]}"
    if reason is None and not all(_has_rows(each) for each in (x, residual) if each is not None):
        reason = "our kernel needs a single stride between rows"
    if reason is None and gate is not None and gate.stride() != weight.stride():
        reason = "our kernel needs a gate with the strides of weight"
    return reason


def is_chosen(x: Tensor, weight: Tensor) -> bool:
    """Return whether our kernel is chosen if it can serve: for few rows, or some more and a small matrix, which can be
    loaded 16 bytes at a time."""
    K = x.shape[-1]
    even = not (K % 8 or weight.stride(0) % 8 or any(stride % 8 for stride in x.stride()[:-1]))
    few = x.numel() <= FEW_ROWS * K or (
        x.numel() <= MOST_PRODUCT_ROWS * K and weight.numel() <= SMALL_MATRIX and is_roomy(x.device)
    )
    return few and even and calls.is_aligned(x) and calls.is_aligned(weight)


def has_norm_apart(x: Tensor) -> bool:
    """Return whether a norm of x is a kernel of its own if the choice is ours."""
    return x.shape[-1] > MOST_NORMED or x.numel() > FEW_ROWS * x.shape[-1]


def is_roomy(device: torch.device) -> bool:
    """Return whether this is a GPU on which kernels start early and have 227 KB of shared memory."""
    return device.type == "cuda" and calls.capability(device)[0] in (9, 10)


def _has_rows(x: Tensor) -> bool:
    """Return whether the rows of x can be viewed as one list with a single stride."""
    told = [(size, stride) for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size > 1]
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(told))


def check(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    norm: Norm | None,
    activation: str | None,
    residual: Tensor | None,
) -> None:
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown; choose from {', '.join(ACTIVATIONS)}, or None")
    calls.need_tensors(x=x, weight=weight, bias=bias, gate=gate, residual=residual)
    if not x.is_floating_point():
        raise ValueError(
            f"linear takes x in fp16, bf16, fp32 or fp64, not {x.dtype}: convert it, for example with x.bfloat16()"
        )
    if x.dim() < 1 or x.shape[-1] == 0 or weight.dim() != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(f"x must be [..., K] and weight [N, K], not {list(x.shape)} and {list(weight.shape)}")
    if weight.dtype != x.dtype or weight.device != x.device:
        raise ValueError(
            f"weight must match x, which is {x.dtype} on {x.device}, not {weight.dtype} on {weight.device}: "
            "use x.to(weight)"
        )
    wide, halves = weight.shape[0], _has_halves(activation, gate)
    if halves and wide % 2:
        raise ValueError(f"for swiglu, weight must be [2·N, K], the gate first, not {list(weight.shape)}")
    if gate is not None and (activation != "swiglu" or bias is not None):
        raise ValueError("gate= needs activation='swiglu' and no bias")
    _check_like("gate", gate, tuple(weight.shape), x)
    if norm is not None:
        norm_api.check(x, norm.weight, norm.bias, None, "the norm of linear", "norm.")
        if norm.bias is not None and not norm.centered:
            raise ValueError("a norm that is not centered has no bias: use groundspeed.Norm(…, centered=True)")
    _check_like("bias", bias, (wide,), x)
    _check_like("residual", residual, (*x.shape[:-1], wide // 2 if halves else wide), x)


def _has_halves(activation: str | None, gate: Tensor | None) -> bool:
    return activation == "swiglu" and gate is None


def _check_like(name: str, tensor: Tensor | None, shape: tuple[int, ...], x: Tensor) -> None:
    if tensor is not None and (tuple(tensor.shape), tensor.dtype, tensor.device) != (shape, x.dtype, x.device):
        kind = f"{list(tensor.shape)}, {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name} must be {list(shape)}, {x.dtype} on {x.device}, not {kind}")


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    norm: Norm | None,
    activation: str | None,
    residual: Tensor | None,
    impl: str = "triton",
) -> Tensor:
    given = x, weight, bias, gate, norm, residual
    key, tensors = _key(impl, activation, *given[2:]), _tensors(*given)
    kept = _recall.find(key, tensors)
    if kept is not None:
        return kept(*given)
    from groundspeed.kernels.linear import triton

    K, N = x.shape[-1], weight.shape[0] // (2 if _has_halves(activation, gate) else 1)
    M, shape = x.numel() // K, (*x.shape[:-1], N)
    rows = None if residual is None else residual.reshape(M, N)
    chained = calls.capability(x.device) >= calls.HOPPER
    told = x.reshape(M, K), weight, bias, gate, norm, activation, rows
    run = triton.prepared(*told, chained=chained, roomy=is_roomy(x.device))

    def forward(x: Tensor, weight: Tensor, bias: Any, gate: Any, norm: Norm | None, residual: Any) -> Tensor:
        added = None if residual is None else residual.view(M, N)
        made: Tensor = run(x.view(M, K), weight, bias, gate, norm, added)
        return made.view(shape)

    found = forward(*given)
    _recall.keep(key, tensors, forward)  # only after it has served a call
    return found


def _launch_after(
    x: Tensor, weight: Tensor, bias: Any, gate: Any, norm: Norm, activation: str | None, residual: Any
) -> Tensor:
    """Return the result with the norm as a separate kernel."""

    def forward(x: Tensor, weight: Tensor, bias: Any, gate: Any, norm: Norm, residual: Any) -> Tensor:
        return linear(parts.normed(x, norm), weight, bias, gate=gate, activation=activation, residual=residual)

    told = x, weight, bias, gate, norm, residual
    found = forward(*told)
    _recall.keep(_key("auto", activation, *told[2:]), _tensors(*told), forward)
    return found


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
    centered: bool,
    activation: str | None,
    residual: Tensor | None,
) -> Tensor:
    norm = None if norm_weight is None else Norm(norm_weight, norm_bias, eps, centered)
    return _launch(x, weight, bias, gate, norm, activation, residual)


def _fake(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    wide = weight.shape[0]
    return x.new_empty((*x.shape[:-1], wide // 2 if _has_halves(others[6], others[1]) else wide))


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags: Any = (torch.Tag.needs_exact_strides,)
_takes = "Tensor x, Tensor weight, Tensor? bias, Tensor? gate, Tensor? norm_weight, Tensor? norm_bias, float eps"
_library.define(f"linear_forward({_takes}, bool centered, str? activation, Tensor? residual) -> Tensor", tags=_tags)
_library.impl("linear_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::linear_forward", _fake, lib=_library)
