"""Routing and grouping of a few tokens, in place of router.py and grouping.py.

With a single block of tokens, one program would have to read the whole router. Here many programs take a part of H
each, and then one program adds up their partial logits, always in the same order, chooses the experts, and places the
tokens. On Hopper and newer, that program starts while the others are still running, and waits on the device
(programmatic dependent launch)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from groundspeed.kernels.launch import Launcher, maker
from groundspeed.kernels.moe.form import Routing
from groundspeed.kernels.moe.grouping import Choices, Groups, Plan, first_rows, list_tiles
from groundspeed.kernels.moe.router import choose, constants_of, partial_logits

MOST_TOKENS = 16
"""The most tokens that one program routes and places; also the rows of the smallest tile of a product."""
MOST_PARTS = 32
"""The most partial logits that one program adds up."""
BLOCK_H = 128
"""The elements of a part that are loaded at a time. With MOST_PARTS parts, that is all of a part for H up to 4096."""
MOST_EXPERTS = 64
"""The most experts of a program that computes partial logits."""


@triton.jit
def moe_logits_kernel(
    X,
    ROUTER,
    PARTS,
    T,
    stride_x,
    stride_router,
    H: tl.constexpr,
    E: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_E: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Compute the partial logits of some experts from one part of H."""
    if CHAINED:
        gdc_launch_dependents()
    part = tl.program_id(0)
    t, e = tl.arange(0, BLOCK_T), tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    begin = part * PART
    logits = partial_logits(
        X, ROUTER, t, e, T, begin, begin + PART, stride_x, stride_router, H, E, BLOCK_T, BLOCK_H, BLOCK_E
    )
    at = PARTS + (part * T + t[:, None]) * E + e[None, :]
    tl.store(at, logits, mask=(t < T)[:, None] & (e < E)[None, :])


@triton.jit
def moe_choose_kernel(
    PARTS,
    BIAS,
    EXPERTS,
    WEIGHTS,
    SUMS,
    PLACES,
    TOKENS,
    TILES,
    TOTALS,
    T,
    scale,
    COUNT: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    CHAINED: tl.constexpr,
    E: tl.constexpr,
    TOP_K: tl.constexpr,
    SIGMOID: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    BIASED: tl.constexpr,
    LOSSES: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Add up COUNT parts of the logits of all tokens, choose their experts, and place the tokens."""
    if CHAINED:
        gdc_launch_dependents()
        gdc_wait()
    t, e, k = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_K)
    here, real = t < T, e < E
    logits = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for part in tl.static_range(COUNT):
        at = PARTS + (part * T + t[:, None]) * E + e[None, :]
        logits += tl.load(at, mask=here[:, None] & real[None, :], other=0.0)
    experts, chosen = choose(
        logits, t, T, BIAS, EXPERTS, WEIGHTS, SUMS, scale, BLOCK_T, BLOCK_E,
        E, TOP_K, SIGMOID, RENORMALIZE, BIASED, LOSSES, BLOCK_K,
    )  # fmt: skip
    totals = tl.sum(chosen, 0)
    tl.store(TOTALS + e, totals, mask=real)
    begin, tiles = first_rows(totals, ALIGN), (totals + BLOCK_M - 1) // BLOCK_M
    tl.store(TOTALS + E, tl.sum(tiles, 0))
    for i in tl.static_range((BLOCK_T + BLOCK_M - 1) // BLOCK_M):
        list_tiles(TILES, tl.cumsum(tiles, 0) - tiles + i, begin, e, totals, tiles, i, BLOCK_M)
    rows = tl.cumsum(chosen, 0) - chosen + begin[None, :]
    for i in tl.static_range(TOP_K):
        expert = tl.sum(tl.where((k == i)[None, :], experts, 0), 1)
        row = tl.sum(tl.where(e[None, :] == expert[:, None], rows, 0), 1)
        tl.store(PLACES + t * TOP_K + i, row, mask=here)
        tl.store(TOKENS + row, t, mask=here)


Route = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], tuple[Choices, Groups]]
"""Takes x, router and bias; returns choices and groups."""


def prepared(
    x: torch.Tensor,
    router: torch.Tensor,
    routing: Routing,
    plan: Plan,
    *,
    biased: bool,
    losses: bool,
    chained: bool,
) -> Route:
    """Return a function that routes tensors like these, of up to MOST_TOKENS tokens. `chained`: kernels can start while
    the one before is still running."""
    (T, H), E = x.shape, router.shape[0]
    part = triton.cdiv(triton.cdiv(H, MOST_PARTS), BLOCK_H) * BLOCK_H
    count, block_e, most_e = triton.cdiv(H, part), max(16, triton.next_power_of_2(E)), MOST_EXPERTS
    constants = {
        "H": H,
        "E": E,
        "PART": part,
        "BLOCK_T": MOST_TOKENS,
        "BLOCK_H": BLOCK_H,
        "BLOCK_E": min(most_e, block_e),
        "CHAINED": chained,
    }
    grid = count, triton.cdiv(E, min(most_e, block_e)), 1
    find = Launcher(moe_logits_kernel, grid, constants, {"num_warps": 4}, x.device)
    block_t = triton.next_power_of_2(T)
    choosing = {
        "COUNT": count,
        "BLOCK_T": block_t,
        "BLOCK_E": block_e,
        "ALIGN": plan.align,
        "BLOCK_M": plan.block_m,
        "CHAINED": chained,
        **constants_of(routing, E, biased=biased, losses=losses),
    }
    options = {"num_warps": max(1, min(16, block_t * block_e // 256)), **({"launch_pdl": True} if chained else {})}
    decide = Launcher(moe_choose_kernel, (1, 1, 1), choosing, options, x.device)
    chosen = T, routing.top_k
    make = maker(
        x.device,
        (chosen, torch.int32),
        (chosen, torch.float32),
        ((E + 1 if losses else 1,), torch.float32),
        ((count * T * E,), torch.float32),
    )
    make_groups, strides = plan.maker(x.device), (x.stride(0), router.stride(0))

    def route(x: torch.Tensor, router: torch.Tensor, bias: torch.Tensor | None) -> tuple[Choices, Groups]:
        (experts, weights, sums, parts), groups = make(), Groups(*make_groups())
        find(x, router, parts, T, *strides)
        decide(parts, bias, experts, weights, sums, *groups, T, routing.scale)
        return Choices(experts, weights, None, sums[None] if losses else None), groups

    return route
