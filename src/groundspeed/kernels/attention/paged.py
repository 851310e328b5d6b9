"""Attention to keys that are stored in pages, as in decoding with a cache, by split-KV: the keys are split over
programs.

q [B, H, M, D] holds the last M positions of each sequence; k_pages and v_pages [P, G, page, D] have a power of two from
16 to 256 keys in a page. Entry i of a row of pages [B, most] says which page holds the positions from i·page on, and
lengths [B] are the numbers of keys of the sequences. Both are read on the device only, so a launch captured in a CUDA
graph stays valid as sequences grow. Entries for positions past the length are never read, and neither are the keys and
values at such positions. Strides are arbitrary, except that the last one is 1; o [B, H, M, D] and lse [B, H, M]
(natural logarithm, FP32) are contiguous. Masks are aligned bottom-right; a row that sees no key gives zeros and an lse
of −inf. Windows, soft-caps and sinks are as in form.py; a sink is part of the lse.

A program has a tile of rows, which are queries × query heads that share a key head, and a split of the keys. A tile has
up to 128 rows (FP32: 16), or up to 64 if D is over 128 (FP32: none). If there are more rows, there are more tiles, and
each reads the keys that it sees. A block of keys either lies in one page, and then has one offset, or spans several
pages, and then has one offset for each key.

The splits first interleave the blocks of keys that no mask touches, then those at the edges. The number of splits
follows from the number of pages that a sequence may have, and from the number of all pages. Some splits of a short
sequence have no keys, and report an lse of −inf. The partial results are combined as described in split.py.

Trade-off: if one sequence is much longer than the others, the programs of the others finish early and its own do not.
Balancing would take a list of work items made on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.scores import units
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

MANY_ROWS = 64
"""The most rows of a tile if one tile cannot hold all rows: as in the portable kernel."""
Forward = Callable[..., tuple[Any, Any]]
"""Takes q, k_pages, v_pages, pages, lengths, scale and, if the form has them, sinks; returns o and lse."""


@triton.jit
def _place(
    table,
    start,
    cols,
    first,
    limit,
    stride_kp,
    stride_kn,
    stride_vp,
    stride_vn,
    MASKED: tl.constexpr,
    LEFT: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return what must be added to the base addresses of K and V for the block from `start` on, so that key n is at n
    times the stride. This is where key 0 would be if all keys were laid out as those of its page are: one offset, or
    one for each key."""
    if PAGE >= BLOCK_N:
        number = start // PAGE
        page = tl.load(table + number).to(tl.int64)
        before = (number * PAGE).to(tl.int64)
    else:
        keys = start + cols
        number = keys // PAGE
        if MASKED:
            there = keys < limit
            if LEFT:
                there = there & (keys >= first)
            page = tl.load(table + number, mask=there, other=0).to(tl.int64)[:, None]
        else:
            page = tl.load(table + number).to(tl.int64)[:, None]
        before = (number * PAGE).to(tl.int64)[:, None]
    return page * stride_kp - before * stride_kn, page * stride_vp - before * stride_vn


