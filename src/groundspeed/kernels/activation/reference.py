"""The oracle of activations: the definition in activations.py, in FP64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundspeed.kernels.activations import activated
from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = {
    # For standard-normal inputs: at least twice the worst error of PyTorch's own code, in rows of at least 16 elements.
    # With 16 bits, the worst is SwiGLU in two operations, which rounds the intermediate result.
    "fp32": Tolerance(max_abs=4e-6, mean_abs=5e-8, max_rel=1e-6, rms_rel=2.5e-7),
    "fp16": Tolerance(max_abs=1.6e-2, mean_abs=2e-4, max_rel=2e-3, rms_rel=6e-4),
    "bf16": Tolerance(max_abs=1.3e-1, mean_abs=1.6e-3, max_rel=1.5e-2, rms_rel=5e-3),
}


def activate(x: Tensor, activation: str, gate: Tensor | None = None) -> Tensor:
    """Return the result in FP64."""
    return activated(x.double(), activation, None if gate is None else gate.double())
