"""Rotary position embedding of queries and keys in portable Triton, both in one launch.

q [B, H, S, D] and k [B, G, S, D] have any strides except that the last one is 1; so have cos and sin [1 or B, S, R/2],
in FP32 or in the dtype of q. Elements i and i + R/2 of a row are rotated as a pair, i < R/2: they become a·cos − b·sin
and b·cos + a·sin. Elements from R on are unchanged. Everything is computed in FP32 and rounded once. The results are
stored as with `torch.empty_like`, in the order of their inputs.

A program has consecutive rows, ordered by position and then by head. In the layout that projections write,
[B, S, H, D], such rows are adjacent, and the heads of one position read the same cosines from L1. Programs for q come
first, then those for k.

Limit: memory traffic. Trade-off: the numbers of heads and dimensions are compile-time constants, because the index of a
row is divided by them; so each model compiles its own kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher, maker_like
from groundspeed.kernels.rows import evenness

Forward = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
"""Takes q, k, cos and sin; returns q and k rotated."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    rows: int
    num_warps: int

    @classmethod
    def choose(cls, head_dim: int, half: int) -> Launch:
        """Return the launch for a head dimension and half of the rotated dimensions. Not measured yet. A program has
        4,096 elements, 32 per lane: in 16 bits, four loads of 16 bytes, so that a quarter of the lanes of a
        multiprocessor have 32 KB in flight, more than an H200 needs by Little's law (4.8 TB/s · 0.7 µs over 132 is 25
        KB). If only a small part of a row is rotated, there are more rows or fewer lanes, so that a lane has eight
        elements of each half: the fewest that make 16 bytes."""
        row, half = triton.next_power_of_2(head_dim), max(16, triton.next_power_of_2(half))
        rows = max(1, 4096 // row, min(1024 // half, 16384 // row))
        return cls(rows, max(1, min(4, rows * half // 256)))


@triton.jit
def _offsets(batch, place, stride_b, stride_s, EVEN: tl.constexpr):
    """Return the offsets of positions in a batch. The strides are multiples of EVEN, which the compiler learns here."""
    return batch * (stride_b // EVEN * EVEN) + place * (stride_s // EVEN * EVEN)


@triton.jit
def _turn(
    x_ptr,
    out_ptr,
    cos_ptr,
    sin_ptr,
    program,
    rows,
    S,
    stride_xb,
    stride_xh,
    stride_xs,
    stride_outb,
    stride_outh,
    stride_outs,
    stride_cosb,
    stride_coss,
    stride_sinb,
    stride_sins,
    H: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
    """Rotate ROWS rows of q or k, which has H heads."""
    row = program * ROWS + tl.arange(0, ROWS)
    place = row // H
    head, batch, place = (row % H).to(tl.int64), (place // S).to(tl.int64), (place % S).to(tl.int64)
    i = tl.arange(0, BLOCK)[None, :]
    there = (row < rows)[:, None]
    here = there & (i < HALF)
    cos = tl.load(cos_ptr + _offsets(batch, place, stride_cosb, stride_coss, EVEN)[:, None] + i, mask=here, other=0.0)
    sin = tl.load(sin_ptr + _offsets(batch, place, stride_sinb, stride_sins, EVEN)[:, None] + i, mask=here, other=0.0)
    cos, sin = cos.to(tl.float32), sin.to(tl.float32)
    at = _offsets(batch, place, stride_xb, stride_xs, EVEN) + head * (stride_xh // EVEN * EVEN)
    out_at = _offsets(batch, place, stride_outb, stride_outs, EVEN) + head * (stride_outh // EVEN * EVEN)
    x, out = x_ptr + at[:, None], out_ptr + out_at[:, None]
    a = tl.load(x + i, mask=here, other=0.0).to(tl.float32)
    b = tl.load(x + HALF + i, mask=here, other=0.0).to(tl.float32)
    tl.store(out + i, (a * cos - b * sin).to(out_ptr.dtype.element_ty), mask=here)
    tl.store(out + HALF + i, (b * cos + a * sin).to(out_ptr.dtype.element_ty), mask=here)
    if 2 * HALF < D:
        rest = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        stays = there & (rest < D)
        tl.store(out + rest, tl.load(x + rest, mask=stays), mask=stays)


NUMBERS = ["S", "rows_q", "rows_k", *(f"stride_{x}{of}" for x in "qokp" for of in "bhs")]
NUMBERS += [f"stride_{x}{of}" for x in ("cos", "sin") for of in "bs"]
"""These are not specialised: the kernel tells the compiler what it needs to know about them."""


@triton.jit(do_not_specialize=NUMBERS)
def rotary_forward_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    o_ptr,
    p_ptr,
    S,
    rows_q,
    rows_k,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_ob,
    stride_oh,
    stride_os,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_pb,
    stride_ph,
    stride_ps,
    stride_cosb,
    stride_coss,
    stride_sinb,
    stride_sins,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
    """o is the rotated q, and p the rotated k."""
    program, of_q = tl.program_id(0), tl.cdiv(rows_q, ROWS)
    if program < of_q:
        _turn(
            q_ptr, o_ptr, cos_ptr, sin_ptr, program, rows_q, S, stride_qb, stride_qh, stride_qs, stride_ob, stride_oh,
            stride_os, stride_cosb, stride_coss, stride_sinb, stride_sins, H, D, HALF, EVEN, ROWS, BLOCK, BLOCK_REST,
        )  # fmt: skip
    else:
        _turn(
            k_ptr, p_ptr, cos_ptr, sin_ptr, program - of_q, rows_k, S, stride_kb, stride_kh, stride_ks, stride_pb,
            stride_ph, stride_ps, stride_cosb, stride_coss, stride_sinb, stride_sins, G, D, HALF, EVEN, ROWS, BLOCK,
            BLOCK_REST,
        )  # fmt: skip


def forward(q: Any, k: Any, cos: Any, sin: Any, *, launch: Launch | None = None) -> tuple[Any, Any]:
    """Return q and k rotated, newly allocated."""
    return prepared(q, k, cos, sin, launch)(q, k, cos, sin)


def prepared(q: Any, k: Any, cos: Any, sin: Any, launch: Launch | None = None) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtypes, device and alignment to 16 bytes as these."""
    (B, H, S, D), G, half = q.shape, k.shape[1], cos.shape[2]
    launch = launch or Launch.choose(D, half)
    turned = [(x, torch.empty_like(x, device="meta")) for x in (q, k)]
    strides = [stride for both in turned for x in both for stride in x.stride()[:3]]
    for table in (cos, sin):  # one table for the whole batch, or one per batch entry
        strides += [table.stride(0) if len(table) > 1 else 0, table.stride(1)]
    rows = B * S * H, B * S * G
    constants = {
        "H": H,
        "G": G,
        "D": D,
        "HALF": half,
        "EVEN": evenness(half, D, *strides),
        "ROWS": launch.rows,
        "BLOCK": max(16, triton.next_power_of_2(half)),
        "BLOCK_REST": max(16, triton.next_power_of_2(D - 2 * half)),
    }
    programs = sum(triton.cdiv(n, launch.rows) for n in rows)
    run = Launcher(rotary_forward_kernel, (programs, 1, 1), constants, {"num_warps": launch.num_warps}, q.device)
    make = maker_like(q, k)

    def forward(q: Any, k: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
        turned_q, turned_k = make()
        if programs:
            run(q, k, cos, sin, turned_q, turned_k, S, *rows, *strides)
        return turned_q, turned_k

    return forward
