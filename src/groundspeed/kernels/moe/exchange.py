"""Copying tokens to the groups of their experts, and combining the results: the sum of the rows of a token's choices,
by their weights, in FP32. Rows in groups are contiguous; the rows of x may have any stride. If CHAINED, kernels start
while the one before them is still running, and wait for it before they access memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher

COLUMNS = 2048
"""The most columns of a program."""


@triton.jit
def moe_scatter_kernel(X, PLACES, ROWS, H, stride_x, TOP_K: tl.constexpr, BLOCK_H: tl.constexpr, CHAINED: tl.constexpr):
    if CHAINED:
        gdc_launch_dependents()
        gdc_wait()
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    x = tl.load(X + t * stride_x + h, mask=h < H)
    for i in tl.static_range(TOP_K):
        row = tl.load(PLACES + t * TOP_K + i).to(tl.int64)
        tl.store(ROWS + row * H + h, x, mask=h < H)


@triton.jit
def moe_combine_kernel(
    ROWS,
    PLACES,
    WEIGHTS,
    SHARED,
    OUT,
    H,
    TOP_K: tl.constexpr,
    SHARING: tl.constexpr,
    BLOCK_H: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Combine the rows of each token. `SHARED` is in the order of the tokens and is added with weight 1."""
    if CHAINED:
        gdc_wait()
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    if SHARING:
        out = tl.load(SHARED + t * H + h, mask=h < H, other=0.0).to(tl.float32)
    else:
        out = tl.zeros([BLOCK_H], tl.float32)
    for i in tl.static_range(TOP_K):
        row = tl.load(PLACES + t * TOP_K + i).to(tl.int64)
        weight = tl.load(WEIGHTS + t * TOP_K + i)
        out += weight * tl.load(ROWS + row * H + h, mask=h < H, other=0.0).to(tl.float32)
    tl.store(OUT + t * H + h, out.to(OUT.dtype.element_ty), mask=h < H)


def _launcher(kernel: Any, T: int, H: int, constants: dict[str, Any], device: torch.device, chained: bool) -> Launcher:
    block = min(COLUMNS, triton.next_power_of_2(H))
    options = {"num_warps": max(1, block // 512), **({"launch_pdl": True} if chained else {})}
    constants = {**constants, "BLOCK_H": block, "CHAINED": chained}
    return Launcher(kernel, (T, triton.cdiv(H, block), 1), constants, options, device)


def prepared_scatter(x: torch.Tensor, top_k: int, *, chained: bool = False) -> Callable[[Any, Any, Any], None]:
    """Return a function that takes x, places and rows, and copies x to the rows."""
    (T, H), stride = x.shape, x.stride(0)
    run = _launcher(moe_scatter_kernel, T, H, {"TOP_K": top_k}, x.device, chained)
    return lambda x, places, rows: run(x, places, rows, H, stride)


def prepared_combine(x: torch.Tensor, top_k: int, *, sharing: bool, chained: bool = False) -> Callable[..., None]:
    """Return a function that takes rows, places, weights, the shared tensor or None, and the result, which is like
    x."""
    T, H = x.shape
    run = _launcher(moe_combine_kernel, T, H, {"TOP_K": top_k, "SHARING": sharing}, x.device, chained)
    return lambda rows, places, weights, shared, out: run(rows, places, weights, shared, out, H)
