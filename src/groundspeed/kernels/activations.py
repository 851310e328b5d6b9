"""What activations are: of experts, and by themselves. By PyTorch, in the dtype of the values: in FP64 the oracle, else
what serves where no kernel of ours can."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = ("swiglu", "gelu", "gelu_tanh", "relu2")
"""silu(gate)·x of two, or of two halves, the gate first; x·Φ(x); the same with a hyperbolic tangent for the error
function; max(x, 0)²."""


def activated(values: Tensor, activation: str, gate: Tensor | None = None) -> Tensor:
    from torch.nn import functional

    if activation == "swiglu":
        if gate is None:
            gate, values = values.chunk(2, dim=-1)
        return functional.silu(gate) * values
    if activation == "relu2":
        return functional.relu(values).square()
    return functional.gelu(values, approximate="tanh" if activation == "gelu_tanh" else "none")
