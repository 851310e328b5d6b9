"""A mixture of experts as a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe.api import IMPLEMENTATIONS, moe
from groundspeed.kernels.moe.form import ACTIVATIONS, Routing, widening


class MoE(nn.Module):
    """A mixture of experts. The router sends each token through `top_k` of `experts` networks of size `hidden` →
    `intermediate` → `hidden`. With `shared_intermediate`, all tokens also go through one more network of that size.

    `score`, `renormalize`, `scale` and `impl` are as in `groundspeed.moe`. With `balance_bias`, a bias is added to the
    scores only for the choice of experts, and `rebalance` adjusts it after each step: load balancing without a loss.

    Parameters: `router` [E, H], `up` [E, I, H] (SwiGLU: [E, 2·I, H], the gate first) and `down` [E, H, I]."""

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        experts: int,
        top_k: int,
        *,
        activation: str = "swiglu",
        score: str = "softmax",
        renormalize: bool = True,
        scale: float = 1.0,
        shared_intermediate: int = 0,
        balance_bias: bool = False,
        impl: str = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r} is unknown; choose from {', '.join(ACTIVATIONS)}")
        if impl not in ("auto", *IMPLEMENTATIONS):
            raise ValueError(f"impl={impl!r} is unknown; choose from auto, {', '.join(IMPLEMENTATIONS)}")
        for name, number in (("hidden", hidden), ("intermediate", intermediate), ("experts", experts)):
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {number!r:.80}")
        if not 0 < top_k <= experts:
            raise ValueError(f"top_k must be from 1 to the number of experts, {experts}, not {top_k}")
        self.routing = Routing(top_k, score, renormalize, scale)
        self.activation, self.impl = activation, impl
        kind: Any = {"device": device, "dtype": dtype}
        wide = widening(activation)
        self.router = nn.Parameter(torch.empty(experts, hidden, **kind))
        self.up = nn.Parameter(torch.empty(experts, wide * intermediate, hidden, **kind))
        self.down = nn.Parameter(torch.empty(experts, hidden, intermediate, **kind))
        self.shared_up = self.shared_down = None
        if shared_intermediate:
            self.shared_up = nn.Parameter(torch.empty(wide * shared_intermediate, hidden, **kind))
            self.shared_down = nn.Parameter(torch.empty(hidden, shared_intermediate, **kind))
        bias = torch.zeros(experts, device=device, dtype=torch.float32) if balance_bias else None
        self.register_buffer("bias", bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights as `nn.Linear` does."""
        for weight in self.parameters():
            nn.init.uniform_(weight, -(weight.shape[-1] ** -0.5), weight.shape[-1] ** -0.5)

    def forward(self, x: torch.Tensor, *, return_routing: bool = False) -> Any:
        """Return the result [..., hidden] for x [..., hidden]; with `return_routing`, also a `Routed`."""
        shared = None
        if self.shared_up is not None and self.shared_down is not None:
            flat = x.reshape(-1, x.shape[-1])
            inner = activated(functional.linear(flat, self.shared_up), self.activation)
            shared = functional.linear(inner, self.shared_down).view(x.shape)
        asked = self.routing
        return moe(
            x,
            self.router,
            self.up,
            self.down,
            top_k=asked.top_k,
            activation=self.activation,
            score=asked.score,
            renormalize=asked.renormalize,
            scale=asked.scale,
            bias=self.bias,
            shared=shared,
            return_routing=return_routing,
            impl=self.impl,
        )

    @torch.no_grad()
    def rebalance(self, counts: torch.Tensor, rate: float = 1e-3) -> None:
        """Make experts less likely if they had more than their share of the tokens, by the `counts` of a `Routed`, and
        the other experts more likely."""
        if self.bias is None:
            raise ValueError("there is no bias to adjust: make the module with balance_bias=True")
        self.bias += rate * torch.sign(counts.float().mean() - counts)

    def extra_repr(self) -> str:
        (E, H), inner = self.router.shape, self.down.shape[2]
        return f"hidden={H}, intermediate={inner}, experts={E}, top_k={self.routing.top_k}, {self.activation}"
