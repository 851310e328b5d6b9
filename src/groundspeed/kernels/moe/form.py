"""The form of a mixture of experts, apart from its tensors: how tokens choose experts, and what an expert computes."""

from __future__ import annotations

from dataclasses import dataclass

SCORES = ("softmax", "sigmoid")
ACTIVATIONS = ("swiglu", "gelu", "relu2")
"""In this order: silu(gate)·up of two halves, the gate first; x·Φ(x); max(x, 0)²."""

NUMBER = {None: 0, "gelu": 1, "swiglu": 2, "relu2": 3}
"""The number by which kernels know an activation, or none."""


@dataclass(frozen=True)
class Routing:
    """How a token chooses its experts: by the `top_k` greatest scores; among equal scores, the lower index comes
    first."""

    top_k: int
    score: str = "softmax"
    """The function of the logits: softmax over all experts, or sigmoid of each one."""
    renormalize: bool = True
    """Whether the weights of the chosen experts are divided by their sum."""
    scale: float = 1.0
    """The factor of the weights, applied last."""

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.score not in SCORES:
            raise ValueError(f"score={self.score!r} is unknown; choose from {', '.join(SCORES)}")


def widening(activation: str | None) -> int:
    """Return the number of matrix rows per value of the result."""
    return 2 if activation == "swiglu" else 1


GELU_TERMS = 1.59501517, 0.0740119928, -0.000703185763
GELU_END = 25.0
"""The coefficients of z, an odd polynomial of x in which x² is limited to GELU_END, in x·Φ(x) = x·sigmoid(z). The
largest error is 2.5e-5, a tenth of FP16's rounding at 1, for a third of the instructions of an error function."""
