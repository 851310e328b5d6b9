"""`linear`, the function a model calls: checks its arguments and chooses an implementation."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.linear import parts
from groundspeed.kernels.linear.form import MOST_NORMED, MOST_ROWS, NOTHING, Norm
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

KINDS = (torch.float16, torch.bfloat16)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    impl: str = "auto",
) -> Tensor:
    """activation(norm(x)·weightᵀ + bias) + residual, of x [..., K], weight [N, K] and bias [N] as
    `torch.nn.functional.linear` has them; what is not given is left out. `norm` is a `groundspeed.Norm`, `activation`
    one that `groundspeed.activate` knows: with "swiglu" weight is [2·N, K] and bias [2·N], the gate first. `residual`
    is like the result, [..., N].

    Of up to 64 rows (16 with a norm), as a model has them that writes token by token, one kernel of ours does it all:
    it reads the weights once, computes in FP32 and rounds once. Of more, norm and activation are kernels of their own,
    and the product is cuBLAS's; so it is on any device, with gradients and in FP32 or FP64.

    `impl="auto"` chooses. `"triton"` is the one kernel or raises, `"torch"` PyTorch's path for all parts. Ours takes
    FP16 and BF16 with elements side by side and rows at one distance, on NVIDIA GPUs from Ampere on."""
    if norm is not None and not isinstance(norm, Norm):
        raise TypeError(f"norm is a groundspeed.Norm(weight, bias, eps, centered), not {type(norm).__name__}")
    asked = None if norm is None else (norm.bias is None, norm.eps, norm.centered)
    key = impl, activation, bias is None, residual is None, asked
    tensors = _tensors(x, weight, bias, norm, residual)
    served = _recall.find(key, tensors)
    if served is not None:
        return served(x, weight, bias, norm, residual)
    check(x, weight, bias, norm, activation, residual)
    if impl not in ("auto", "triton", "torch"):
        raise ValueError(f"impl={impl!r} is unknown: auto, triton, torch")
    if impl == "auto" and norm is not None and MOST_NORMED < x.numel() // x.shape[-1] <= MOST_ROWS:
        return linear(parts.normed(x, norm), weight, bias, activation=activation, residual=residual)
    reason = None if impl == "torch" else why_not_ours(x, weight, bias, norm, residual)
    if reason and impl == "triton":
        raise NotImplementedError(f"impl='triton' cannot serve this call: {reason}; impl='torch' or 'auto' can")
    if impl == "torch" or reason:
        return parts.linear(x, weight, bias, norm, activation, residual, impl="torch" if impl == "torch" else "auto")
    if calls.is_plain(*tensors):
        return _launch(x, weight, bias, norm, activation, residual, key)
    scale, shift, eps, centered = norm or NOTHING
    return torch.ops.groundspeed.linear_forward(x, weight, bias, scale, shift, eps, centered, activation, residual)


_recall = Recall()


def _tensors(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: Norm | None, residual: Tensor | None
) -> tuple[Tensor, ...]:
    scale, shift = (None, None) if norm is None else norm[:2]
    return tuple(tensor for tensor in (x, weight, bias, scale, shift, residual) if tensor is not None)


def why_not_ours(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, norm: Norm | None = None, residual: Tensor | None = None
) -> str | None:
    """Why one kernel of ours cannot do it all, or None."""
    reason = calls.why_not_by_rows(*_tensors(x, weight, bias, norm, residual))
    if reason is None and x.dtype not in KINDS:
        reason = f"our kernel takes fp16 and bf16, not {x.dtype}"
    if reason is None and x.numel() > (most := MOST_ROWS if norm is None else MOST_NORMED) * x.shape[-1]:
        rows = x.numel() // x.shape[-1]
        reason = f"our kernel takes up to {most} rows{' with a norm' if norm else ''}, not {rows}"
    if reason is None and not all(_has_rows(each) for each in (x, residual) if each is not None):
        reason = "our kernel takes rows that lie at one distance from each other"
    return reason


def _has_rows(x: Tensor) -> bool:
    """Whether x can be seen as one list of rows where it lies."""
    strides, sizes = x.stride()[:-1], x.shape[:-1]
    told = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size > 1]
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(told))


def check(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: Norm | None, activation: str | None, residual: Tensor | None
) -> None:
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(f"activation={activation!r} is unknown: {', '.join(ACTIVATIONS)}, or None")
    if x.dim() < 1 or x.shape[-1] == 0 or weight.dim() != 2 or weight.shape[1] != x.shape[-1]:
        raise ValueError(f"x is [..., K] and weight [N, K], not {list(x.shape)} and {list(weight.shape)}")
    if weight.dtype != x.dtype or weight.device != x.device:
        raise ValueError(
            f"weight is like x, which is {x.dtype} on {x.device}, not {weight.dtype} on {weight.device}: x.to(weight)"
        )
    wide = weight.shape[0]
    if activation == "swiglu" and wide % 2:
        raise ValueError(f"of swiglu weight is [2·N, K], the gate first, not {list(weight.shape)}")
    _check_like("bias", bias, (wide,), x)
    _check_like("residual", residual, (*x.shape[:-1], wide // 2 if activation == "swiglu" else wide), x)


def _check_like(name: str, tensor: Tensor | None, shape: tuple[int, ...], x: Tensor) -> None:
    if tensor is not None and (tuple(tensor.shape), tensor.dtype, tensor.device) != (shape, x.dtype, x.device):
        kind = f"{list(tensor.shape)}, {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name} is {list(shape)}, {x.dtype} on {x.device}, not {kind}")


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: Norm | None,
    activation: str | None,
    residual: Tensor | None,
    key: Any = None,
) -> Tensor:
    from groundspeed.kernels.linear import triton

    K, N = x.shape[-1], weight.shape[0] // 2 if activation == "swiglu" else weight.shape[0]
    shape = *x.shape[:-1], N
    rows = None if residual is None else residual.reshape(-1, N)
    chained = calls.capability(x.device) >= calls.HOPPER
    run = triton.prepared(x.reshape(-1, K), weight, bias, norm, activation, rows, chained=chained)

    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, norm: Norm | None, residual: Tensor | None) -> Tensor:
        added = None if residual is None else residual.view(-1, N)
        made: Tensor = run(x.view(-1, K), weight, bias, norm, added)
        return made.view(shape)

    found = forward(x, weight, bias, norm, residual)
    if key is not None:
        _recall.keep(key, _tensors(x, weight, bias, norm, residual), forward)  # not before it has served
    return found


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
    centered: bool,
    activation: str | None,
    residual: Tensor | None,
) -> Tensor:
    norm = None if norm_weight is None else Norm(norm_weight, norm_bias, eps, centered)
    return _launch(x, weight, bias, norm, activation, residual)


def _fake(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    wide = weight.shape[0]
    return x.new_empty((*x.shape[:-1], wide // 2 if others[5] == "swiglu" else wide))


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags: Any = (torch.Tag.needs_exact_strides,)
_takes = "Tensor x, Tensor weight, Tensor? bias, Tensor? norm_weight, Tensor? norm_bias, float eps, bool centered"
_library.define(f"linear_forward({_takes}, str? activation, Tensor? residual) -> Tensor", tags=_tags)
_library.impl("linear_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::linear_forward", _fake, lib=_library)
