"""Which calls of attention our kernels can serve, and where the one for Hopper is worth its beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.calls import HOPPER, MIN_CAPABILITY, capability, elsewhere, is_aligned, is_derived

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 256
HOPPER_SCALE = 1e-30
"""At least: it masks before it scales, and −inf times a scale that is nothing in FP32 is no number."""
HOPPER_SOFTCAP = 128.0
"""A larger one would leave too few digits of the scores."""
HOPPER_ROWS = 64
"""Of a small tile."""


def why_not_ours(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> str | None:
    """Why our kernels cannot serve a call, or None."""
    if q.device.type != "cuda":
        return elsewhere(q.device)
    if q.dtype not in DTYPES:
        return f"our kernels take fp16, bf16 and fp32, not {q.dtype}"
    if max(q.shape[3], v.shape[3]) > MAX_HEAD_DIM:
        return f"our kernels take head dimensions up to {MAX_HEAD_DIM}, not {max(q.shape[3], v.shape[3])}"
    if is_derived(q, k, v, *([] if sinks is None else [sinks])):
        return "our kernels have no backward yet, and this call needs gradients"
    if sinks is not None and sinks.dtype not in DTYPES:
        return f"our kernels take sinks in fp16, bf16 and fp32, not {sinks.dtype}"
    if capability(q.device) < MIN_CAPABILITY:
        return "our kernels need compute capability 8.0 or newer"
    return None


def why_not_hopper(q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float) -> str | None:
    """Why the one for Hopper cannot serve a call that our portable one can, or None."""
    if capability(q.device) != HOPPER:
        return "it needs a GPU of compute capability 9.0"
    if q.dtype == torch.float32:
        return "it takes fp16 and bf16"
    if v.shape[3] > q.shape[3]:
        return "it takes values of at most the dimension of the keys"
    if not scale > HOPPER_SCALE:
        return f"it needs a scale above {HOPPER_SCALE:g}"
    if form.softcap > HOPPER_SOFTCAP:
        return f"it takes soft-caps up to {HOPPER_SOFTCAP:g}"
    if k.shape[2] == 0:
        return "there are no keys"
    for tensor in (q, k, v):
        if not _is_boxed(tensor):
            return "TMA reads where rows lie apart by multiples of 16 bytes and their elements side by side"
    return None


def fills_hopper(q: Tensor, k: Tensor) -> bool:
    """Whether there is work enough for the one for Hopper, which takes longer to begin: measured on an H200 for D = 64
    and 128 (docs/log.md); of larger ones, and of values of another dimension than keys, what is far above this."""
    (B, H, M, D), N = q.shape, k.shape[2]
    tiles = B * H * ((M + HOPPER_ROWS - 1) // HOPPER_ROWS)
    least_keys = 128 if D <= 128 else 256
    least_tiles = 64 if D <= 128 and N >= 512 else 128
    return M >= HOPPER_ROWS and least_keys <= N and tiles >= least_tiles


def fills_hopper_packed(q: Tensor, longest: int) -> bool:
    """The same of packed sequences, the longest of which has so many queries. What was measured is some times as much
    (docs/log.md); with less, the list of tiles and four descriptors a call may take longer than they save."""
    total, H, _ = q.shape
    return longest >= 1024 and H * total >= 1024 * HOPPER_ROWS


def _is_boxed(tensor: Tensor) -> bool:
    """Whether TMA can read it where it lies."""
    strides = [stride for stride, size in zip(tensor.stride()[:3], tensor.shape[:3], strict=True) if size > 1]
    in_eights = all(stride > 0 and stride % 8 == 0 for stride in strides)
    return in_eights and tensor.stride(3) == 1 and tensor.shape[3] % 8 == 0 and is_aligned(tensor)
