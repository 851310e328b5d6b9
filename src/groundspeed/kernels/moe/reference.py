"""The oracle of a mixture of experts: in FP64, short, obviously right, and able to answer for a few tokens only.

x [T, H], router [E, H], up [E, F, H] and down [E, H, I], with F = I, or 2·I for SwiGLU, the gate first. A token's
logits are router·x; its experts the top_k of their scores (with a bias [E] added for the choice alone), of equal ones
those of lower indices; out = Σ weight·down·activation(up·x) over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe.form import Routing

if TYPE_CHECKING:
    from torch import Tensor


class Chosen(NamedTuple):
    """By each token."""

    experts: Tensor
    """[T, top_k], the greatest score first."""
    weights: Tensor
    """[T, top_k]."""
    margin: Tensor
    """[T]: by how much the last of the chosen is ahead of the first of the others, in what they were chosen by. Where
    that is less than the rounding of the logits, another choice is as right."""


def route(x: Tensor, router: Tensor, routing: Routing, bias: Tensor | None = None) -> Chosen:
    import torch

    logits = x.double() @ router.double().T
    scores = logits.softmax(1) if routing.score == "softmax" else logits.sigmoid()
    judged = logits if bias is None else scores + bias.double()
    ranked, order = judged.sort(dim=1, descending=True, stable=True)
    experts = order[:, : routing.top_k]
    weights = scores.gather(1, experts)
    if routing.renormalize:
        weights = weights / weights.sum(1, keepdim=True)
    last = ranked[:, routing.top_k - 1]
    margin = last - ranked[:, routing.top_k] if routing.top_k < len(router) else torch.full_like(last, float("inf"))
    return Chosen(experts, weights * routing.scale, margin)


def moe(
    x: Tensor,
    router: Tensor,
    up: Tensor,
    down: Tensor,
    routing: Routing,
    *,
    activation: str,
    bias: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """The FP64 result, [T, H] or of the given `rows` only."""
    import torch

    x = x if rows is None else x[rows.to(x.device)]
    chosen = route(x, router, routing, bias)
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in chosen.experts.unique().tolist():
        token, place = (chosen.experts == expert).nonzero(as_tuple=True)
        inner = activated(x[token].double() @ up[expert].double().T, activation)
        weighted = inner @ down[expert].double().T * chosen.weights[token, place, None]
        out.index_add_(0, token, weighted)
    return out
