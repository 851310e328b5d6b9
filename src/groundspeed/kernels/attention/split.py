"""Split-KV attention: the parts that the kernels for contiguous keys (decode.py) and for pages (paged.py) share.

Each program computes the softmax over its own keys only, and writes its normalised output and LSE to a workspace in
FP32. A second kernel combines them, weighted by their LSE. If there is one split, the first kernel writes the result.
Splits are long enough to keep the workspace at some 5% of the bytes of K and V. On Hopper and newer, the second kernel
starts while the first is still running, and the first while the kernel before it is, if that allows it; each waits on
the device for what it reads (programmatic dependent launch). Of a cache in pages, the second kernel in turn lets the
next one start, such as the product that follows in a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.attention.scores import capped
from groundspeed.kernels.launch import Launcher, maker

BEGIN_KEYS = 256
"""The start and end of a program take about as long as reading this many keys."""
MOST_WAVES = 6
MIN_KEYS = 128
"""The fewest keys of a program."""
MANY_KEYS = 1024
"""A program with more keys than this has one more block in flight."""


class GPU(NamedTuple):
    """The properties of a GPU that a launch depends on."""

    multiprocessors: int
    shared_bytes: int
    chains: bool
    """Whether a kernel can start while another runs (programmatic dependent launch)."""

    @classmethod
    def of(cls, capability: tuple[int, int], multiprocessors: int) -> GPU:
        small = capability in ((8, 6), (8, 9)) or capability[0] >= 12
        shared = 99 if small else 163 if capability[0] == 8 else 227
        return cls(multiprocessors, shared << 10, capability[0] >= 9)


def max_rows(head_dim: int, dtype: torch.dtype) -> int:
    """Return the most rows of a tile (queries × query heads that share a key head) that fit the registers. In FP32 a
    product is three TF32 products, which hold three times the operands."""
    if dtype == torch.float32:
        return 16 if head_dim <= 128 else 0
    return 128 if head_dim <= 128 else 64


def least_keys(rows: int) -> int:
    """Return the fewest keys of a program: twenty for each row keep the workspace at 5% of K and V."""
    return max(MIN_KEYS, 20 * rows)


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    splits: int
    block_n: int = 64
    num_warps: int = 4
    num_stages: int = 3

    @classmethod
    def choose(cls, key_heads: int, keys: int, rows: int, row_bytes: int, gpu: GPU, tiles: int = 1) -> Launch:
        """Return the launch for `tiles` tiles of `rows` rows for each key head. It has one program per multiprocessor,
        or a few waves of programs if that fills the GPU better; each program has at least 128 keys, and at least twenty
        for each row of its head. Three blocks of K and V are in flight, within half of the shared memory that Q leaves;
        if a program has many keys, four blocks, within all of it. This was measured on an H200 (docs/log.md), and so
        was the number of rows from which eight warps are better."""
        most = gpu.shared_bytes - max(16, triton.next_power_of_2(rows)) * row_bytes
        splits = _splits(max(1, key_heads * tiles), keys, gpu.multiprocessors, keys // least_keys(rows * tiles))
        block_n = next(n for n in (64, 32, 16) if 3 * 2 * n * row_bytes <= most // 2 or n == 16)
        wanted = 4 if keys > MANY_KEYS * splits else 3
        stages = max(2, min(wanted, (most if wanted == 4 else most // 2) // (2 * block_n * row_bytes)))
        return cls(splits, block_n, 4 if rows <= 64 and row_bytes < 1024 else 8, stages)


def _splits(key_heads: int, keys: int, at_once: int, most: int) -> int:
    """Return the number of splits with which the last program finishes first, if `at_once` programs run at a time. Each
    program takes the time of its keys plus a fixed time to start and end. Because of wave quantisation, a few programs
    more than fit take as long as another full wave."""

    def time(splits: int) -> int:
        waves: int = triton.cdiv(key_heads * splits, at_once)
        return waves * (triton.cdiv(keys, splits) + BEGIN_KEYS)

    filled = [waves * at_once // key_heads for waves in range(1, MOST_WAVES + 1)]
    return min((max(1, min(most, splits)) for splits in filled), key=time)


@triton.jit
def _load(
    base,
    index,
    dims,
    stride_row,
    stride_dim,
    first,
    limit,
    D,
    MASKED: tl.constexpr,
    LEFT: tl.constexpr,
    PAD_D: tl.constexpr,
):
    """Load rows `index` of a matrix; if MASKED, only those below `limit`, and with LEFT only those from `first` on."""
    pointers = base + index.to(tl.int64)[:, None] * stride_row + dims[None, :] * stride_dim
    if MASKED:
        there = index < limit
        if LEFT:
            there = there & (index >= first)
        return tl.load(pointers, mask=there[:, None] & (dims < D)[None, :], other=0.0)
    if PAD_D:
        return tl.load(pointers, mask=(dims < D)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def step(
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
    begins,
    ends,
    first,
    limit,
    D,
    scale,
    cap,
    MASKED: tl.constexpr,
    LEFT: tl.constexpr,
    CAP: tl.constexpr,
    PAD_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Process the block of keys from `start` on, and return the updated output, maximum and sum. A base is the address
    of key 0, or one address for each key of the block. Each row sees the keys below `ends`, and with LEFT only those
    from `begins` on; no key below `first` or from `limit` on is read."""
    keys = start + cols
    k = _load(k_base, keys, dims, stride_kn, stride_kd, first, limit, D, MASKED, LEFT, PAD_D)
    v = _load(v_base, keys, dims, stride_vn, stride_vd, first, limit, D, MASKED, LEFT, PAD_D)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if CAP:
        scores = capped(scores, cap)
    if MASKED:
        visible = keys[None, :] < ends[:, None]
        if LEFT:
            visible = visible & (keys[None, :] >= begins[:, None])
        scores = tl.where(visible, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    p = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(row_max - shift)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
    return acc, new_max, row_sum


@triton.jit
def ended(acc, row_max, row_sum):
    """Return the output and the LSE of each row; 0 and −inf for a row that has seen no key."""
    some = row_sum != 0.0  # true for NaN
    acc = acc / tl.where(some, row_sum, 1.0)[:, None]
    lse = tl.where(some, (row_max + tl.log2(tl.where(some, row_sum, 1.0))) * 0.6931471805599453, float("-inf"))
    return acc, lse


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
    CHAINING: tl.constexpr,
):
    """Combine the partial results of one row, each weighted by its share of the sum. If CHAINING, the next kernel may
    start at once."""
    if CHAINED:
        if CHAINING:
            gdc_launch_dependents()
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
def gpu_of(device: torch.device) -> GPU:
    if device.type != "cuda":  # in Triton's interpreter
        return GPU.of((8, 0), 108)
    properties = torch.cuda.get_device_properties(device)
    return GPU.of((properties.major, properties.minor), properties.multi_processor_count)


