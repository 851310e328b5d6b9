"""A mixture of experts as a user would write it in PyTorch: a loop over the experts, and grouped products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groundspeed.kernels.activations import activated

if TYPE_CHECKING:
    from torch import Tensor


def routed(x: Tensor, router: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the experts of each token and their weights, which add up to one."""
    weights, experts = (x.float() @ router.float().T).topk(top_k, dim=1)
    return experts, weights.softmax(1)


def expert_loop(x: Tensor, router: Tensor, up: Tensor, down: Tensor, *, top_k: int, activation: str) -> Tensor:
    """Loop over the experts. The host waits for the device at each expert to learn how many tokens it has."""
    import torch

    experts, weights = routed(x, router, top_k)
    out = torch.zeros_like(x)
    for e in range(len(up)):
        token, place = (experts == e).nonzero(as_tuple=True)
        if len(token):
            made = activated(x[token] @ up[e].T, activation) @ down[e].T
            out.index_add_(0, token, (made * weights[token, place, None]).to(x.dtype))
    return out


def grouped(x: Tensor, router: Tensor, up: Tensor, down: Tensor, *, top_k: int, activation: str) -> Tensor:
    """Sort tokens by expert and use grouped products. The device never waits for the host."""
    import torch

    experts, weights = routed(x, router, top_k)
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    every = torch.arange(len(up), device=x.device)
    ends = torch.searchsorted(flat[order], every, right=True).to(torch.int32)
    product: Any = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
    inner = activated(product(x[order // top_k], up.transpose(1, 2), offs=ends), activation)
    made = product(inner, down.transpose(1, 2), offs=ends)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    return (made[back].view(len(x), top_k, -1) * weights[..., None]).sum(1).to(x.dtype)
