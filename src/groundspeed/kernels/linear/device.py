"""Device functions of the kernels for few rows: normalising rows as they are read, and multiplying them by rows of a
matrix.

A program has BLOCK_N columns of the result, or twice as many: it reads as many rows of a matrix [.., K], which have one
stride, from start to end. Only that takes time. So the kernel prefetches the start of these rows to L2 before it waits
for the previous kernel, and some more while it normalises. A prefetch is only a hint and needs no order. Everything is
read after the wait, weights and biases too: any of them may have been made by the previous kernel."""

from __future__ import annotations

import triton
import triton.language as tl

LINE_BYTES = tl.constexpr(128)
"""What a prefetch brings: a cache line."""


@triton.jit
def ask_for(w_ptr, n, N, stride_w, K: tl.constexpr, BEGIN: tl.constexpr, COUNT: tl.constexpr):
    """Prefetch COUNT elements of rows n of a matrix, from element BEGIN on, to L2."""
    LINE: tl.constexpr = LINE_BYTES * 8 // w_ptr.dtype.element_ty.primitive_bitwidth
    if BEGIN < K and COUNT > 0:
        line = BEGIN + tl.arange(0, COUNT // LINE) * LINE
        at = w_ptr + n[:, None].to(tl.int64) * stride_w + tl.minimum(line, K - 1)[None, :]
        at = tl.where((n < N)[:, None], at, w_ptr).to(tl.int64)
        tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], tl.int32, False, 1)


@triton.jit
def ask_for_vector(ptr, n, N):
    """Prefetch elements n of a vector to L2, as far as there are any."""
    at = (ptr + tl.where(n < N, n, 0)).to(tl.int64)
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], tl.int32, False, 1)


