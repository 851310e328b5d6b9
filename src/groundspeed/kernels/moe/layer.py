"""A mixture-of-experts layer, assembled from its kernels: choose, group, up product, down product, combine. Nothing
waits for the host, so a layer can be captured in a CUDA graph.

Memory besides the result: the rows that the experts produce, [rows, I] and [rows, H], and lists of a few numbers per
choice; on Hopper also the input rows, since TMA reads only rows that are stored together. There are T·top_k rows, and
on Hopper up to 63 more per expert, since groups begin at multiples of 64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from groundspeed.kernels.launch import maker
from groundspeed.kernels.moe import exchange, few_tokens, grouped_gemm, grouping, router
from groundspeed.kernels.moe.form import Routing
from groundspeed.kernels.moe.grouping import Choices, Groups, Plan

FEW_ROWS = 64
"""The rows of a group up to which `auto` uses the portable products on Hopper too. Measured on an H200: with up to 4
rows per group they take 0.84 to 0.95 of the time of the Hopper products, with 16 and 32 rows 0.91 to 0.97. With 64 rows
they are level with exchanged operands (1.59 and 1.58 ms for a layer), with 96 and 128 rows behind (1.64 and 1.61, 1.99
and 1.60)."""
Forward = Callable[..., tuple[torch.Tensor, Choices, torch.Tensor]]
"""Takes x, router, up, down and, if there are any, bias and shared; returns the result, the choices, and the number of
rows of each expert."""


def prepared(
    x: torch.Tensor,
    of_router: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    routing: Routing,
    activation: str,
    *,
    capability: tuple[int, int],
    hopper: bool,
    bias: torch.Tensor | None = None,
    sharing: bool = False,
    losses: bool = False,
    launches: tuple[Any, Any] | None = None,
) -> Forward:
    """Return a function for tensors like these. `sharing`: a shared tensor is added to the result. `launches`: the
    launches of the two products, which must have the same rows per tile; by default they are chosen for the shape."""
    (T, H), (E, _, inner), top_k = x.shape, down.shape, routing.top_k
    chained = T <= few_tokens.MOST_TOKENS and capability[0] >= 9
    if hopper:
        tiles, widen, narrow = _on_hopper(up, down, T * top_k, activation, launches)
    else:
        tiles, widen, narrow = _portable(x, up, down, T * top_k, activation, capability, launches, chained)
    plan = Plan(T, E, top_k, *tiles)
    route = _routes(x, of_router, routing, plan, biased=bias is not None, losses=losses, chained=chained)
    scatter = exchange.prepared_scatter(x, top_k, chained=chained) if hopper else None
    combine = exchange.prepared_combine(x, top_k, sharing=sharing, chained=chained)
    sizes = [(plan.rows, inner), (plan.rows, H), (T, H), *([(plan.rows, H)] if hopper else [])]
    make = maker(x.device, *((size, x.dtype) for size in sizes))

    def forward(
        x: torch.Tensor,
        of_router: torch.Tensor,
        up: torch.Tensor,
        down: torch.Tensor,
        bias: torch.Tensor | None = None,
        shared: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Choices, torch.Tensor]:
        widened, narrowed, out, *rest = make()
        scattered = rest[0] if rest else None
        chosen, groups = route(x, of_router, bias)
        if scatter:
            scatter(x, groups.places, scattered)
        widen(x if scattered is None else scattered, up, widened, groups)
        narrow(widened, down, narrowed, groups)
        combine(narrowed, groups.places, chosen.weights, shared, out)
        return out, chosen, groups.totals[:E]

    return forward


def suits_hopper(choices: int, experts: int) -> bool:
    """Return whether groups have enough rows, on average over the most groups that there can be."""
    return choices > FEW_ROWS * min(choices, experts)


def _routes(
    x: torch.Tensor, of_router: torch.Tensor, routing: Routing, plan: Plan, *, biased: bool, losses: bool, chained: bool
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], tuple[Choices, Groups]]:
    """Return a function from x, router and bias to choices and groups."""
    if plan.T <= few_tokens.MOST_TOKENS:
        return few_tokens.prepared(x, of_router, routing, plan, biased=biased, losses=losses, chained=chained)
    choose, block_t = router.prepared(x, of_router, routing, biased=biased, losses=losses)
    group = grouping.prepared(plan, block_t, x.device)

    def route(x: torch.Tensor, of_router: torch.Tensor, bias: torch.Tensor | None) -> tuple[Choices, Groups]:
        chosen = choose(x, of_router, bias)
        return chosen, group(chosen)

    return route


def _portable(
    x: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    choices: int,
    activation: str,
    capability: tuple[int, int],
    launches: tuple[Any, Any] | None,
    chained: bool,
) -> tuple[tuple[int, int, int], Any, Any]:
    """Return the alignment of groups, the rows of a tile and those of a long one; and the two portable products."""
    groups = min(up.shape[0], choices)
    chosen = (grouped_gemm.Launch.choose(choices, groups, a, capability) for a in (activation, None))
    first, second = launches or chosen
    widen = grouped_gemm.prepared(up, choices, activation, first, stride_a=x.stride(0), gathered=True, chained=chained)
    narrow = grouped_gemm.prepared(down, choices, None, second, stride_a=down.shape[2], gathered=False, chained=chained)
    return (1, _shared_rows(first.block_m, second.block_m), 0), widen, narrow


def _on_hopper(
    up: torch.Tensor, down: torch.Tensor, choices: int, activation: str, launches: tuple[Any, Any] | None
) -> tuple[tuple[int, int, int], Any, Any]:
    """Return the same for the Hopper products."""
    from groundspeed.kernels.moe.hopper import launch
    from groundspeed.kernels.moe.hopper.choice import ALIGN, choose_pair

    groups = min(up.shape[0], choices)
    rows = grouping.most_rows(choices, up.shape[0], ALIGN)
    products = (down.shape[2], activation), (down.shape[1], None)
    first, second = launches or choose_pair(choices, groups, *products)
    widen = launch.prepared(up, rows, choices, activation, first)
    narrow = launch.prepared(down, rows, choices, None, second)
    return (ALIGN, _shared_rows(first.rows, second.rows), first.long), widen, narrow


def _shared_rows(first: int, second: int) -> int:
    if first != second:  # the second product would leave rows out, or compute them with another expert
        raise ValueError(f"the two products read one list of tiles, but have {first} and {second} rows per tile")
    return first