@triton.jit(do_not_specialize=["B", "G", "GROUP", "M", "MOST", "TILES", "SPLITS", "left", "right"])
def attention_paged_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    pages_ptr,
    lengths_ptr,
    sinks_ptr,
    o_ptr,
    lse_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kp,
    stride_kh,
    stride_kn,
    stride_vp,
    stride_vh,
    stride_vn,
    stride_tb,
    B,
    G,
    GROUP,
    M,
    MOST,
    D,
    TILES,
    SPLITS,
    left,
    right,
    scale,
    cap,
    PAGE: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAP: tl.constexpr,
    SINKS: tl.constexpr,
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
    tile = tl.program_id(0) // SPLITS % TILES
    head = tl.program_id(0) // SPLITS // TILES
    batch = (head // G).to(tl.int64)
    head_k = (head % G).to(tl.int64)
    rows = tile * BLOCK_R + tl.arange(0, BLOCK_R)
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    there = rows < GROUP * M
    head_q = head_k * GROUP + rows % GROUP
    query = rows // GROUP  # a tile has consecutive queries, which see nearly the same keys
    table = pages_ptr + batch * stride_tb
    k_base = k_ptr + head_k * stride_kh
    v_base = v_ptr + head_k * stride_vh
    N = tl.minimum(tl.maximum(tl.load(lengths_ptr + batch), 0), MOST).to(tl.int32)

    q_rows = batch * stride_qb + head_q * stride_qh + query.to(tl.int64) * stride_qm
    q_mask = there[:, None] & (dims < D)[None, :]
    q = tl.load(q_ptr + q_rows[:, None] + dims[None, :], mask=q_mask, other=0.0)

    # Some row sees keys `first` up to `limit`, in blocks `begin` to `end`; all rows see blocks `clear` to `full`.
    first_query = tile * BLOCK_R // GROUP
    last_query = tl.minimum(M, tl.cdiv((tile + 1) * BLOCK_R, GROUP)) - 1
    shift = N - M
    begins = query + shift - left
    ends = tl.full([BLOCK_R], N, tl.int32)
    first = 0
    limit = N
    full = N
    if RIGHT:
        ends = tl.minimum(N, query + shift + right + 1)
        limit = tl.minimum(N, tl.maximum(0, last_query + shift + right + 1))
        full = tl.minimum(N, tl.maximum(0, first_query + shift + right + 1))
    end = tl.cdiv(limit, BLOCK_N)
    full = full // BLOCK_N
    begin = 0
    clear = 0
    if LEFT:
        first = tl.maximum(0, first_query + shift - left)
        begin = tl.minimum(end, first // BLOCK_N)
        clear = tl.minimum(end, tl.cdiv(tl.maximum(0, last_query + shift - left), BLOCK_N))
        full = tl.maximum(full, clear)
    # A split takes every SPLITS-th block, starting at its own: first the blocks without a mask, then the others.
    masked = split + tl.maximum(0, tl.cdiv(full - clear - split, SPLITS)) * SPLITS

    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_R], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_R], tl.float32)
    if SINKS:  # in one split only
        sink = tl.load(sinks_ptr + head_q, mask=there, other=0.0).to(tl.float32) * 1.4426950408889634
        row_max = tl.where(split == 0, sink, row_max)
        row_sum = tl.where(split == 0, 1.0, row_sum)
    for turn in tl.range(split, masked, SPLITS):
        start = (clear + turn) * BLOCK_N
        place_k, place_v = _place(
            table, start, cols, first, limit, stride_kp, stride_kn, stride_vp, stride_vn, False, LEFT, PAGE, BLOCK_N
        )
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base + place_k, v_base + place_v, start, cols, dims, stride_kn, 1, stride_vn, 1,
            begins, ends, first, limit, D, scale, cap, False, LEFT, CAP, PAD_D, PRECISION,
        )  # fmt: skip
    for turn in tl.range(masked, end - begin, SPLITS):
        block = turn
        if LEFT:
            block = turn - (full - clear)  # the index among the blocks before `clear` and from `full` on
            block = tl.where(block < clear - begin, begin + block, begin + turn)
        start = block * BLOCK_N
        place_k, place_v = _place(
            table, start, cols, first, limit, stride_kp, stride_kn, stride_vp, stride_vn, True, LEFT, PAGE, BLOCK_N
        )
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base + place_k, v_base + place_v, start, cols, dims, stride_kn, 1, stride_vn, 1,
            begins, ends, first, limit, D, scale, cap, True, LEFT, CAP, PAD_D, PRECISION,
        )  # fmt: skip

    acc, lse = ended(acc, row_max, row_sum)
    row = ((split * B + batch) * G * GROUP + head_q) * M + query
    tl.store(lse_ptr + row, lse, mask=there)
    tl.store(o_ptr + row[:, None] * D + dims[None, :], acc.to(o_ptr.dtype.element_ty), mask=q_mask)


