"""Routing in one pass: logits = router·x, scores, the top_k of them, and their weights.

x [T, H] is in FP16 or BF16, and router [E, H] in the same dtype or in FP32; the rows of both are contiguous. The
results are experts [T, top_k] int32 and weights [T, top_k] FP32, the greatest score first, and how often each expert
was chosen in each block of tokens. From these counts `grouping.py` groups the tokens. For few tokens, `few_tokens.py`
does both. Tokens do not wait for each other, and nothing waits for the host.

Logits are accumulated in FP32 and never rounded to 16 bits: BF16 logits would route one token in a hundred differently.
Score and index are compared as a single integer: among equal scores the lower index is chosen, and NaN comes before
everything else, as in PyTorch. So a token with NaN has NaN weights, and top_k experts like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher, maker
from groundspeed.kernels.moe.form import Routing
from groundspeed.kernels.moe.grouping import Choices

WIDEST_BYTES = 32 << 10
SMALLEST = tl.constexpr(-(1 << 63))
"""The rank of an expert that is already chosen, or that does not exist."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    block_t: int
    block_h: int
    num_warps: int = 4
    num_stages: int = 3

    @classmethod
    def choose(cls, tokens: int, experts: int, exact: bool) -> Launch:
        """Return a launch whose blocks are small enough to fill all multiprocessors, and to keep the logits of all
        experts in registers. A program loads 32 KB of the router at a time, so that every GPU has room for three such
        stages. Measured on an H200 with 32 experts: 78 µs for 32,768 tokens, of which reading x takes 64 µs. `exact`:
        an FP32 router, multiplied in three TF32 products."""
        wide, many = experts > 64, tokens >= 8192
        most_h = WIDEST_BYTES // (triton.next_power_of_2(experts) * (4 if exact else 2))
        block_h = 64 if wide or exact else 128 if many else 256
        block_t = 64 if many and not wide else 32 if many and experts <= 128 else 16
        return cls(block_t, max(16, min(block_h, most_h)), 4 if not wide else 8 if experts <= 256 else 16)

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}


@triton.jit
def _ordered(values):
    """Return integers in the same order as the values; −0 counts as 0, and NaN is above everything else."""
    bits = tl.where(values == 0.0, 0.0, values).to(tl.int32, bitcast=True)
    key = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
    return tl.where(values != values, 0x7FFFFFFF, key)


@triton.jit
def partial_logits(
    X,
    ROUTER,
    t,
    e,
    T,
    begin,
    end,
    stride_x,
    stride_router,
    H: tl.constexpr,
    E: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Return the part of the logits from `begin` to `end` of H, for tokens t and experts e."""
    here, real = t < T, e < E
    rows = X + t[:, None].to(tl.int64) * stride_x
    columns = ROUTER + e[None, :].to(tl.int64) * stride_router
    logits = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for first in range(begin, end, BLOCK_H):
        h = first + tl.arange(0, BLOCK_H)
        inside = h < H
        x = tl.load(rows + h[None, :], mask=here[:, None] & inside[None, :], other=0.0)
        w = tl.load(columns + h[:, None], mask=real[None, :] & inside[:, None], other=0.0)
        if w.dtype == x.dtype:
            logits = tl.dot(x, w, logits)
        else:
            logits = tl.dot(x.to(tl.float32), w, logits, input_precision="tf32x3")
    return logits


@triton.jit
def choose(
    logits,
    t,
    T,
    BIAS,
    EXPERTS,
    WEIGHTS,
    SUMS,
    scale,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    E: tl.constexpr,
    TOP_K: tl.constexpr,
    SIGMOID: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    BIASED: tl.constexpr,
    LOSSES: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Store the choices of tokens t. Return their experts, and for each token and expert whether it was chosen."""
    e, k = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_K)
    here, real = t < T, e < E
    greatest = tl.max(tl.where(real[None, :], logits, float("-inf")), 1)
    powers = tl.where(real[None, :], tl.exp(logits - greatest[:, None]), 0.0)
    total = tl.sum(powers, 1)
    if SIGMOID:
        scores = 1.0 / (1.0 + tl.exp(-logits))
    else:
        scores = powers / total[:, None]
    if BIASED:
        judged = scores + tl.load(BIAS + e, mask=real, other=0.0)[None, :].to(tl.float32)
    else:
        judged = logits
    ranked = (_ordered(judged).to(tl.int64) << 32) | (BLOCK_E - 1 - e)[None, :].to(tl.int64)
    ranked = tl.where(real[None, :], ranked, SMALLEST)

    experts = tl.zeros([BLOCK_T, BLOCK_K], tl.int32)
    weights = tl.zeros([BLOCK_T, BLOCK_K], tl.float32)
    chosen = tl.zeros([BLOCK_T, BLOCK_E], tl.int32)
    for i in tl.static_range(TOP_K):
        best = BLOCK_E - 1 - (tl.max(ranked, 1) & 0xFFFFFFFF).to(tl.int32)
        this = e[None, :] == best[:, None]
        ranked = tl.where(this, SMALLEST, ranked)
        chosen += this.to(tl.int32)
        experts = tl.where((k == i)[None, :], best[:, None], experts)
        weights = tl.where((k == i)[None, :], tl.sum(tl.where(this, scores, 0.0), 1)[:, None], weights)
    if RENORMALIZE:
        weights = weights / tl.sum(weights, 1)[:, None]
    places = t[:, None].to(tl.int64) * TOP_K + k[None, :]
    stored = here[:, None] & (k < TOP_K)[None, :]
    tl.store(EXPERTS + places, experts, mask=stored)
    tl.store(WEIGHTS + places, weights * scale, mask=stored)
    if LOSSES:
        shares = tl.where(real[None, :], scores, 0.0)
        if SIGMOID:
            shares = shares / tl.sum(shares, 1)[:, None]
        at = SUMS + tl.program_id(0) * (E + 1)
        tl.store(at + e, tl.sum(tl.where(here[:, None], shares, 0.0), 0), mask=real)
        lse = greatest + tl.log(total)
        tl.store(at + E, tl.sum(tl.where(here, lse * lse, 0.0), 0))
    return experts, tl.where(here[:, None], chosen, 0)


