"""A linear layer in parts: norm and activation by separate kernels of ours if they can serve, and PyTorch's product; or
a product of ours that has the activation in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from groundspeed.kernels.activation.api import activate
from groundspeed.kernels.linear.form import Norm
from groundspeed.kernels.moe.dense_api import activated_linear, is_chosen
from groundspeed.kernels.norm.api import layer_norm, rms_norm

if TYPE_CHECKING:
    from torch import Tensor


def normed(x: Tensor, norm: Norm | None, impl: str = "auto") -> Tensor:
    if norm is None:
        return x
    if norm.centered:
        return layer_norm(x, norm.weight, norm.bias, eps=norm.eps, impl=impl)
    return rms_norm(x, norm.weight, eps=norm.eps, impl=impl)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    norm: Norm | None,
    activation: str | None,
    residual: Tensor | None,
    impl: str = "auto",
) -> Tensor:
    """Return the result of a linear layer. `impl` applies to norm and activation."""
    x = normed(x, norm, impl)
    if activation is not None and gate is None and impl == "auto" and is_chosen(x, weight, bias, activation):
        y = activated_linear(x, weight, bias, activation)
    else:
        y, other = functional.linear(x, weight, bias), None if gate is None else functional.linear(x, gate)
        y = y if activation is None else activate(y, activation, gate=other, impl=impl)
    return y if residual is None else y + residual