def precision(dtype: torch.dtype) -> str:
    """Return the input precision of products: FP32 is split into three TF32 products."""
    return "tf32x3" if dtype == torch.float32 else "ieee"


def completed(
    attend: Launcher, q: Any, splits: int, *, chained: bool, chaining: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that launches `attend`, and combines the partial results if the keys are split. It takes the
    arguments of `attend` before and after its output and LSE, and returns the output and LSE of q. `chained`: each
    kernel starts while the one before it is still running; `chaining`: so may the one that follows."""
    (*of_rows, D), all_rows = q.shape, q.numel() // q.shape[3]
    block_d = max(16, triton.next_power_of_2(D))
    at_once = min(triton.next_power_of_2(splits), max(8, 8192 // block_d))
    together = {"BLOCK_S": at_once, "BLOCK_D": block_d, "CHAINED": chained, "CHAINING": chaining}
    options = {"num_warps": 4, **({"launch_pdl": True} if chained else {})}
    combine = Launcher(attention_combine_kernel, (all_rows, 1, 1), together, options, q.device)
    space = [((splits * all_rows * D,), torch.float32), ((splits * all_rows,), torch.float32)] if splits > 1 else []
    make = maker(q.device, (q.shape, q.dtype), (of_rows, torch.float32), *space)

    def complete(before: Sequence[Any], after: Sequence[Any]) -> tuple[Any, Any]:
        o, lse, *space = make()
        if not all_rows:
            return o, lse
        if splits == 1:
            attend(*before, o, lse, *after)
            return o, lse
        attend(*before, *space, *after)
        combine(*space, o, lse, all_rows, D, splits)
        return o, lse

    return complete
