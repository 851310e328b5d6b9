"""A few rows times a matrix in portable Triton: y = activation(norm(x)·wᵀ + b) + residual.

x [M, K] has a few rows; w is [N, K] (SwiGLU: [2·N, K] with the gate first, or a gate like w, without biases); b and
residual are like the result y [M, N]. FP16 or BF16 with FP32 accumulation. Norms are as in norm/triton.py, computed in
FP32 and rounded before the product; everything after the product is computed in FP32 and rounded once.

A program computes some columns of y, for up to BLOCK_M rows, over all of K: with so few rows, each byte of w is read
once, by one program, and no partial results have to be combined; the order of sums is always the same. Every program
reads x and the norm's weights, from L2.

Limit: reading w. Trade-off: every program reads x, so with more than 16 rows the bytes of x from L2 exceed those of w
from memory. Rows to be normalised are read once more before the product: with up to MOST_NORMED columns, that takes
less time than a separate kernel. The norm does not store its result or a residual sum: a residual that later layers
add to is added by the product before."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.activation.triton import SWIGLU, activated_values
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.launch import MULTIPROCESSORS, Launcher, maker
from groundspeed.kernels.linear.device import ask_for_first, product
from groundspeed.kernels.linear.form import MOST_PRODUCT_ROWS, NOTHING, SMALL_MATRIX, Norm

Forward = Callable[..., Any]
"""Takes x [M, K], weight, bias, gate, norm and residual [M, N]; returns y [M, N]."""
SHARED, ROOMY = 90112, 131072
"""The most bytes of shared memory for blocks in flight, on all GPUs and on roomy ones."""
NONE = tl.constexpr(-1)
"""Means no activation."""


FEW = (
    (16, 16, 512, 5),
    (32, 32, 256, 6),
    (48, 16, 512, 3),
    (64, 32, 256, 5),
    (96, 32, 256, 4),
    (128, 64, 256, 3),
    (math.inf, 32, 512, 3),
)
"""For up to so many rows of the matrix for each multiprocessor: rows of a program, of which 32 or more for two tiles,
and length and stages of its blocks of K."""
SHORT_K = 1024
"""Up to so many columns, with which the norm may be in the product, blocks of K have at most 256: with a norm, longer
ones send x through shared memory in FP32."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    parts: int = 1
    """The parts of a block of K that are multiplied at the same time, each by its own warps."""
    ahead: int = 512
    """Elements of each row of the matrix that are prefetched before the kernel waits for anything."""

    @classmethod
    def choose(cls, rows: int, columns: int, K: int, tiles: int = 1, *, roomy: bool = False) -> Launch:
        """Return the launch for `rows` rows and `columns` columns. `tiles` tiles of the matrix are read at once: two
        with a gate. `roomy`: a multiprocessor has 227 KB of shared memory, and programs may use more than the 99 KB
        that all GPUs have.

        The fastest of some 30 launches, on an H200 with 1 and 8 rows and 16 matrices of 768 to 28,672 rows and 768 to
        16,384 columns, most while the next kernel still started before the wait (docs/log.md). They agree in one thing:
        all programs run at once, one to three on each multiprocessor, so `FEW` goes by the rows of the matrix for each
        multiprocessor, up to 128. Up to 32 rows, each warp multiplies its own quarter of a block of K, so it loads and
        norms a quarter of x, and waits for a quarter of the products; wgmma, for more rows, takes all warps."""
        if rows > 32:
            small = roomy and rows <= MOST_PRODUCT_ROWS and tiles * columns * K <= SMALL_MATRIX
            return cls._of_many(rows, tiles * columns, tiles, small=small)
        each = triton.cdiv(tiles * columns, MULTIPROCESSORS)
        fitting = (one for most, *one in FEW if each <= most and one[0] >= 16 * tiles)
        wide, block_k, stages = next(fitting)
        block_m = max(16, triton.next_power_of_2(rows))
        if block_k > 256 and (K <= SHORT_K or not roomy):
            block_k, stages = 256, 2 * stages - 1
        stage = 2 * block_k * (wide + block_m)
        most = min((ROOMY if roomy else SHARED) // stage, triton.cdiv(K, block_k))
        stages = max(2, min(stages, most + 1))  # that of an awaited product is free
        return cls(block_m, wide // tiles, block_k, 4, stages, 4)

    @classmethod
    def _of_many(cls, rows: int, wide: int, tiles: int, *, small: bool) -> Launch:
        """Return the launch for more than 32 rows and `wide` rows of the matrix, in tiles of 64 × up to 64. A small
        matrix is for each multiprocessor one program or two, measured on an H200 with 64 and 128 rows and matrices of
        768 to 3,072 rows; more rows of x pay for wider tiles, which read x less often. Others are not measured."""
        programs = triton.cdiv(rows, 64) * wide
        share = 0.7 if small and rows > 64 else 0.9
        n = next((n for n in (64, 32) if (programs if small else wide) >= share * MULTIPROCESSORS * n), 16)
        block_n = max(16, n // tiles)
        if small:
            stages = {64: 5, 32: 4, 16: 6 if programs <= 16 * MULTIPROCESSORS else 4}[tiles * block_n]
            return cls(64, block_n, 128, 4, stages)
        return cls(64, block_n, 64, 4, max(2, min(6, SHARED // (128 * (tiles * block_n + 64)))))

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


@triton.jit
def linear_few_rows_kernel(
    x_ptr,
    w_ptr,
    gate_ptr,
    bias_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    residual_ptr,
    y_ptr,
    eps,
    M,
    N,
    stride_x,
    stride_w,
    stride_residual,
    K: tl.constexpr,
    ACTIVATION: tl.constexpr,
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
    GATED: tl.constexpr = ACTIVATION == SWIGLU
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_ptr, other_n, rows = w_ptr, n, N
    if gate_ptr is not None:
        first_ptr = gate_ptr
    elif GATED:
        other_n, rows = N + n, 2 * N
    if AHEAD:
        ask_for_first(
            first_ptr, w_ptr, bias_ptr, norm_weight_ptr, norm_bias_ptr, n, other_n, rows, stride_w, K, GATED, AHEAD
        )
    if CHAINED:
        gdc_wait()
        gdc_launch_dependents()  # not before: a third kernel would take the places of this one's programs
    # What the result needs is on its way while the product is computed.
    here = (m < M)[:, None] & (n < N)[None, :]
    if residual_ptr is not None:
        at = residual_ptr + m[:, None].to(tl.int64) * stride_residual + n[None, :]
        residual = tl.load(at, mask=here, other=0.0)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0)
        if GATED:
            other_bias = tl.load(bias_ptr + N + n, mask=n < N, other=0.0)
    own = tl.where(n < N, n, rows)  # the gate's rows, none of the other half
    values, other = product(
        x_ptr, first_ptr, w_ptr, norm_weight_ptr, norm_bias_ptr, m, own, other_n, rows, M, stride_x, stride_w, eps,
        K, GATED, CENTERED, EIGHTS, ROWS, BLOCK_M, BLOCK_K, PARTS, STATISTICS_K, AHEAD,
    )  # fmt: skip
    if bias_ptr is not None:
        values += bias.to(tl.float32)[None, :]
        if GATED:
            other += other_bias.to(tl.float32)[None, :]
    if GATED:
        values = activated_values(other, values, ACTIVATION, False)
    elif ACTIVATION != NONE:
        values = activated_values(values, values, ACTIVATION, False)
    if residual_ptr is not None:
        values += residual.to(tl.float32)
    tl.store(y_ptr + m[:, None].to(tl.int64) * N + n[None, :], values.to(y_ptr.dtype.element_ty), mask=here)


def forward(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    gate: Any = None,
    norm: Norm | None = None,
    activation: str | None = None,
    residual: Any = None,
    launch: Launch | None = None,
    chained: bool = False,
    roomy: bool = False,
) -> Any:
    """Return y, newly allocated."""
    run = prepared(x, weight, bias, gate, norm, activation, residual, launch=launch, chained=chained, roomy=roomy)
    return run(x, weight, bias, gate, norm, residual)


def prepared(
    x: Any,
    weight: Any,
    bias: Any,
    gate: Any,
    norm: Norm | None,
    activation: str | None,
    residual: Any,
    *,
    launch: Launch | None = None,
    chained: bool = False,
    roomy: bool = False,
) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtypes, device and alignment to 16 bytes as these.
    `chained`: it starts while the kernel before it is still running. `roomy` is as in `Launch.choose`."""
    (M, K), gated = x.shape, activation == "swiglu"
    N = weight.shape[0] // 2 if gated and gate is None else weight.shape[0]
    launch = launch or Launch.choose(M, N, K, 2 if gated else 1, roomy=roomy)
    strides = x.stride(0), weight.stride(0), residual.stride(0) if residual is not None else 0
    constants = {
        "K": K,
        "ACTIVATION": ACTIVATIONS.index(activation) if activation else NONE.value,
        **constants_of(x, strides[1], norm, launch, chained=chained),
    }
    options = {**launch.options, **({"launch_pdl": True} if chained else {})}
    grid = triton.cdiv(N, launch.block_n), triton.cdiv(M, launch.block_m), 1
    run = Launcher(linear_few_rows_kernel, grid, constants, options, x.device)
    make = maker(x.device, ((M, N), x.dtype))

    def forward(x: Any, weight: Any, bias: Any, gate: Any, norm: Norm | None, residual: Any) -> Any:
        (y,) = make()
        if M and N:
            scale, shift, eps, _ = norm or NOTHING
            run(x, weight, gate, bias, scale, shift, residual, y, float(eps), M, N, *strides)
        return y

    return forward


def constants_of(x: Any, stride_w: int, norm: Norm | None, launch: Launch, *, chained: bool) -> dict[str, Any]:
    """Return the constants that the kernels for few rows share."""
    M, K = x.shape
    rows, stride_x = min(launch.block_m, triton.next_power_of_2(max(1, M))), x.stride(0)
    return {
        "CENTERED": norm is not None and norm.centered,
        "EIGHTS": stride_w % 8 == 0 and stride_x % 8 == 0,
        "ROWS": rows,
        "BLOCK_M": launch.block_m,
        "BLOCK_N": launch.block_n,
        "BLOCK_K": min(launch.block_k, max(16 * launch.parts, triton.next_power_of_2(K))),
        "PARTS": launch.parts,
        "STATISTICS_K": min(triton.next_power_of_2(K), max(128, 4096 // rows)),
        "AHEAD": launch.ahead if x.device.type != "cpu" else 0,  # the interpreter has no prefetch
        "CHAINED": chained,
    }
