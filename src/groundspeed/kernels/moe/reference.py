"""The oracle of a mixture of experts: in FP64, short, obviously right, and able to compute just a few tokens.

x is [T, H], router [E, H], up [E, F, H] and down [E, H, I], with F = I, or 2·I for SwiGLU with the gate first. A
token's logits are router·x. Its experts are those with the top_k scores (with a bias [E] added for the choice only),
among equal scores those of lower indices; out = Σ weight·down·activation(up·x) over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe.form import Routing

if TYPE_CHECKING:
    from torch import Tensor


class Chosen(NamedTuple):
    """What each token chose."""

    experts: Tensor
    """[T, top_k], the greatest score first."""
    weights: Tensor
    """[T, top_k]."""
    margin: Tensor
    """[T]: the distance between the last chosen expert and the best of the others, in the quantity that decides the
    choice. If it is less than the rounding of the logits, another choice is equally right."""


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
    """Return the FP64 result [T, H], or that of the given `rows` only."""
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
