"""Which calls of attention our kernels can serve, and which are large enough for the Hopper kernel, which takes longer
to start."""

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
"""The Hopper kernel needs a greater scale than this: it masks scores before it scales them, and −inf times a scale that
is 0 in FP32 is NaN."""
HOPPER_SOFTCAP = 128.0
"""The largest soft-cap of the Hopper kernel: a larger one would leave too few digits of the scores."""
HOPPER_ROWS = 64
"""Rows of the smallest tile of the Hopper kernel."""


def why_not_ours(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> str | None:
    """Return why our kernels cannot serve a call, or None."""
    if q.device.type != "cuda":
        return elsewhere(q.device)
    if q.dtype not in DTYPES:
        return f"our kernels support fp16, bf16 and fp32, not {q.dtype}"
    if max(q.shape[3], v.shape[3]) > MAX_HEAD_DIM:
        return f"our kernels support head dimensions up to {MAX_HEAD_DIM}, not {max(q.shape[3], v.shape[3])}"
    if is_derived(q, k, v, *([] if sinks is None else [sinks])):
        return "our kernels have no backward pass yet, and this call needs gradients"
    if sinks is not None and sinks.dtype not in DTYPES:
        return f"our kernels support sinks in fp16, bf16 and fp32, not {sinks.dtype}"
    if capability(q.device) < MIN_CAPABILITY:
        return "our kernels need compute capability 8.0 or newer"
    return None


def why_not_hopper(q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float) -> str | None:
    """Return why the Hopper kernel cannot serve a call that our portable kernel can, or None."""
    if capability(q.device) != HOPPER:
        return "it needs a GPU of compute capability 9.0"
    if q.dtype == torch.float32:
        return "it supports only fp16 and bf16"
    if v.shape[3] > q.shape[3]:
        return "it supports value dimensions up to that of the keys"
    if not scale > HOPPER_SCALE:
        return f"it needs a scale above {HOPPER_SCALE:g}"
    if form.softcap > HOPPER_SOFTCAP:
        return f"it supports soft-caps up to {HOPPER_SOFTCAP:g}"
    if k.shape[2] == 0:
        return "there are no keys"
    for tensor in (q, k, v):
        if not _is_boxed(tensor):
            return "TMA needs rows with adjacent elements, at strides that are multiples of 16 bytes"
    return None


def fills_hopper(q: Tensor, k: Tensor) -> bool:
    """Return whether there is enough work for the Hopper kernel, which takes longer to start. The limits were measured
    on an H200 for D = 64 and 128 (docs/log.md). For larger dimensions, and for values of another dimension than the
    keys, only much larger calls were measured."""
    (B, H, M, D), N = q.shape, k.shape[2]
    tiles = B * H * ((M + HOPPER_ROWS - 1) // HOPPER_ROWS)
    least_keys = 128 if D <= 128 else 256
    least_tiles = 64 if D <= 128 and N >= 512 else 128
    return M >= HOPPER_ROWS and least_keys <= N and tiles >= least_tiles


def fills_hopper_packed(q: Tensor, longest: int) -> bool:
    """Return the same for packed sequences, the longest of which has `longest` queries. The calls that were measured
    are a few times as large as this limit (docs/log.md); with less work, building the list of tiles and four TMA
    descriptors per call may take longer than the Hopper kernel saves."""
    total, H, _ = q.shape
    return longest >= 1024 and H * total >= 1024 * HOPPER_ROWS


def _is_boxed(tensor: Tensor) -> bool:
    """Return whether TMA can read a tensor in place."""
    strides = [stride for stride, size in zip(tensor.stride()[:3], tensor.shape[:3], strict=True) if size > 1]
    in_eights = all(stride > 0 and stride % 8 == 0 for stride in strides)
    return in_eights and tensor.stride(3) == 1 and tensor.shape[3] % 8 == 0 and is_aligned(tensor)
