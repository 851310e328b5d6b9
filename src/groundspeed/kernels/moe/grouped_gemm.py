"""Products of groups of rows with the matrix of their expert, in portable Triton.

a is [rows, K], b [E, N, K] (SwiGLU: [E, 2·N, K] with the gate first) and c [rows, N]; the groups and the list of their
tiles are those of grouping.py. For each tile, c = activation(a · bᵀ) with the matrix b of its expert. Rows of `a` can
be gathered by `tokens` as they are read, so tokens need not be copied into groups. FP16 or BF16 with FP32 accumulation.

There is one program per tile of c. Up to ROWS_TOGETHER row tiles go through the columns together, so that they read a
matrix from L2 while it is there. The grid covers the most tiles that there can be.

Trade-off: plain pointers run on sm_80 and newer; on Hopper each wgmma is waited for, unlike in the Hopper kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher
from groundspeed.kernels.moe.form import GELU_END, GELU_TERMS, NUMBER, widening
from groundspeed.kernels.moe.grouping import Groups, most_tiles

ROWS_TOGETHER = 16
GELU, SWIGLU, RELU2 = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
GELU_1, GELU_3, GELU_5 = (tl.constexpr(number) for number in GELU_TERMS)
MOST_SQUARE = tl.constexpr(GELU_END)


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int

    @classmethod
    def choose(cls, rows: int, groups: int, activation: str | None, capability: tuple[int, int]) -> Launch:
        """Return the launch for `rows` rows in `groups` groups. The rows of a tile do not depend on the activation,
        since both products share the list of tiles. All launches fit the shared memory of their GPUs and compile
        without spills. They were chosen on an H200 in a layer of 32 experts, 4096 × 11008, with tools/tune_moe.py: at 1
        and 8 tokens with both activations, at 256, 512 and 1,024 tokens with GELU; the others were not tried."""
        each = rows / max(1, groups)
        hopper = capability[0] in (9, 10)
        small = capability in ((8, 6), (8, 9)) or capability[0] >= 12
        if each <= 16 and hopper:
            if activation is None:
                return cls(16, 64, 256, 4, 4)
            return cls(16, 64, 256, 4, 3) if activation == "swiglu" else cls(16, 128, 128, 4, 3)
        if each <= 32 and hopper:
            return cls(64, 64, 64 if activation == "swiglu" else 128, 4, 3)
        if each <= 96 and hopper:
            return cls(128, 64 if activation == "swiglu" else 128, 64, 8, 3)
        if each <= 16:
            return cls(16, 64 if activation == "swiglu" else 128, 128 if not small else 64, 4, 3)
        if each <= 96:
            return cls(64, 64 if activation == "swiglu" else 128, 64, 4, 3)
        if hopper:
            return cls(128, 128 if activation == "swiglu" else 256, 64, 8, 3)
        return cls(128, 64 if activation == "swiglu" else 128, 32 if small else 64, 8, 3)

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


@triton.jit
def _activated(values, other, ACTIVATION: tl.constexpr):
    if ACTIVATION == GELU:
        square = tl.minimum(values * values, MOST_SQUARE)
        values = values * tl.sigmoid(values * (GELU_1 + square * (GELU_3 + square * GELU_5)))
    elif ACTIVATION == SWIGLU:
        values = values * tl.sigmoid(values) * other
    elif ACTIVATION == RELU2:
        values = tl.where(values < 0.0, 0.0, values)  # NaN stays
        values = values * values
    return values


@triton.jit
def moe_grouped_gemm_kernel(
    A,
    B,
    C,
    TOKENS,
    TILES,
    COUNT,
    N,
    K,
    stride_a,
    stride_e,
    stride_b,
    stride_c,
    ACTIVATION: tl.constexpr,
    GATHERED: tl.constexpr,
    EVEN_K: tl.constexpr,
    EIGHTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TOGETHER: tl.constexpr,
    CHAINED: tl.constexpr,
):
    if CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    if EIGHTS:  # changes no number, but tells the compiler that 16 bytes can be loaded at once
        N, K, stride_c = N // 8 * 8, K // 8 * 8, stride_c // 8 * 8
        stride_a, stride_e, stride_b = stride_a // 8 * 8, stride_e // 8 * 8, stride_b // 8 * 8
    tile, tiles, columns = tl.program_id(0), tl.load(COUNT), tl.cdiv(N, BLOCK_N)
    if tile < tiles * columns:
        first = tile // (TOGETHER * columns) * TOGETHER
        width = tl.minimum(tiles - first, TOGETHER)
        within = tile % (TOGETHER * columns)
        listed = TILES + (first + within % width) * 4
        row, expert, rows = tl.load(listed), tl.load(listed + 1), tl.load(listed + 2)
        m, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
        n = within // width * BLOCK_N + tl.arange(0, BLOCK_N)
        here = m < rows
        if GATHERED:
            source = tl.load(TOKENS + row + m, mask=here, other=0)
        else:
            source = row + m
        a_at = A + source[:, None].to(tl.int64) * stride_a + k[None, :]
        b_at = B + expert.to(tl.int64) * stride_e + n[None, :].to(tl.int64) * stride_b + k[:, None]
        other_at = b_at + tl.cast(N, tl.int64) * stride_b  # an N of 1 is no tensor
        values = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        other = values
        for done in range(0, K, BLOCK_K):
            inside = k < K - done
            a_here, b_here = here[:, None], (n < N)[None, :]
            if not EVEN_K:
                a_here, b_here = a_here & inside[None, :], b_here & inside[:, None]
            a = tl.load(a_at + done, mask=a_here, other=0.0)
            values = tl.dot(a, tl.load(b_at + done, mask=b_here, other=0.0), values)
            if ACTIVATION == SWIGLU:
                other = tl.dot(a, tl.load(other_at + done, mask=b_here, other=0.0), other)
        c = _activated(values, other, ACTIVATION).to(C.dtype.element_ty)
        c_at = C + (row + m)[:, None].to(tl.int64) * stride_c + n[None, :]
        tl.store(c_at, c, mask=here[:, None] & (n < N)[None, :])


def prepared(
    b: torch.Tensor,
    choices: int,
    activation: str | None,
    launch: Launch,
    *,
    stride_a: int,
    gathered: bool,
    chained: bool = False,
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Groups], None]:
    """Return a function for `choices` rows in groups and matrices like these; c is contiguous. `chained`: the kernel
    starts while the one before it is still running, and waits for it before it accesses memory."""
    E, N, K = b.shape
    N //= widening(activation)
    numbers = N, K, stride_a, b.stride(0), b.stride(1), N
    constants = {
        "ACTIVATION": NUMBER[activation],
        "GATHERED": gathered,
        "EVEN_K": K % launch.block_k == 0,
        "EIGHTS": all(n % 8 == 0 for n in numbers) and any(n % 16 for n in numbers),  # it detects multiples of 16
        "BLOCK_M": launch.block_m,
        "BLOCK_N": launch.block_n,
        "BLOCK_K": launch.block_k,
        "TOGETHER": ROWS_TOGETHER,
        "CHAINED": chained,
    }
    options = {**launch.options, **({"launch_pdl": True} if chained else {})}
    programs = most_tiles(choices, E, launch.block_m) * triton.cdiv(N, launch.block_n)
    run = Launcher(moe_grouped_gemm_kernel, (programs, 1, 1), constants, options, b.device)

    def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, groups: Groups) -> None:
        run(a, b, c, groups.tokens, groups.tiles, groups.totals[E:], *numbers)

    return multiply
