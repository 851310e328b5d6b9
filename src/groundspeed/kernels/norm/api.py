"""`rms_norm` and `layer_norm`, the functions that a model calls: they check their arguments and choose an
implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.norm import pytorch
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

NAMES = {False: "rms_norm", True: "layer_norm"}
MOST_COLUMNS = 1 << 24
"""The most elements of a row: FP32 counts exactly up to this number."""


@overload
def rms_norm(x: Tensor, weight: Tensor, *, eps: float = ..., residual: None = ..., impl: str = ...) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float = ..., residual: Tensor, impl: str = ...
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float = 1e-6, residual: Tensor | None = None, impl: str = "auto"
) -> Any:
    """Return x / √(mean(x²) + eps) · weight over the last dimension of x [..., N], with weight [N] in the dtype of x or
    in FP32. With `residual`, which has the shape and dtype of x, return the norm of x + residual, and that sum. The sum
    is rounded to the dtype of x before it is normalised.

    Everything is computed in FP32 and rounded once. The results are new tensors; those of our kernel are stored in the
    order of x, as with `torch.empty_like`.

    `impl="auto"` uses our kernel, otherwise PyTorch's path, with a one-time warning, for example for calls with
    gradients, for which we have no kernels yet. Naming an implementation (`"triton"`, `"torch"`) forces it, or raises
    if it cannot serve. Ours takes FP16, BF16 and FP32, and any strides except that the last one is 1, on NVIDIA GPUs
    since Ampere; PyTorch's path takes any device and strides, gradients, and also FP64."""
    return _norm(x, weight, None, residual, eps, False, impl)


@overload
def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = ..., *, eps: float = ..., residual: None = ..., impl: str = ...
) -> Tensor: ...
@overload
def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = ..., *, eps: float = ..., residual: Tensor, impl: str = ...
) -> tuple[Tensor, Tensor]: ...
def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    impl: str = "auto",
) -> Any:
    """Return (x − mean) / √(variance + eps) · weight + bias over the last dimension of x [..., N], with weight and bias
    [N] each in the dtype of x or in FP32. `residual` and `impl` are as in `rms_norm`."""
    return _norm(x, weight, bias, residual, eps, True, impl)


_recall = Recall()


def _norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, eps: float, centered: bool, impl: str
) -> Any:
    check_norm(weight, eps)
    served = _recall.find((centered, impl, bias is None, residual is None), _tensors(x, weight, bias, residual))
    if served is not None:
        return served(x, weight, bias, residual, float(eps))
    check(x, weight, bias, residual, NAMES[centered])
    if not calls.takes_ours(NAMES[centered], impl, lambda: _why_not_ours(x, weight, bias, residual)):
        return pytorch.norm(x, weight, bias, residual, eps, centered=centered)
    if calls.is_plain(*_tensors(x, weight, bias, residual)):
        return _launch(x, weight, bias, residual, eps, centered, impl)
    if residual is None:
        return torch.ops.groundspeed.norm_forward(x, weight, bias, eps, centered)
    return torch.ops.groundspeed.norm_residual_forward(x, weight, bias, residual, eps, centered)


def check_norm(weight: Tensor, eps: float) -> None:
    if eps is None or not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be 0 or a positive number, not {eps}")
    if weight is None:
        raise ValueError("weight must be one number for each column, not None: torch.ones_like(x[0]) scales nothing")


def _tensors(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> tuple[Tensor, ...]:
    if residual is None:
        return (x, weight) if bias is None else (x, weight, bias)
    return (x, weight, residual) if bias is None else (x, weight, bias, residual)


def _why_not_ours(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> str | None:
    reason = calls.why_not_by_rows(*_tensors(x, weight, bias, residual))
    if reason is None and x.shape[-1] > MOST_COLUMNS:
        reason = f"our kernels support rows of up to {MOST_COLUMNS} elements, not {x.shape[-1]}"
    if reason is None and x.numel() // x.shape[-1] > calls.MOST_ROWS:
        reason = f"our kernels support up to {calls.MOST_ROWS} rows, not {x.numel() // x.shape[-1]}"
    return reason


def check(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, op: str, of: str = "") -> None:
    """Raise what is wrong. `of` is whose weight and bias these are, if they are not arguments themselves: `norm.`."""
    calls.need_tensors(x=x, weight=weight, bias=bias, residual=residual)
    if x.dim() < 1 or x.shape[-1] == 0:
        raise ValueError(f"{op} takes rows x [..., N] of at least one element, not {list(x.shape)}")
    if x.dtype not in (*calls.KINDS, torch.float64):
        raise ValueError(
            f"{op} takes x in fp16, bf16, fp32 or fp64, not {x.dtype}: convert it, for example with x.bfloat16()"
        )
    for name, each in (("weight", weight), ("bias", bias)):
        if each is None:
            continue
        if each.shape != x.shape[-1:] or each.dtype not in (x.dtype, torch.float32) or each.device != x.device:
            kind = f"{list(each.shape)}, {each.dtype} on {each.device}"
            raise ValueError(
                f"{of}{name} must be [{x.shape[-1]}] in {' or '.join(dict.fromkeys((str(x.dtype), 'torch.float32')))} "
                f"on {x.device}, since x is {list(x.shape)}, not {kind}"
            )
    if residual is not None and (residual.shape, residual.dtype, residual.device) != (x.shape, x.dtype, x.device):
        kinds = [f"{list(each.shape)}, {each.dtype} on {each.device}" for each in (x, residual)]
        way = ": use residual.to(x)" if residual.shape == x.shape else ""
        raise ValueError(f"residual must match x, which is {kinds[0]}, not {kinds[1]}{way}")


def _launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    eps: float,
    centered: bool,
    impl: str = "triton",
) -> Any:
    asked, tensors = (centered, impl, bias is None, residual is None), _tensors(x, weight, bias, residual)
    forward = _recall.find(asked, tensors)
    if forward is not None:
        return forward(x, weight, bias, residual, float(eps))
    from groundspeed.kernels.norm import triton

    chained = calls.capability(x.device) >= calls.HOPPER
    forward = triton.prepared(x, weight, bias, residual, centered=centered, chained=chained)
    found = forward(x, weight, bias, residual, float(eps))
    _recall.keep(asked, tensors, forward)  # only after it has served a call
    return found


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, centered: bool) -> Tensor:
    return _launch(x, weight, bias, None, eps, centered)


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _fake_residual(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags = (torch.Tag.needs_exact_strides,)  # results are stored in the order of x
_library.define("norm_forward(Tensor x, Tensor weight, Tensor? bias, float eps, bool centered) -> Tensor", tags=_tags)
_takes = "Tensor x, Tensor weight, Tensor? bias, Tensor residual, float eps, bool centered"
_library.define(f"norm_residual_forward({_takes}) -> (Tensor, Tensor)", tags=_tags)
_library.impl("norm_forward", _forward, "CUDA")
_library.impl("norm_residual_forward", _launch, "CUDA")
torch.library.register_fake("groundspeed::norm_forward", _fake, lib=_library)
torch.library.register_fake("groundspeed::norm_residual_forward", _fake_residual, lib=_library)
