"""Attention of a few queries to many keys, as in decoding: the keys are split over programs, and what these found is
put together.

q [B, H, M, D] with M·H/G rows up to 128 (FP32: 16), for D over 128 up to 64 (FP32: none), k and v [B, G, N, D]; any
strides; o [B, H, M, D] and lse [B, H, M] (natural logarithm, FP32) as in the portable kernel, masks aligned
bottom-right. The time is that of reading K and V once: the rows of all query heads that share a key head are one tile,
so no key is read twice, and every multiprocessor reads.

One program per key head and split. Splits take turns with the blocks of keys, so that all of a head read next to each
other. Each has the softmax of its keys alone: its output, normalised, and its LSE go to a
workspace in FP32; a second kernel weighs them by their LSE. Where there is one split, the first kernel writes the
result. Splits are long enough for the workspace to stay at some 5% of the bytes of K and V.

Trade-off: two launches where keys are split. On Hopper each is begun while the one before it still runs, and waits on
the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher, maker

LOG2_E = 1.4426950408889634
BEGIN_KEYS = 256
"""As many keys as are read while a program begins and ends."""
MOST_WAVES = 6
MIN_KEYS = 128
"""Of a program."""
MANY_KEYS = 1024
"""Of a program: more are worth a block more on its way."""
SUITED_KEYS = 512
"""From which on they are split at all."""
Forward = Callable[[Any, Any, Any, float], tuple[Any, Any]]
"""Of q, k, v and scale: o and lse."""


class GPU(NamedTuple):
    """What a choice depends on."""

    multiprocessors: int
    shared_bytes: int
    chains: bool
    """Whether a kernel can be begun while another runs."""

    @classmethod
    def of(cls, capability: tuple[int, int], multiprocessors: int) -> GPU:
        small = capability in ((8, 6), (8, 9)) or capability[0] >= 12
        shared = 99 if small else 163 if capability[0] == 8 else 227
        return cls(multiprocessors, shared << 10, capability[0] >= 9)


def max_rows(head_dim: int, dtype: torch.dtype) -> int:
    """Query heads that share a key head × queries, which fit the registers: three TF32 products hold three times the
    operands."""
    if dtype == torch.float32:
        return 16 if head_dim <= 128 else 0
    return 128 if head_dim <= 128 else 64


def suits(q: Any, k: Any, v: Any) -> bool:
    """Whether so few queries see so many keys that these are worth splitting: a program for each key head alone would
    leave most of a GPU idle."""
    queries, keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    rows = queries * group
    few = rows <= max_rows(q.shape[3], q.dtype) and keys >= max(8 * queries, SUITED_KEYS, 2 * _least(rows))
    return (
        few and k.shape == v.shape and all(t.shape[3] * t.stride(3) < 2**31 for t in (q, k, v))
    )  # where the kernel counts in 32 bits


def _least(rows: int) -> int:
    """Keys of a program: twenty for each row keep the workspace at 5% of K and V."""
    return max(MIN_KEYS, 20 * rows)


@dataclass(frozen=True)
class Launch:
    """Every tunable of a launch, nothing else."""

    splits: int
    block_n: int = 64
    num_warps: int = 4
    num_stages: int = 3

    @classmethod
    def choose(cls, key_heads: int, keys: int, rows: int, row_bytes: int, gpu: GPU) -> Launch:
        """A program for each multiprocessor, or a few more where that fills them, each with at least 128 keys and
        twenty for each row of the tile. Blocks of K and V on their way: three that fit half of the shared memory that Q
        leaves; four of them where a program has many keys, though they take more than half. Measured on an H200
        (docs/log.md), as are the rows from which eight warps are better."""
        most = gpu.shared_bytes - max(16, triton.next_power_of_2(rows)) * row_bytes
        splits = _splits(max(1, key_heads), keys, gpu.multiprocessors, keys // _least(rows))
        block_n = next(n for n in (64, 32, 16) if 3 * 2 * n * row_bytes <= most // 2 or n == 16)
        wanted = 4 if keys > MANY_KEYS * splits else 3
        stages = max(2, min(wanted, (most if wanted == 4 else most // 2) // (2 * block_n * row_bytes)))
        return cls(splits, block_n, 4 if rows <= 64 and row_bytes < 1024 else 8, stages)


def _splits(key_heads: int, keys: int, at_once: int, most: int) -> int:
    """With which all programs are done first, of which so many run at once: each takes the time of its keys, and that
    of some more to begin and end. A few programs more than fit take as long as all again."""

    def time(splits: int) -> int:
        waves: int = triton.cdiv(key_heads * splits, at_once)
        return waves * (triton.cdiv(keys, splits) + BEGIN_KEYS)

    filled = [waves * at_once // key_heads for waves in range(1, MOST_WAVES + 1)]
    return min((max(1, min(most, splits)) for splits in filled), key=time)


@triton.jit
def _load(base, index, dims, stride_row, stride_dim, limit, D, MASKED: tl.constexpr, PAD_D: tl.constexpr):
    """Rows `index` of a matrix."""
    pointers = base + index.to(tl.int64)[:, None] * stride_row + dims[None, :] * stride_dim
    if MASKED:
        return tl.load(pointers, mask=(index < limit)[:, None] & (dims < D)[None, :], other=0.0)
    if PAD_D:
        return tl.load(pointers, mask=(dims < D)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def _step(
    acc,
    row_max,
    row_sum,
    q,
    k_base,
    v_base,
    start,
    cols,
    dims,
    stride_kn,
    stride_kd,
    stride_vn,
    stride_vd,
    seen,
    N,
    D,
    scale,
    MASKED: tl.constexpr,
    PAD_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One block of keys. `seen`: how many keys each row may see."""
    keys = start + cols
    k = _load(k_base, keys, dims, stride_kn, stride_kd, N, D, MASKED, PAD_D)
    v = _load(v_base, keys, dims, stride_vn, stride_vd, N, D, MASKED, PAD_D)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if MASKED:
        scores = tl.where(keys[None, :] < seen[:, None], scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    p = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(row_max - shift)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
    return acc, new_max, row_sum


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
    # Every so many blocks from its own on: those without a mask, then the others.
    masked = split + tl.maximum(0, tl.cdiv(full - split, SPLITS)) * SPLITS

    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_R], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_R], tl.float32)
    for block in tl.range(split, masked, SPLITS):
        acc, row_max, row_sum = _step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, seen, N, D, scale, False, PAD_D, PRECISION,
        )  # fmt: skip
    for block in tl.range(masked, tl.cdiv(N, BLOCK_N), SPLITS):
        acc, row_max, row_sum = _step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, seen, N, D, scale, True, PAD_D, PRECISION,
        )  # fmt: skip

    some = row_sum != 0.0  # NaN is something
    acc = acc / tl.where(some, row_sum, 1.0)[:, None]
    lse = tl.where(some, (row_max + tl.log2(tl.where(some, row_sum, 1.0))) * 0.6931471805599453, float("-inf"))
    row = ((split * B + batch) * G * GROUP + head_q) * M + query
    tl.store(lse_ptr + row, lse, mask=there)
    tl.store(o_ptr + row[:, None] * D + dims[None, :], acc.to(o_ptr.dtype.element_ty), mask=q_mask)


