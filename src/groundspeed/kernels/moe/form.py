"""What a mixture of experts computes, apart from its tensors: how tokens choose, and what an expert does."""

from __future__ import annotations

from dataclasses import dataclass

SCORES = ("softmax", "sigmoid")
ACTIVATIONS = ("swiglu", "gelu", "relu2")
"""silu(gate)·up of two halves, the gate first; x·Φ(x); max(x, 0)²."""

NUMBER = {None: 0, "gelu": 1, "swiglu": 2, "relu2": 3}
"""Of an activation, or none, in a kernel."""


@dataclass(frozen=True)
class Routing:
    """How a token chooses: its `top_k` greatest scores, of equal ones those of lower indices."""

    top_k: int
    score: str = "softmax"
    """Of the logits: over all experts, or each by itself."""
    renormalize: bool = True
    """The weights of the chosen add up to one."""
    scale: float = 1.0
    """Of the weights, in the end."""

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"top_k is at least 1, not {self.top_k}")
        if self.score not in SCORES:
            raise ValueError(f"score={self.score!r} is unknown: {', '.join(SCORES)}")


def widening(activation: str | None) -> int:
    """Rows of a matrix for each value that comes of it."""
    return 2 if activation == "swiglu" else 1


GELU_TERMS = 1.59501517, 0.0740119928, -0.000703185763
GELU_END = 25.0
"""x·Φ(x) = x·sigmoid(z), with z the odd polynomial of x that has these coefficients, in which x² is at most GELU_END:
the greatest error is 2.5e-5, a tenth of what FP16 rounds at 1, for a third of the instructions of an error function."""
