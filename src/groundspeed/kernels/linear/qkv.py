"""Queries, keys and values of a few tokens in one launch: rows are normalised and multiplied, queries and keys get
their rotary embedding, and keys and values are written to their pages.

x is [B·S, K]; w [(H + 2·G)·D, K] has the rows of H query heads, then of G key heads and of G value heads, as a linear
layer computes them together. cos and sin [1 or B, S, D/2] are as in groundspeed.rotary with R = D, or absent. k_pages
and v_pages [P, G, page, D], pages [B, most] and lengths [B] are as in groundspeed.append_paged: token s of sequence b
goes to position lengths[b] − S + s, or nowhere if that position has no place. The queries are returned as [B·S, H·D].

The kernel works as in triton.py, except that the columns of a program are pairs i and i + D/2 of the same heads, which
are rotated together. Everything is in FP32 until it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher, maker
from groundspeed.kernels.linear.device import ask_for_first, product
from groundspeed.kernels.linear.form import NOTHING, Norm, Pages
from groundspeed.kernels.linear.triton import Launch, constants_of

Forward = Callable[..., Any]
"""Takes x, weight, bias, norm, angles and pages; returns the queries [B·S, H·D]."""


@triton.jit
def _store(pages_ptr, values, page, row, head, column, here, stride_p, stride_h, stride_n):
    at = pages_ptr + page * stride_p + head.to(tl.int64)[None, :] * stride_h + row * stride_n + column[None, :]
    tl.store(at, values.to(pages_ptr.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["M", "S", "MOST", "P"])
def linear_qkv_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    cos_ptr,
    sin_ptr,
    q_ptr,
    k_pages_ptr,
    v_pages_ptr,
    table_ptr,
    lengths_ptr,
    eps,
    M,
    S,
    MOST,
    P,
    stride_x,
    stride_w,
    stride_cosb,
    stride_coss,
    stride_sinb,
    stride_sins,
    stride_kp,
    stride_kh,
    stride_kn,
    stride_vp,
    stride_vh,
    stride_vn,
    stride_table,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K: tl.constexpr,
    CENTERED: tl.constexpr,
    EIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
    STATISTICS_K: tl.constexpr,
    AHEAD: tl.constexpr,
    CHAINED: tl.constexpr,
):
    HALF: tl.constexpr = D // 2
    N: tl.constexpr = (H + 2 * G) * D
    pair = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    head, column = pair // HALF, pair % HALF
    # Not head * D + column: LLVM in Triton 3.6.0 would compute some of these numbers wrong, with all layouts in which a
    # thread has two neighbours (it puts a lane's number, shifted by too much, and a column into one 64-bit register).
    n = tl.where(head < H + 2 * G, pair + head * HALF, N)
    if AHEAD:
        ask_for_first(w_ptr, w_ptr, bias_ptr, norm_weight_ptr, norm_bias_ptr, n, n + HALF, N, stride_w, K, True, AHEAD)
    if CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    # What the result needs is on its way while the product is computed.
    batch, token, here = (m // S).to(tl.int64), (m % S).to(tl.int64), m < M
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0)
        other_bias = tl.load(bias_ptr + n + HALF, mask=n < N, other=0.0)
    if cos_ptr is not None:
        turns = here[:, None] & (head < H + G)[None, :]
        cos_at = (batch * stride_cosb + token * stride_coss)[:, None] + column[None, :]
        sin_at = (batch * stride_sinb + token * stride_sins)[:, None] + column[None, :]
        cos = tl.load(cos_ptr + cos_at, mask=turns, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + sin_at, mask=turns, other=0.0).to(tl.float32)
    length = tl.load(lengths_ptr + batch, mask=here, other=0)
    values, other = product(
        x_ptr, w_ptr, w_ptr, norm_weight_ptr, norm_bias_ptr, m, n, n + HALF, N, M, stride_x, stride_w, eps,
        K, True, CENTERED, EIGHTS, ROWS, BLOCK_M, BLOCK_K, PARTS, STATISTICS_K, AHEAD,
    )  # fmt: skip
    if bias_ptr is not None:
        values += bias.to(tl.float32)[None, :]
        other += other_bias.to(tl.float32)[None, :]
    if cos_ptr is not None:
        turned, partner = values * cos - other * sin, other * cos + values * sin
        values, other = tl.where(turns, turned, values), tl.where(turns, partner, other)
    q_at = q_ptr + m[:, None].to(tl.int64) * (H * D) + n[None, :]
    is_query = here[:, None] & (head < H)[None, :]
    tl.store(q_at, values.to(q_ptr.dtype.element_ty), mask=is_query)
    tl.store(q_at + HALF, other.to(q_ptr.dtype.element_ty), mask=is_query)
    if pair_end(tl.program_id(0), BLOCK_N, HALF) > H:
        position = length.to(tl.int64) - S + token
        has_entry = here & (position >= 0) & (position < MOST)
        entry = table_ptr + batch * stride_table + position // PAGE
        page = tl.load(entry, mask=has_entry, other=-1).to(tl.int64)
        has_place, row, page = ((page >= 0) & (page < P))[:, None], (position % PAGE)[:, None], page[:, None]
        is_key = has_place & ((head >= H) & (head < H + G))[None, :]
        _store(k_pages_ptr, values, page, row, head - H, column, is_key, stride_kp, stride_kh, stride_kn)
        _store(k_pages_ptr, other, page, row, head - H, column + HALF, is_key, stride_kp, stride_kh, stride_kn)
        is_value = has_place & ((head >= H + G) & (head < H + 2 * G))[None, :]
        _store(v_pages_ptr, values, page, row, head - H - G, column, is_value, stride_vp, stride_vh, stride_vn)
        _store(v_pages_ptr, other, page, row, head - H - G, column + HALF, is_value, stride_vp, stride_vh, stride_vn)


@triton.jit
def pair_end(program, BLOCK_N: tl.constexpr, HALF: tl.constexpr):
    """Return the head after the last one of a program."""
    return (program * BLOCK_N + BLOCK_N - 1) // HALF + 1


def prepared(
    x: Any,
    weight: Any,
    norm: Norm | None,
    angles: tuple[Any, Any] | None,
    pages: Pages,
    heads: int,
    *,
    launch: Launch | None = None,
    chained: bool = False,
    roomy: bool = False,
) -> Forward:
    """Return a function for tensors with the same shapes, strides, dtypes, device and alignment to 16 bytes as these.
    `chained`: the kernel starts while the one before it is still running. `roomy` is as in `Launch.choose`."""
    (M, K), (P, G, page, D), B = x.shape, pages.k_pages.shape, len(pages.lengths)
    launch = launch or Launch.choose(M, weight.shape[0] // 2, K, 2, roomy=roomy)
    strides = [x.stride(0), weight.stride(0)]
    for table in angles or ():  # one table for the whole batch, or one per batch entry
        strides += [table.stride(0) if len(table) > 1 else 0, table.stride(1)]
    strides += [0] * (6 - len(strides))
    strides += [stride for each in (pages.k_pages, pages.v_pages) for stride in each.stride()[:3]]
    numbers = M, M // max(1, B), pages.table.shape[1] * page, P, *strides, pages.table.stride(0)
    constants = {
        "H": heads,
        "G": G,
        "D": D,
        "PAGE": page,
        "K": K,
        **constants_of(x, weight.stride(0), norm, launch, chained=chained),
    }
    options = {**launch.options, **({"launch_pdl": True} if chained else {})}
    grid = triton.cdiv(weight.shape[0] // 2, launch.block_n), triton.cdiv(M, launch.block_m), 1
    run, make = (
        Launcher(linear_qkv_kernel, grid, constants, options, x.device),
        maker(x.device, ((M, heads * D), x.dtype)),
    )

    def forward(x: Any, weight: Any, bias: Any, norm: Norm | None, angles: Any, pages: Pages) -> Any:
        (q,) = make()
        if M:
            scale, shift, eps, _ = norm or NOTHING
            cos, sin = angles or (None, None)
            run(x, weight, bias, scale, shift, cos, sin, q, *pages, float(eps), *numbers)
        return q

    return forward
