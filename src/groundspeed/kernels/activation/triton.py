"""Activations in portable Triton: silu(gate)·x, x·Φ(x), the same with a hyperbolic tangent, and max(x, 0)².

x [..., N] and a gate like it have any strides (rows.py), except that the last one is 1; or x is [..., 2·N] with the
gate in its first half. Everything is computed in FP32 and rounded once. The result is stored as with `torch.empty_like`
of x, or of one of its halves.

A program has a block of elements. If all tensors are dense and have the same layout, the block is taken from all
elements in memory order, ignoring rows; otherwise from one row, or from several short rows.

CHAINED, for Hopper: a kernel starts while the one before it is still running, and waits before it accesses memory.

Limit: memory traffic. The number of instructions comes close to it, and with an error function exceeds it, so GELU in
16 bits is a polynomial (docs/kernels/rows.md has the numbers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.launch import Launcher, maker_like
from groundspeed.kernels.rows import Rows, evenness, row_offsets

Forward = Callable[[Any, Any], Any]
"""Takes x and a gate or None; returns the result."""
SWIGLU, GELU, GELU_TANH, RELU2 = (tl.constexpr(i) for i in range(len(ACTIVATIONS)))
TERMS = 1.59538364, 0.0732018128, -2.88086565e-4, -7.03642363e-5, 4.4052349e-6, -1.18393508e-7, 1.23894517e-9
"""The coefficients of p, a polynomial of x², in x·Φ(x) = x·sigmoid(x·p). Up to |x| = 5 the largest relative error is
1e-4, a fifth of FP16's rounding; beyond, where p stays constant, the largest absolute error is 8e-7. It was fitted to
the logit of Φ by linear programming. It is used for results in 16 bits: an error function takes twice the instructions,
more than there is time for (docs/kernels/rows.md)."""
TERM_0, TERM_1, TERM_2, TERM_3, TERM_4, TERM_5, TERM_6 = (tl.constexpr(term) for term in TERMS)


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    rows: int
    block_n: int
    num_warps: int

    @classmethod
    def choose(cls, columns: int | None) -> Launch:
        """Return the launch for rows of `columns` elements, or for all elements as one row if None. Not measured yet. A
        program has 2,048 elements, 16 per lane: in 16 bits, two loads of 16 bytes from each tensor. A lane takes up to
        40 registers, so that a multiprocessor has 1,536 lanes and 48 KB of x in flight; by Little's law an H200 needs
        25 KB (4.8 TB/s · 0.7 µs over 132)."""
        block = 2048 if columns is None else max(16, min(2048, triton.next_power_of_2(columns)))
        return cls(2048 // block, block, 4)


@triton.jit
def activated_values(x, gate, ACTIVATION: tl.constexpr, EXACT: tl.constexpr):
    """Return the activation in FP32. EXACT is for results in 32 bits; with results in 16 bits, the error of the GELU
    polynomial is well below their rounding."""
    x = x.to(tl.float32)
    if ACTIVATION == SWIGLU:
        gate = gate.to(tl.float32)
        x *= gate * tl.sigmoid(gate)
    elif ACTIVATION == GELU and EXACT:
        x *= 0.5 + 0.5 * tl.erf(x * 0.7071067811865476)
    elif ACTIVATION == GELU:
        square = tl.minimum(x * x, 25.0)
        upper = TERM_3 + square * (TERM_4 + square * (TERM_5 + square * TERM_6))
        x *= tl.sigmoid(x * (TERM_0 + square * (TERM_1 + square * (TERM_2 + square * upper))))
    elif ACTIVATION == GELU_TANH:  # (1 + tanh(z)) / 2 = sigmoid(2·z), which loses no digits near tanh = −1
        x *= tl.sigmoid(x * (1.5957691216057308 + 0.07135481282711202 * x * x))
    else:
        x = tl.where(x < 0.0, 0.0, x)  # NaN stays
        x *= x
    return x


@triton.jit
def _activate(x_ptr, gate_ptr, out_ptr, x_at, gate_at, out_at, mask, ACTIVATION: tl.constexpr, CHAINED: tl.constexpr):
    if CHAINED:
        gdc_wait()
    x = tl.load(x_ptr + x_at, mask=mask)
    gate = x
    if gate_ptr is not None:
        gate = tl.load(gate_ptr + gate_at, mask=mask)
    values = activated_values(x, gate, ACTIVATION, x.dtype == tl.float32)
    tl.store(out_ptr + out_at, values.to(out_ptr.dtype.element_ty), mask=mask)


NUMBERS = ["M", "N", "n1", "n2", *(f"stride_{tensor}{i}" for tensor in ("out", "x", "gate") for i in range(3))]


@triton.jit(do_not_specialize=NUMBERS)
def activation_forward_kernel(
    x_ptr,
    gate_ptr,
    out_ptr,
    M,
    N,
    n1,
    n2,
    stride_out0,
    stride_out1,
    stride_out2,
    stride_x0,
    stride_x1,
    stride_x2,
    stride_gate0,
    stride_gate1,
    stride_gate2,
    ACTIVATION: tl.constexpr,
    WHOLE: tl.constexpr,
    HALVES: tl.constexpr,
    FLAT: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Activate M rows of N elements. WHOLE: all elements are one row, with the same layout in all tensors. HALVES: the
    gate is the first half of x."""
    if CHAINED:
        gdc_launch_dependents()
    col = tl.arange(0, BLOCK_N)
    if WHOLE:
        first = tl.program_id(0).to(tl.int64) * BLOCK_N
        at = first + col
        if EVEN == 8:
            _activate(x_ptr, gate_ptr, out_ptr, at, at, at, at < N // EVEN * EVEN, ACTIVATION, CHAINED)
        elif first + BLOCK_N <= N:  # a mask that is not a multiple of 8 would prevent wide loads
            _activate(x_ptr, gate_ptr, out_ptr, at, at, at, None, ACTIVATION, CHAINED)
        else:
            _activate(x_ptr, gate_ptr, out_ptr, at, at, at, at < N, ACTIVATION, CHAINED)
    else:
        N = N // EVEN * EVEN
        blocks = tl.cdiv(N, BLOCK_N)
        row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
        col = (tl.program_id(0) % blocks * BLOCK_N + col)[None, :]
        here = (row < M)[:, None] & (col < N)
        out_at = row_offsets(row, n1, n2, stride_out0, stride_out1, stride_out2, FLAT, EVEN)[:, None] + col
        x_at = row_offsets(row, n1, n2, stride_x0, stride_x1, stride_x2, FLAT, EVEN)[:, None] + col
        gate_at = x_at
        if HALVES:
            x_at += N
        elif gate_ptr is not None:
            gate_at = row_offsets(row, n1, n2, stride_gate0, stride_gate1, stride_gate2, FLAT, EVEN)[:, None] + col
        _activate(x_ptr, gate_ptr, out_ptr, x_at, gate_at, out_at, here, ACTIVATION, CHAINED)


def forward(x: Any, activation: str, gate: Any = None, *, launch: Launch | None = None, chained: bool = False) -> Any:
    """Return the result, newly allocated."""
    return prepared(x, activation, gate, launch, chained=chained)(x, gate)


def prepared(
    x: Any, activation: str, gate: Any = None, launch: Launch | None = None, *, chained: bool = False
) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtype, device and alignment to 16 bytes as these.
    `chained`: it starts while the kernel before it is still running."""
    halves = activation == "swiglu" and gate is None
    N = x.shape[-1] // 2 if halves else x.shape[-1]
    like = x[..., :N]
    tensors = [torch.empty_like(like, device="meta"), x, *([] if gate is None else [gate])]
    rows = Rows.of(*tensors)
    M, numbers = rows.count, (*rows.numbers, *[0] * (9 - 3 * len(tensors)))
    whole = not halves and rows.flat and (M <= 1 or all(strides[2] == N for strides in rows.strides))
    if whole:
        M, N = 1, M * N
    launch = launch or Launch.choose(None if whole else N)
    constants = {
        "ACTIVATION": ACTIVATIONS.index(activation),
        "WHOLE": whole,
        "HALVES": halves,
        "FLAT": rows.flat,
        "EVEN": evenness(N) if whole else evenness(N, *numbers[2:]),
        "ROWS": launch.rows,
        "BLOCK_N": launch.block_n,
        "CHAINED": chained,
    }
    options = {"num_warps": launch.num_warps, **({"launch_pdl": True} if chained else {})}
    programs = triton.cdiv(M, launch.rows) * triton.cdiv(N, launch.block_n)
    run = Launcher(activation_forward_kernel, (programs, 1, 1), constants, options, x.device)
    make = maker_like(like)

    def forward(x: Any, gate: Any) -> Any:
        (out,) = make()
        if programs:
            run(x, x if halves else gate, out, M, N, *numbers)
        return out

    return forward
