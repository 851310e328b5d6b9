"""RMSNorm and LayerNorm of rows in portable Triton: y = x / √(mean(x²) + eps) · w, and (x − mean) / √(var + eps) · w +
b; after the residual sum where there is one.

x [..., N] with rows anywhere (rows.py), their elements side by side; w and b [N] in the dtype of x or FP32. Statistics
and all that follows in FP32, rounded once. With a residual, x + residual is rounded to the dtype of x, stored, and
normed as it was rounded: as if the sum had been made before. y and the sum lie as `torch.empty_like` has them.

Rows that fit the registers of a program are read once; of short ones a program has several. Longer ones are read
twice, the second time from L2 in all likelihood: once for their statistics, which every lane has of its own elements
(variances by Welford's update) before all are put together, and once for the result. Sums are always taken in the same
order, whatever is beside a row.

Limit: what is read and written. N is a constant of the compiled kernel. Trade-off: w and b are read again by every
program, from L1 or L2; programs that stay for many rows would keep them in registers, and wait for each row in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher, maker_like
from groundspeed.kernels.rows import Rows, evenness, row_offsets

Forward = Callable[..., Any]
"""Of x, weight, bias, residual and eps: y, and with a residual also the sum."""


@dataclass(frozen=True)
class Launch:
    """Every tunable of a launch, nothing else."""

    rows: int
    block_n: int
    num_warps: int

    @classmethod
    def choose(cls, columns: int) -> Launch:
        """Not measured yet. A lane has 16 elements: of 16 bits two loads of 16 bytes from each tensor. It takes up to
        64 registers, so that a multiprocessor has 1,024 lanes and 32 KB of x under way at least; Little's law asks
        25 KB of an H200 (4.8 TB/s · 0.7 µs over 132). A program has 2,048 elements at least, to be worth its beginning.
        Rows of more than 8,192 elements have 32 in each of 512 lanes, up to 16,384: with weights and biases in FP32
        these take 128 registers, which is all that there are. Longer ones go by in blocks of half of that."""
        if columns > 16384:
            return cls(1, 8192, 16)
        block = max(16, triton.next_power_of_2(columns))
        rows = max(1, 2048 // block)
        return cls(rows, block, min(16, rows * block // 512))


@triton.jit
def _load(x_ptr, residual_ptr, sum_ptr, x_at, residual_at, y_at, here):
    """Of x, or of its sum with the residual, which is stored as it is rounded."""
    values = tl.load(x_ptr + x_at, mask=here, other=0.0)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + residual_at, mask=here, other=0.0)
        values = (values.to(tl.float32) + residual.to(tl.float32)).to(values.dtype)
        tl.store(sum_ptr + y_at, values, mask=here)
    return values.to(tl.float32)


@triton.jit
def _weights(weight_ptr, bias_ptr, col, inside):
    """And biases, of columns in the shape of their values: lanes load those of their own elements, and none have to be
    exchanged."""
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0)
    bias = weight
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + col, mask=inside, other=0.0)
    return weight, bias


@triton.jit
def _store(y_ptr, bias_ptr, at, values, weight, bias, here):
    values *= weight.to(tl.float32)
    if bias_ptr is not None:
        values += bias.to(tl.float32)
    tl.store(y_ptr + at, values.to(y_ptr.dtype.element_ty), mask=here)


NUMBERS = ["M", "n1", "n2", *(f"stride_{tensor}{i}" for tensor in "xyr" for i in range(3))]
"""Rows, and where they lie: the compiler is told what it needs to know of them."""


@triton.jit(do_not_specialize=NUMBERS)
def norm_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    y_ptr,
    sum_ptr,
    eps,
    M,
    n1,
    n2,
    stride_x0,
    stride_x1,
    stride_x2,
    stride_y0,
    stride_y1,
    stride_y2,
    stride_r0,
    stride_r1,
    stride_r2,
    N: tl.constexpr,
    CENTERED: tl.constexpr,
    FLAT: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Whole rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.broadcast_to(tl.arange(0, BLOCK_N)[None, :], [ROWS, BLOCK_N])
    inside = col < N
    here = (row < M)[:, None] & inside
    x_at = row_offsets(row, n1, n2, stride_x0, stride_x1, stride_x2, FLAT, EVEN)[:, None] + col
    y_at = row_offsets(row, n1, n2, stride_y0, stride_y1, stride_y2, FLAT, EVEN)[:, None] + col
    residual_at = x_at
    if residual_ptr is not None:
        residual_at = row_offsets(row, n1, n2, stride_r0, stride_r1, stride_r2, FLAT, EVEN)[:, None] + col
    weight, bias = _weights(weight_ptr, bias_ptr, col, inside)  # now: they are under way together with x
    values = _load(x_ptr, residual_ptr, sum_ptr, x_at, residual_at, y_at, here)
    if CENTERED:
        values -= (tl.sum(values, 1) / N)[:, None]
        if N < BLOCK_N:
            values = tl.where(inside, values, 0.0)
    values *= tl.rsqrt(tl.sum(values * values, 1) / N + eps)[:, None]
    _store(y_ptr, bias_ptr, y_at, values, weight, bias, here)


@triton.jit(do_not_specialize=NUMBERS)
def norm_long_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    y_ptr,
    sum_ptr,
    eps,
    M,
    n1,
    n2,
    stride_x0,
    stride_x1,
    stride_x2,
    stride_y0,
    stride_y1,
    stride_y2,
    stride_r0,
    stride_r1,
    stride_r2,
    N: tl.constexpr,
    CENTERED: tl.constexpr,
    FLAT: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One row of more than BLOCK_N elements; ROWS is 1."""
    row, lane = tl.program_id(0) + tl.arange(0, 1), tl.arange(0, BLOCK_N)[None, :]
    x_row = row_offsets(row, n1, n2, stride_x0, stride_x1, stride_x2, FLAT, EVEN)[:, None]
    y_row = row_offsets(row, n1, n2, stride_y0, stride_y1, stride_y2, FLAT, EVEN)[:, None]
    residual_row = x_row
    if residual_ptr is not None:
        residual_row = row_offsets(row, n1, n2, stride_r0, stride_r1, stride_r2, FLAT, EVEN)[:, None]

    mean, squares = tl.zeros([1, BLOCK_N], tl.float32), tl.zeros([1, BLOCK_N], tl.float32)
    for first in tl.range(0, N, BLOCK_N):
        col = first + lane
        here = col < N
        values = _load(x_ptr, residual_ptr, sum_ptr, x_row + col, residual_row + col, y_row + col, here)
        if CENTERED:  # what deviates from the mean of the lane so far, and from the new one
            before = values - mean
            if N % BLOCK_N:
                before = tl.where(here, before, 0.0)
            mean += before * (1.0 / (first // BLOCK_N + 1))
            squares += before * (values - mean)
        else:
            squares += values * values
    if CENTERED:
        counts = ((N - 1 - lane) // BLOCK_N + 1).to(tl.float32)  # elements of each lane
        center = tl.sum(mean * counts) / N
        squares += counts * (mean - center) * (mean - center)
    scale = tl.rsqrt(tl.sum(squares) / N + eps)

    if residual_ptr is not None:
        tl.debug_barrier()  # what other threads stored of the sum is read now
    for first in tl.range(0, N, BLOCK_N):
        col = first + lane
        here = col < N
        if residual_ptr is not None:
            values = tl.load(sum_ptr + y_row + col, mask=here, other=0.0).to(tl.float32)
        else:
            values = tl.load(x_ptr + x_row + col, mask=here, other=0.0).to(tl.float32)
        if CENTERED:
            values -= center
        weight, bias = _weights(weight_ptr, bias_ptr, col, here)
        _store(y_ptr, bias_ptr, y_row + col, values * scale, weight, bias, here)


def forward(
    x: Any,
    weight: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    eps: float,
    centered: bool,
    launch: Launch | None = None,
) -> Any:
    """y, and with a residual also the sum, freshly allocated."""
    return prepared(x, weight, bias, residual, centered=centered, launch=launch)(x, weight, bias, residual, eps)


def prepared(
    x: Any, weight: Any, bias: Any = None, residual: Any = None, *, centered: bool, launch: Launch | None = None
) -> Forward:
    """`forward` for tensors like these: of the same shapes, strides, dtypes, device and alignment to 16 bytes."""
    N, y = x.shape[-1], torch.empty_like(x, device="meta")
    rows = Rows.of(x, y, *([] if residual is None else [residual]))
    launch = launch or Launch.choose(N)
    numbers = rows.numbers if residual is not None else (*rows.numbers, 0, 0, 0)
    constants = {
        "N": N,
        "CENTERED": centered,
        "FLAT": rows.flat,
        "EVEN": evenness(N, *numbers[2:]),
        "ROWS": launch.rows,
        "BLOCK_N": launch.block_n,
    }
    kernel = norm_forward_kernel if launch.block_n >= N else norm_long_forward_kernel
    grid = triton.cdiv(rows.count, launch.rows), 1, 1
    run = Launcher(kernel, grid, constants, {"num_warps": launch.num_warps}, x.device)
    make = maker_like(*[x] * (1 if residual is None else 2))

    def forward(x: Any, weight: Any, bias: Any, residual: Any, eps: float) -> Any:
        made = make()
        y, total = made if residual is not None else (*made, None)
        if grid[0]:
            run(x, weight, bias, residual, y, total, eps, rows.count, *numbers)
        return y if total is None else (y, total)

    return forward