@triton.jit(do_not_specialize=["ROWS", "SPLITS"])
def attention_combine_kernel(
    parts_ptr,
    part_lse_ptr,
    o_ptr,
    lse_ptr,
    ROWS,
    D,
    SPLITS,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """One row: what the splits found, each by its share of the sum."""
    if CHAINED:
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, BLOCK_D)
    splits = tl.arange(0, BLOCK_S)
    acc = tl.zeros([BLOCK_D], tl.float32)
    total = 0.0
    highest = float("-inf")
    for start in tl.range(0, SPLITS, BLOCK_S):
        split = start + splits
        mask = (split < SPLITS)[:, None] & (dims < D)[None, :]
        parts = tl.load(parts_ptr + (split * ROWS + row)[:, None] * D + dims[None, :], mask=mask, other=0.0)
        lse = tl.load(part_lse_ptr + split * ROWS + row, mask=split < SPLITS, other=float("-inf"))
        higher = tl.maximum(highest, tl.max(lse, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(lse - shift)
        rescale = tl.exp(highest - shift)
        acc = acc * rescale + tl.sum(parts * weight[:, None], 0)
        total = total * rescale + tl.sum(weight, 0)
        highest = higher
    some = total != 0.0
    acc = acc / tl.where(some, total, 1.0)
    tl.store(lse_ptr + row, tl.where(some, highest + tl.log(tl.where(some, total, 1.0)), float("-inf")))
    tl.store(o_ptr + row * D + dims, acc.to(o_ptr.dtype.element_ty), mask=dims < D)


@cache
def _gpu(device: torch.device) -> GPU:
    if device.type != "cuda":  # interpreted
        return GPU.of((8, 0), 108)
    properties = torch.cuda.get_device_properties(device)
    return GPU.of((properties.major, properties.minor), properties.multi_processor_count)


def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, launch: Launch | None = None) -> tuple[Any, Any]:
    """o and lse, freshly allocated."""
    return prepared(q, k, v, causal, launch)(q, k, v, scale)


def prepared(q: Any, k: Any, v: Any, causal: bool, launch: Launch | None = None, gpu: GPU | None = None) -> Forward:
    """`forward` for tensors like these: of the same shapes, strides, dtype, device and alignment to 16 bytes."""
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    rows = M * (H // G)
    gpu = gpu or _gpu(q.device)
    block_d = max(16, triton.next_power_of_2(D))
    launch = launch or Launch.choose(B * G, N, rows, block_d * q.element_size(), gpu)
    splits = max(1, min(launch.splits, triton.cdiv(N, launch.block_n)))
    constants = {
        "CAUSAL": causal and M > 1,
        "BLOCK_R": max(16, triton.next_power_of_2(rows)),
        "BLOCK_N": launch.block_n,
        "BLOCK_D": block_d,
        "PAD_D": block_d != D,
        "PRECISION": "tf32x3" if q.dtype == torch.float32 else "ieee",
        "CHAINED": gpu.chains and splits > 1,
    }
    chained = {"launch_pdl": True} if constants["CHAINED"] else {}
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, **chained}
    attend = Launcher(attention_decode_kernel, (B * G * splits, 1, 1), constants, options, q.device)
    numbers = *q.stride(), *k.stride(), *v.stride(), B, G, H // G, M, N, D, splits
    all_rows = B * H * M
    at_once = min(triton.next_power_of_2(splits), max(8, 8192 // block_d))
    together = {"BLOCK_S": at_once, "BLOCK_D": block_d, "CHAINED": constants["CHAINED"]}
    combine = Launcher(attention_combine_kernel, (all_rows, 1, 1), together, {"num_warps": 4, **chained}, q.device)
    space = [((splits * all_rows * D,), torch.float32), ((splits * all_rows,), torch.float32)] if splits > 1 else []
    make = maker(q.device, (q.shape, q.dtype), (q.shape[:3], torch.float32), *space)

    def forward(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, Any]:
        o, lse, *space = make()
        if not all_rows:
            return o, lse
        if splits == 1:
            attend(q, k, v, o, lse, *numbers, scale * LOG2_E)
            return o, lse
        attend(q, k, v, *space, *numbers, scale * LOG2_E)
        combine(*space, o, lse, all_rows, D, splits)
        return o, lse

    return forward
