"""What a call of attention asks for beside its tensors and its scale: which keys a query sees, and how scores count."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

EVERYTHING = -1


class Form(NamedTuple):
    """Query i of M stands at i + N − M among N keys. It sees the keys from `left` before that place to `right` after
    it; EVERYTHING: all there are."""

    left: int = EVERYTHING
    right: int = EVERYTHING
    softcap: float = 0.0
    """c: a score s counts as c·tanh(s/c). 0: as it is."""
    sinks: bool = False
    """For each query head there is one more score, which takes part in the softmax and has no value."""

    @classmethod
    def of(
        cls, causal: bool, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, sinks: object = None
    ) -> Form:
        left, right = (max(EVERYTHING, int(n)) for n in window_size)
        return cls(left, 0 if causal else right, float(softcap), sinks is not None)


PLAIN = {causal: Form.of(causal) for causal in (False, True)}
"""Full and causal, and nothing else."""


def heads_last(q: Tensor) -> bool:
    """Whether q [B, H, M, D] lies in memory as [B, M, H, D], as a linear layer makes it. Its result does too then, and
    the next layer reads it without a copy."""
    last: bool = q.shape[1] > 1 and q.shape[2] > 1 and q.stride(1) < q.stride(2)
    return last


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[B, M, H, V] of [B, H, M, V], or the other way round."""
    B, H, M, V = shape
    return B, M, H, V
