"""The activations, as operations of PyTorch in the dtype of their input: in FP64 they are the oracle, otherwise the
fallback where none of our kernels can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = ("swiglu", "gelu", "gelu_tanh", "relu2")
"""In this order: silu(gate)·x, of two tensors or of two halves of one with the gate first; x·Φ(x); the same with a
hyperbolic tangent in place of the error function; max(x, 0)²."""


def activated(values: Tensor, activation: str, gate: Tensor | None = None) -> Tensor:
    from torch.nn import functional

    if activation == "swiglu":
        if gate is None:
            gate, values = values.chunk(2, dim=-1)
        return functional.silu(gate) * values
    if activation == "relu2":
        return functional.relu(values).square()
    return functional.gelu(values, approximate="tanh" if activation == "gelu_tanh" else "none")
