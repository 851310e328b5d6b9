"""The form of attention that a call asks for, apart from its tensors and its scale: which keys a query sees, and how
scores are transformed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

EVERYTHING = -1


class Form(NamedTuple):
    """Which keys a query sees, and what happens to its scores. With M queries and N keys, query i is at position i + N
    − M. It sees the keys from `left` positions before that to `right` positions after it; EVERYTHING means no bound on
    that side."""

    left: int = EVERYTHING
    right: int = EVERYTHING
    softcap: float = 0.0
    """The soft-cap c: a score s becomes c·tanh(s/c). 0 means none."""
    sinks: bool = False
    """Whether each query head has a sink: one more score, which takes part in the softmax but has no value."""

    @classmethod
    def of(
        cls, causal: bool, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, sinks: object = None
    ) -> Form:
        left, right = (max(EVERYTHING, int(n)) for n in window_size)
        return cls(left, 0 if causal else right, float(softcap), sinks is not None)


PLAIN = {causal: Form.of(causal) for causal in (False, True)}
"""The forms without a window, soft-cap or sinks, by whether they are causal."""


def heads_last(q: Tensor) -> bool:
    """Return whether q [B, H, M, D] is stored as [B, M, H, D], as a linear layer produces it. The result is then stored
    that way too, so that the next layer reads it without a copy."""
    last: bool = q.shape[1] > 1 and q.shape[2] > 1 and 0 < q.stride(1) < q.stride(2)
    return last


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return [B, M, H, V] for [B, H, M, V], or the reverse."""
    B, H, M, V = shape
    return B, M, H, V
