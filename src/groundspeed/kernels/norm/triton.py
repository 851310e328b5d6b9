"""RMSNorm and LayerNorm in portable Triton: y = x / √(mean(x²) + eps) · w, and (x − mean) / √(var + eps) · w + b, after
adding the residual if there is one.

x [..., N] has any strides (rows.py), except that the last one is 1; w and b [N] are in the dtype of x or in FP32. The
statistics and everything after them are computed in FP32 and rounded once. With a residual, x + residual is rounded to
the dtype of x, stored, and then normalised, exactly as if the sum had been computed separately. y and the sum are
stored as with `torch.empty_like`.

Rows that fit the registers of a program are read once; a program handles several rows if they are short. Longer rows
are read twice, the second time most likely from L2: once for the statistics, which every lane first computes of its own
elements (variances by Welford's update) before they are combined, and once for the result. Sums are always taken in the
same order, whatever other rows there are.

CHAINED, for Hopper: a kernel starts while the one before it is still running, computes its places, and waits before it
accesses memory. That includes the weights, which that kernel may have computed (`1 + weight`).

Limit: memory traffic. N is a compile-time constant. Trade-off: every program reads w and b again, from L1 or L2;
persistent programs would keep them in registers, but wait for each row in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher, maker_like
from groundspeed.kernels.rows import Rows, evenness, row_offsets

Forward = Callable[..., Any]
"""Takes x, weight, bias, residual and eps; returns y, and with a residual also the sum."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    rows: int
    block_n: int
    num_warps: int

    @classmethod
    def choose(cls, columns: int) -> Launch:
        """Return the launch for rows of this many columns. Not measured yet. A lane has 16 elements: in 16 bits, two
        loads of 16 bytes from each tensor. It takes up to 64 registers, so that a multiprocessor has 1,024 lanes and at
        least 32 KB of x in flight; by Little's law an H200 needs 25 KB (4.8 TB/s · 0.7 µs over 132). A program has at
        least 2,048 elements, to be worth its start. Rows of more than 8,192 and up to 16,384 elements have 32 elements
        in each of 512 lanes; with weights and biases in FP32 these take 128 registers, all that are available. Longer
        rows are processed in blocks of half that size."""
        if columns > 16384:
            return cls(1, 8192, 16)
        block = max(16, triton.next_power_of_2(columns))
        rows = max(1, 2048 // block)
        return cls(rows, block, min(16, rows * block // 512))


@triton.jit
def _load(x_ptr, residual_ptr, sum_ptr, x_at, residual_at, y_at, here):
    """Load x; or the sum of x and the residual, which is also stored, as rounded."""
    values = tl.load(x_ptr + x_at, mask=here, other=0.0)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + residual_at, mask=here, other=0.0)
        values = (values.to(tl.float32) + residual.to(tl.float32)).to(values.dtype)
        tl.store(sum_ptr + y_at, values, mask=here)
    return values.to(tl.float32)


@triton.jit
def _weights(weight_ptr, bias_ptr, col, inside):
    """Load weights and biases at column indices in the shape of the values: each lane loads those of its own elements,
    and none have to be exchanged."""
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
"""The number of rows, and their layout. They are not specialised: the kernel tells the compiler what it needs to know
about them."""


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
    CHAINED: tl.constexpr,
):
    """Normalise whole rows in registers."""
    if CHAINED:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.broadcast_to(tl.arange(0, BLOCK_N)[None, :], [ROWS, BLOCK_N])
    inside = col < N
    here = (row < M)[:, None] & inside
    x_at = row_offsets(row, n1, n2, stride_x0, stride_x1, stride_x2, FLAT, EVEN)[:, None] + col
    y_at = row_offsets(row, n1, n2, stride_y0, stride_y1, stride_y2, FLAT, EVEN)[:, None] + col
    residual_at = x_at
    if residual_ptr is not None:
        residual_at = row_offsets(row, n1, n2, stride_r0, stride_r1, stride_r2, FLAT, EVEN)[:, None] + col
    if CHAINED:
        gdc_wait()
    weight, bias = _weights(weight_ptr, bias_ptr, col, inside)  # before x, so that both loads are in flight together
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
    CHAINED: tl.constexpr,
):
    """Normalise one row of more than BLOCK_N elements. ROWS is 1."""
    if CHAINED:
        gdc_launch_dependents()
    row, lane = tl.program_id(0) + tl.arange(0, 1), tl.arange(0, BLOCK_N)[None, :]
    x_row = row_offsets(row, n1, n2, stride_x0, stride_x1, stride_x2, FLAT, EVEN)[:, None]
    y_row = row_offsets(row, n1, n2, stride_y0, stride_y1, stride_y2, FLAT, EVEN)[:, None]
    residual_row = x_row
    if residual_ptr is not None:
        residual_row = row_offsets(row, n1, n2, stride_r0, stride_r1, stride_r2, FLAT, EVEN)[:, None]
    if CHAINED:
        gdc_wait()

    mean, squares = tl.zeros([1, BLOCK_N], tl.float32), tl.zeros([1, BLOCK_N], tl.float32)
    for first in tl.range(0, N, BLOCK_N):
        col = first + lane
        here = col < N
        values = _load(x_ptr, residual_ptr, sum_ptr, x_row + col, residual_row + col, y_row + col, here)
        if CENTERED:  # deviations from the old and from the new mean of the lane
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
        tl.debug_barrier()  # what follows reads sums that other threads stored
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
    chained: bool = False,
) -> Any:
    """Return y, and with a residual also the sum, newly allocated."""
    run = prepared(x, weight, bias, residual, centered=centered, launch=launch, chained=chained)
    return run(x, weight, bias, residual, eps)


def prepared(
    x: Any,
    weight: Any,
    bias: Any = None,
    residual: Any = None,
    *,
    centered: bool,
    launch: Launch | None = None,
    chained: bool = False,
) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtypes, device and alignment to 16 bytes as these.
    `chained`: it starts while the kernel before it is still running."""
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
        "CHAINED": chained,
    }
    options = {"num_warps": launch.num_warps, **({"launch_pdl": True} if chained else {})}
    kernel = norm_forward_kernel if launch.block_n >= N else norm_long_forward_kernel
    grid = triton.cdiv(rows.count, launch.rows), 1, 1
    run = Launcher(kernel, grid, constants, options, x.device)
    make = maker_like(*[x] * (1 if residual is None else 2))

    def forward(x: Any, weight: Any, bias: Any, residual: Any, eps: float) -> Any:
        made = make()
        y, total = made if residual is not None else (*made, None)
        if grid[0]:
            run(x, weight, bias, residual, y, total, eps, rows.count, *numbers)
        return y if total is None else (y, total)

    return forward
