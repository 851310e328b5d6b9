"""A mixture of experts by PyTorch: the fallback where none of our kernels can serve, on any device and with gradients.
It reads from the device how many tokens each expert has."""

from __future__ import annotations

import torch
from torch.nn import functional

from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe.form import Routing


def route(
    x: torch.Tensor, router: torch.Tensor, routing: Routing, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return, computed in FP32, the experts and weights of each token, its shares of all experts, and its
    log-sum-exp."""
    logits = x.float() @ router.float().T
    scores = logits.softmax(1) if routing.score == "softmax" else logits.sigmoid()
    judged = logits if bias is None else scores + bias
    experts = judged.detach().sort(dim=1, descending=True, stable=True).indices[:, : routing.top_k]
    weights = scores.gather(1, experts)
    if routing.renormalize:
        weights = weights / weights.sum(1, keepdim=True)
    return experts, weights * routing.scale, functional.normalize(scores, p=1, dim=1), logits.logsumexp(1)


def mixed(
    x: torch.Tensor, up: torch.Tensor, down: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, activation: str
) -> torch.Tensor:
    """Return the weighted sum over the experts of each token, in FP32."""
    (T, top_k), flat = experts.shape, experts.flatten()
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=len(up)).tolist()
    rows = (order // top_k).split(counts)
    found = [activated(x[r] @ up[e].T, activation) @ down[e].T for e, r in enumerate(rows) if len(r)]
    made = torch.cat(found) if found else x.new_empty(0, x.shape[1])
    back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
    return (made[back].view(T, top_k, x.shape[1]).float() * weights[..., None]).sum(1)