@triton.jit
def moe_route_kernel(
    X,
    ROUTER,
    BIAS,
    EXPERTS,
    WEIGHTS,
    COUNTS,
    SUMS,
    T,
    stride_x,
    stride_router,
    scale,
    H: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_E: tl.constexpr,
    E: tl.constexpr,
    TOP_K: tl.constexpr,
    SIGMOID: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    BIASED: tl.constexpr,
    LOSSES: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    block = tl.program_id(0)
    t, e = block * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_E)
    logits = partial_logits(X, ROUTER, t, e, T, 0, H, stride_x, stride_router, H, E, BLOCK_T, BLOCK_H, BLOCK_E)
    _, chosen = choose(
        logits, t, T, BIAS, EXPERTS, WEIGHTS, SUMS, scale, BLOCK_T, BLOCK_E,
        E, TOP_K, SIGMOID, RENORMALIZE, BIASED, LOSSES, BLOCK_K,
    )  # fmt: skip
    tl.store(COUNTS + block * E + e, tl.sum(chosen, 0), mask=e < E)


def constants_of(routing: Routing, experts: int, *, biased: bool, losses: bool) -> dict[str, Any]:
    """Return the constants that `choose` is compiled with."""
    return {
        "E": experts,
        "TOP_K": routing.top_k,
        "SIGMOID": routing.score == "sigmoid",
        "RENORMALIZE": routing.renormalize,
        "BIASED": biased,
        "LOSSES": losses,
        "BLOCK_K": triton.next_power_of_2(routing.top_k),
    }


def prepared(
    x: torch.Tensor, router: torch.Tensor, routing: Routing, *, biased: bool, losses: bool
) -> tuple[Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], Choices], int]:
    """Return a function that routes tensors like these, with a bias if `biased`, and the number of tokens per count."""
    (T, H), E = x.shape, router.shape[0]
    launch = Launch.choose(T, E, exact=router.dtype != x.dtype)
    chosen, blocks = (T, routing.top_k), triton.cdiv(T, launch.block_t)
    of_sums = (blocks, E + 1) if losses else (1,)
    make = maker(
        x.device, (chosen, torch.int32), (chosen, torch.float32), ((blocks, E), torch.int32), (of_sums, torch.float32)
    )
    constants = {
        "H": H,
        "BLOCK_T": launch.block_t,
        "BLOCK_H": launch.block_h,
        "BLOCK_E": max(16, triton.next_power_of_2(E)),
        **constants_of(routing, E, biased=biased, losses=losses),
    }
    run = Launcher(moe_route_kernel, (blocks, 1, 1), constants, launch.options, x.device)
    numbers = T, x.stride(0), router.stride(0), routing.scale

    def route(x: torch.Tensor, router: torch.Tensor, bias: torch.Tensor | None) -> Choices:
        experts, weights, counts, sums = make()
        run(x, router, bias, experts, weights, counts, sums, *numbers)
        return Choices(experts, weights, counts, sums if losses else None)

    return route, launch.block_t