def forward(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    pages: Any,
    lengths: Any,
    *,
    form: Form,
    scale: float,
    sinks: Any = None,
    launch: Launch | None = None,
) -> tuple[Any, Any]:
    """Return o and lse, newly allocated."""
    tensors = q, k_pages, v_pages, pages
    return prepared(*tensors, form, launch)(*tensors, lengths, scale, sinks)


def prepared(
    q: Any, k_pages: Any, v_pages: Any, pages: Any, form: Form, launch: Launch | None = None, gpu: GPU | None = None
) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtypes, device and alignment to 16 bytes as these."""
    (B, H, M, D), (P, G, page, _) = q.shape, k_pages.shape
    most, rows = pages.shape[1] * page, M * (H // G)
    left, right = (min(side, most + M) for side in (form.left, form.right))  # a larger window sees all keys
    gpu = gpu or gpu_of(q.device)
    block_d = max(16, triton.next_power_of_2(D))
    block_r = tile_rows(rows, D, q.dtype)
    tiles = triton.cdiv(rows, block_r)
    seen = most if left < 0 else min(most, left + M)
    held = P * page // max(1, B)
    launch = launch or _chosen(B * G, seen, held, min(rows, block_r), tiles, block_d, q.dtype, gpu)
    splits = max(1, min(launch.splits, triton.cdiv(seen, launch.block_n)))
    constants = {
        "PAGE": page,
        "LEFT": 0 <= left < most - 1,  # a wider window lets every query see the first key
        "RIGHT": 0 <= right < M - 1,  # and the first query see the last key
        "CAP": form.softcap > 0,
        "SINKS": form.sinks,
        "BLOCK_R": block_r,
        "BLOCK_N": launch.block_n,
        "BLOCK_D": block_d,
        "PAD_D": block_d != D,
        "PRECISION": precision(q.dtype),
        "CHAINED": gpu.chains,
    }
    chained = {"launch_pdl": True} if gpu.chains else {}
    # Page numbers are fetched before their keys, and Triton divides the stages equally between the two.
    options = {"num_warps": launch.num_warps, "num_stages": 2 * launch.num_stages - 1, **chained}
    attend = Launcher(attention_paged_kernel, (B * G * tiles * splits, 1, 1), constants, options, q.device)
    strides = *q.stride()[:3], *k_pages.stride()[:3], *v_pages.stride()[:3], pages.stride(0)
    cap, unit = units(form)
    numbers = *strides, B, G, H // G, M, most, D, tiles, splits, left, right
    complete = completed(attend, q, splits, chained=gpu.chains, chaining=gpu.chains)

    def forward(
        q: Any, k_pages: Any, v_pages: Any, pages: Any, lengths: Any, scale: float, sinks: Any = None
    ) -> tuple[Any, Any]:
        return complete((q, k_pages, v_pages, pages, lengths, sinks), (*numbers, scale * unit, cap))

    return forward


def _chosen(
    key_heads: int, keys: int, held: int, rows: int, tiles: int, block_d: int, dtype: torch.dtype, gpu: GPU
) -> Launch:
    """Return the launch: as for contiguous keys, but with enough warps that the addresses of pages also fit the
    registers. Up to `keys` keys of a sequence are seen, and the pages hold `held` keys for each sequence; the workspace
    is kept small relative to the latter."""
    launch = Launch.choose(key_heads, keys, rows, block_d * dtype.itemsize, gpu, tiles)
    splits = max(1, min(launch.splits, held // least_keys(rows * tiles)))
    wide = block_d >= 128 and (rows > 32 or dtype == torch.float32)
    return replace(launch, splits=splits, num_warps=8 if wide else launch.num_warps)


def tile_rows(rows: int, head_dim: int, dtype: torch.dtype) -> int:
    """Return the rows (queries × heads) of a tile."""
    most = max_rows(head_dim, dtype)
    return max(16, triton.next_power_of_2(rows)) if rows <= most else min(MANY_ROWS, most)
