"""Attention of a few queries to many keys, as in decoding, by split-KV: the keys are split over programs, and their
partial results are combined.

q [B, H, M, D] with up to 128 rows M·H/G (FP32: 16), or 64 if D is over 128 (FP32: none); k and v [B, G, N, D]; any
strides; o [B, H, M, D] and lse [B, H, M] (natural logarithm, FP32) as in the portable kernel, masks aligned
bottom-right. The time is that of reading K and V once: the rows of all query heads that share a key head form one tile,
so no key is read twice, and every multiprocessor reads.

There is one program per key head and split. The splits interleave their blocks of keys, so that all programs of a head
read neighbouring memory. split.py describes how the partial results are combined.

Trade-off: two launches if the keys are split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.attention.scores import LOG2_E
from groundspeed.kernels.attention.split import (
    GPU,
    Launch,
    completed,
    ended,
    gpu_of,
    least_keys,
    max_rows,
    precision,
    step,
)
from groundspeed.kernels.launch import Launcher

SUITED_KEYS = 512
"""The fewest keys that are worth splitting."""
Forward = Callable[[Any, Any, Any, float], tuple[Any, Any]]
"""Takes q, k, v and scale; returns o and lse."""


def suits(q: Any, k: Any, v: Any) -> bool:
    """Return whether there are so few queries and so many keys that the keys are worth splitting: one program per key
    head would leave most of a GPU idle."""
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    rows = queries * group
    few = rows <= max_rows(q.shape[3], q.dtype) and keys >= max(8 * queries, SUITED_KEYS, 2 * least_keys(rows))
    return (
        few and k.shape == v.shape and all(t.shape[3] * t.stride(3) < 2**31 for t in (q, k, v))
    )  # offsets along the head dimension have 32 bits in the kernel


def launch_of(q: Any, k: Any, gpu: GPU) -> Launch:
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    row_bytes = max(16, triton.next_power_of_2(D)) * q.element_size()
    return Launch.choose(B * G, N, M * (H // G), row_bytes, gpu)


@triton.jit(do_not_specialize=["B", "G", "GROUP", "M", "N", "SPLITS"])
def attention_decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    B,
    G,
    GROUP,
    M,
    N,
    D,
    SPLITS,
    scale,
    CAUSAL: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAD_D: tl.constexpr,
    PRECISION: tl.constexpr,
    CHAINED: tl.constexpr,
):
    if CHAINED:
        gdc_launch_dependents()
        gdc_wait()
    split = tl.program_id(0) % SPLITS
    head = tl.program_id(0) // SPLITS
    batch = (head // G).to(tl.int64)
    head_k = (head % G).to(tl.int64)
    rows = tl.arange(0, BLOCK_R)
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    k_base = k_ptr + batch * stride_kb + head_k * stride_kh
    v_base = v_ptr + batch * stride_vb + head_k * stride_vh
    there = rows < GROUP * M
    head_q = head_k * GROUP + rows // M
    query = rows % M

    q_rows = batch * stride_qb + head_q * stride_qh + query.to(tl.int64) * stride_qm
    q_mask = there[:, None] & (dims < D)[None, :]
    q = tl.load(q_ptr + q_rows[:, None] + dims[None, :] * stride_qd, mask=q_mask, other=0.0)
    seen = tl.full([BLOCK_R], N, tl.int32)
    full = N // BLOCK_N
    if CAUSAL:
        seen = query + N - M + 1
        full = tl.maximum(0, N - M + 1) // BLOCK_N
    # A split takes every SPLITS-th block, starting at its own: first the blocks without a mask, then the others.
    masked = split + tl.maximum(0, tl.cdiv(full - split, SPLITS)) * SPLITS

    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_R], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_R], tl.float32)
    for block in tl.range(split, masked, SPLITS):
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, None, seen, 0, N, D, scale, None, False, False, False, PAD_D, PRECISION,
        )  # fmt: skip
    for block in tl.range(masked, tl.cdiv(N, BLOCK_N), SPLITS):
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, None, seen, 0, N, D, scale, None, True, False, False, PAD_D, PRECISION,
        )  # fmt: skip

    acc, lse = ended(acc, row_max, row_sum)
    row = ((split * B + batch) * G * GROUP + head_q) * M + query
    tl.store(lse_ptr + row, lse, mask=there)
    tl.store(o_ptr + row[:, None] * D + dims[None, :], acc.to(o_ptr.dtype.element_ty), mask=q_mask)


def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, launch: Launch | None = None) -> tuple[Any, Any]:
    """Return o and lse, newly allocated."""
    return prepared(q, k, v, causal, launch)(q, k, v, scale)


def prepared(q: Any, k: Any, v: Any, causal: bool, launch: Launch | None = None, gpu: GPU | None = None) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtype, device and alignment to 16 bytes as these."""
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    rows = M * (H // G)
    gpu = gpu or gpu_of(q.device)
    block_d = max(16, triton.next_power_of_2(D))
    launch = launch or launch_of(q, k, gpu)
    splits = max(1, min(launch.splits, triton.cdiv(N, launch.block_n)))
    constants = {
        "CAUSAL": causal and M > 1,
        "BLOCK_R": max(16, triton.next_power_of_2(rows)),
        "BLOCK_N": launch.block_n,
        "BLOCK_D": block_d,
        "PAD_D": block_d != D,
        "PRECISION": precision(q.dtype),
        "CHAINED": gpu.chains,
    }
    chained = {"launch_pdl": True} if gpu.chains else {}
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, **chained}
    attend = Launcher(attention_decode_kernel, (B * G * splits, 1, 1), constants, options, q.device)
    numbers = *q.stride(), *k.stride(), *v.stride(), B, G, H // G, M, N, D, splits
    complete = completed(attend, q, splits, chained=gpu.chains)

    def forward(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, Any]:
        return complete((q, k, v), (*numbers, scale * LOG2_E))

    return forward