@triton.jit
def ask_for_first(
    w_ptr,
    other_ptr,
    bias_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    n,
    other_n,
    N,
    stride_w,
    K: tl.constexpr,
    TWICE: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Prefetch what a program reads first of rows n of the matrix and, if TWICE, of rows other_n of the other; of the
    norm's weights; and of the bias."""
    ask_for(w_ptr, n, N, stride_w, K, 0, AHEAD)
    if TWICE:
        ask_for(other_ptr, other_n, N, stride_w, K, 0, AHEAD)
    if norm_weight_ptr is not None:
        ask_for(norm_weight_ptr, tl.arange(0, 1), 1, 0, K, 0, AHEAD)
        if norm_bias_ptr is not None:
            ask_for(norm_bias_ptr, tl.arange(0, 1), 1, 0, K, 0, AHEAD)
    if bias_ptr is not None:
        ask_for_vector(bias_ptr, n, N)
        if TWICE:
            ask_for_vector(bias_ptr, other_n, N)


@triton.jit
def statistics(
    x_ptr,
    w_ptr,
    other_ptr,
    n,
    other_n,
    N,
    M,
    stride_x,
    stride_w,
    eps,
    K: tl.constexpr,
    TWICE: tl.constexpr,
    CENTERED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Return the means of the first ROWS rows of a program, or 0 if they are not centered, and the factors that
    normalise them. The rows are read once, four blocks at a time: every lane tracks the mean and the squares of its own
    elements (Welford's update) before they are combined. The matrix is not read meanwhile, so AHEAD more elements of
    its rows are prefetched, behind the first block of x."""
    m, lane = tl.program_id(1) * BLOCK_M + tl.arange(0, ROWS), tl.arange(0, BLOCK)[None, :]
    at = x_ptr + m[:, None].to(tl.int64) * stride_x + lane
    mean, squares = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    for first in tl.range(0, K, BLOCK, num_stages=1, loop_unroll_factor=4):
        here = (m < M)[:, None] & (lane < K - first)
        values = tl.load(at + first, mask=here, other=0.0).to(tl.float32)
        if first == 0:
            ask_for(w_ptr, n, N, stride_w, K, AHEAD, AHEAD)
            if TWICE:
                ask_for(other_ptr, other_n, N, stride_w, K, AHEAD, AHEAD)
        if CENTERED:  # deviations from the old and from the new mean of the lane
            before = tl.where(here, values - mean, 0.0)
            mean += before * (1.0 / (first // BLOCK + 1))
            squares += before * (values - mean)
        else:
            squares += values * values
    center = tl.zeros([ROWS], tl.float32)
    if CENTERED:
        counts = tl.where(lane < K, (K - 1 - lane) // BLOCK + 1, 0).to(tl.float32)  # elements of each lane
        center = tl.sum(mean * counts, 1) / K
        squares += counts * (mean - center[:, None]) * (mean - center[:, None])
    return center, tl.rsqrt(tl.sum(squares, 1) / K + eps)


@triton.jit
def _rows(values, PARTS: tl.constexpr):
    """Return a value for each row of x as a column: [rows, 1] or, if K is in parts, [1, rows, 1]."""
    return values[:, None] if PARTS == 1 else values[None, :, None]


@triton.jit
def _columns(values, PARTS: tl.constexpr):
    """Return a value for each row of the matrix as a row: [1, columns] or, if K is in parts, [1, 1, columns]."""
    return values[None, :] if PARTS == 1 else values[None, None, :]


@triton.jit
def _for_all(values, ROWS: tl.constexpr, BLOCK_M: tl.constexpr):
    """Repeat the values of ROWS rows for BLOCK_M rows. The results of the extra rows are not stored."""
    if ROWS < BLOCK_M:
        return tl.reshape(tl.broadcast_to(values[None, :], (BLOCK_M // ROWS, ROWS)), (BLOCK_M,))
    # A sum with zeros: if the values were only passed on, Triton 3.6 would send x through shared memory, in FP32.
    own = tl.arange(0, BLOCK_M)[:, None] == tl.arange(0, ROWS)[None, :]
    return tl.sum(tl.where(own, values[None, :], 0.0), 1)


@triton.jit
def product(
    x_ptr,
    w_ptr,
    other_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    m,
    n,
    other_n,
    N,
    M,
    stride_x,
    stride_w,
    eps,
    K: tl.constexpr,
    TWICE: tl.constexpr,
    CENTERED: tl.constexpr,
    EIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
    STATISTICS_K: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Return the FP32 product [BLOCK_M, columns] of rows m of x with rows n of the matrix; if TWICE, also that with
    rows other_n of the other matrix, which has the same stride. With a norm, there are at most ROWS rows. Rows from N
    on are not read. Every block of K is multiplied in PARTS parts, which are added up at the end, in a fixed order."""
    if EIGHTS:  # changes no number, but tells the compiler that 16 bytes can be loaded at once
        stride_x, stride_w = stride_x // 8 * 8, stride_w // 8 * 8
    if norm_weight_ptr is not None:
        mean, scale = statistics(
            x_ptr, w_ptr, other_ptr, n, other_n, N, M, stride_x, stride_w, eps,
            K, TWICE, CENTERED, ROWS, BLOCK_M, STATISTICS_K, AHEAD,
        )  # fmt: skip
        mean, scale = _rows(_for_all(mean, ROWS, BLOCK_M), PARTS), _rows(_for_all(scale, ROWS, BLOCK_M), PARTS)
    m, n, other_n = _rows(m, PARTS), _columns(n, PARTS), _columns(other_n, PARTS)
    k = tl.arange(0, BLOCK_K // PARTS)
    if PARTS == 1:
        x_k, w_k = k[None, :], k[:, None]
        values = tl.zeros([BLOCK_M, n.shape[1]], tl.float32)
    else:  # of a reshaped range, Triton would not see that 16 bytes can be loaded at once
        k = tl.arange(0, PARTS)[:, None] * (BLOCK_K // PARTS) + k[None, :]
        x_k, w_k = k[:, None, :], k[:, :, None]
        values = tl.zeros([PARTS, BLOCK_M, n.shape[2]], tl.float32)
    other = values
    x_at = x_ptr + m.to(tl.int64) * stride_x + x_k
    w_at = w_ptr + n.to(tl.int64) * stride_w + w_k
    other_at = other_ptr + other_n.to(tl.int64) * stride_w + w_k
    for done in range(0, K, BLOCK_K):
        x_here, w_here, other_here = m < M, n < N, other_n < N
        if K % BLOCK_K:
            x_here, w_here, other_here = (
                x_here & (x_k < K - done),
                w_here & (w_k < K - done),
                other_here & (w_k < K - done),
            )
        x = tl.load(x_at + done, mask=x_here, other=0.0)
        if norm_weight_ptr is not None:
            weight = tl.load(norm_weight_ptr + done + x_k, mask=x_k < K - done, other=0.0).to(tl.float32)
            normed = (x.to(tl.float32) - mean) * scale * weight
            if norm_bias_ptr is not None:
                normed += tl.load(norm_bias_ptr + done + x_k, mask=x_k < K - done, other=0.0).to(tl.float32)
            x = normed.to(x_ptr.dtype.element_ty)
        values = tl.dot(x, tl.load(w_at + done, mask=w_here, other=0.0), values)
        if TWICE:
            other = tl.dot(x, tl.load(other_at + done, mask=other_here, other=0.0), other)
    if PARTS > 1:
        values, other = tl.sum(values, 0), tl.sum(other, 0)
    return values, other
