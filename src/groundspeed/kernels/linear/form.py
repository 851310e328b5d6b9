"""What may be asked of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_ROWS = 64
"""That our kernel takes: of more, a product is a matter of FLOPs, and cuBLAS's."""
MOST_NORMED = 16
"""Rows that it norms itself: every program reads all of them, twice."""


class Pages(NamedTuple):
    """Where keys and values go, as `groundspeed.append_paged` has it."""

    k_pages: Tensor
    v_pages: Tensor
    table: Tensor
    lengths: Tensor


class Norm(NamedTuple):
    """Of rows, before a product: as `groundspeed.rms_norm`, or `groundspeed.layer_norm` where it is `centered`."""

    weight: Tensor
    bias: Tensor | None = None
    eps: float = 1e-6
    centered: bool = False


NOTHING: Any = (None, None, 0.0, False)
"""Where there is no norm, in its place."""
