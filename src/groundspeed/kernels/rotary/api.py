"""`rotary`, the function that a model calls: it checks its arguments and chooses an implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.recall import Recall
from groundspeed.kernels.rotary import pytorch

if TYPE_CHECKING:
    from torch import Tensor

MAX_HEAD_DIM = 1024
"""The largest head dimension: a program keeps a row in registers."""


def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, impl: str = "auto") -> tuple[Tensor, Tensor]:
    """Return q [B, H, S, D] and k [B, G, S, D] with rotary position embedding, by the cosine and sine [1 or B, S, R/2]
    of the angle of each position, in FP32 or in the dtype of q. Elements i and i + R/2 of a row, i < R/2, become a·cos
    − b·sin and b·cos + a·sin; those from R on are unchanged.

    Everything is computed in FP32 and rounded once. The results are new tensors; our kernel stores each in the order of
    its input, as with `torch.empty_like`, so that a transposed [B, S, H, D] keeps that order.

    `impl="auto"` uses our kernel, one launch for both, otherwise PyTorch's path, with a one-time warning, for example
    for calls with gradients, for which we have no kernels yet. Naming an implementation (`"triton"`, `"torch"`) forces
    it, or raises if it cannot serve. Ours takes FP16, BF16 and FP32, head dimensions up to 1024 and any strides except
    that the last one is 1, on NVIDIA GPUs since Ampere; PyTorch's path takes any device, dimension and strides,
    gradients, and also FP64."""
    served = _recall.find(impl, (q, k, cos, sin))
    if served is not None:
        return served(q, k, cos, sin)
    _check(q, k, cos, sin)
    if not calls.takes_ours("rotary", impl, lambda: _why_not_ours(q, k, cos, sin)):
        return pytorch.rotary(q, k, cos, sin)
    if calls.is_plain(q, k, cos, sin):
        return _launch(q, k, cos, sin, impl)
    return torch.ops.groundspeed.rotary_forward(q, k, cos, sin)


_recall = Recall()


def _why_not_ours(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> str | None:
    reason = calls.why_not_by_rows(q, k, cos, sin)
    if reason is None and q.shape[3] > MAX_HEAD_DIM:
        reason = f"our kernels support head dimensions up to {MAX_HEAD_DIM}, not {q.shape[3]}"
    rows = q.shape[0] * q.shape[2] * (q.shape[1] + k.shape[1])
    if reason is None and rows > calls.MOST_ROWS:
        reason = f"our kernels support up to {calls.MOST_ROWS} rows, not {rows}"
    return reason


def _check(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> None:
    calls.need_tensors(q=q, k=k, cos=cos, sin=sin)
    if (q.dim(), k.dim(), cos.dim(), sin.dim()) != (4, 4, 3, 3):
        told = "q and k must be [batch, heads, sequence, dim], cos and sin [1 or batch, sequence, R/2]"
        raise ValueError(f"{told}: {_shapes(q, k, cos, sin)}")
    (B, H, S, D), G = q.shape, k.shape[1]
    if k.shape != (B, G, S, D) or H == 0 or G == 0:
        told = "q and k must have the same shape except for heads, and at least one head each"
        raise ValueError(f"{told}: {_shapes(q, k, cos, sin)}")
    if cos.shape != sin.shape or (cos.shape[0] != 1 and cos.shape[0] != B) or cos.shape[1] != S:
        told = f"for q [{B}, {H}, {S}, {D}], cos and sin must both be [1 or {B}, {S}, R/2], of the same shape"
        raise ValueError(f"{told}: {_shapes(q, k, cos, sin)}")
    if not 0 < 2 * cos.shape[2] <= D:
        told = f"R must be from 2 to the head dimension, {D}, where cos and sin have R/2 columns"
        raise ValueError(f"{told}: {_shapes(q, k, cos, sin)}")
    if q.dtype != k.dtype or q.dtype not in (*calls.KINDS, torch.float64):
        raise ValueError(f"q and k must share fp16, bf16, fp32 or fp64, not {q.dtype} and {k.dtype}: use k.to(q)")
    if cos.dtype != sin.dtype or cos.dtype not in (q.dtype, torch.float32):
        raise ValueError(
            f"cos and sin must both be in fp32 or in {q.dtype}, not {cos.dtype} and {sin.dtype}: convert them"
        )
    if not q.device == k.device == cos.device == sin.device:
        devices = ", ".join(str(tensor.device) for tensor in (q, k, cos, sin))
        raise ValueError(f"q, k, cos and sin must share their device, not {devices}: use cos.to(q.device)")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors)


def _launch(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, impl: str = "triton") -> Any:
    forward = _recall.find(impl, (q, k, cos, sin))
    if forward is not None:
        return forward(q, k, cos, sin)
    from groundspeed.kernels.rotary import triton

    forward = triton.prepared(q, k, cos, sin)
    found = forward(q, k, cos, sin)
    _recall.keep(impl, (q, k, cos, sin), forward)  # only after it has served a call
    return found


def _fake(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


_library = torch.library.Library("groundspeed", "FRAGMENT")
_tags: Any = (torch.Tag.needs_exact_strides,)  # results are stored in the order of their inputs
_library.define("rotary_forward(Tensor q, Tensor k, Tensor cos, Tensor sin) -> (Tensor, Tensor)", tags=_tags)
_library.impl("rotary_forward", _launch, "CUDA")
torch.library.register_fake("groundspeed::rotary_forward", _fake, lib=_library)
