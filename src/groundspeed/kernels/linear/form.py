"""What may be asked of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_ROWS = 1024
"""That our kernel takes: of more than 64 it reads the matrix more than once, from L2 in all likelihood."""
FEW_ROWS = 16
"""For which it is chosen: of more, every program reads more of x than of the matrix. Not measured yet."""
MOST_NORMED = 32768
"""Elements that it norms itself, since every program reads them once more. Not measured yet."""


class Pages(NamedTuple):
    """Where keys and values go, as `groundspeed.append_paged` has it."""

    k_pages: Tensor
    v_pages: Tensor
    table: Tensor
    lengths: Tensor


class Norm(NamedTuple):
    """Of rows, before a product: as `groundspeed.rms_norm`, or `groundspeed.layer_norm` where it is `centered`, which
    alone may have a bias."""

    weight: Tensor
    bias: Tensor | None = None
    eps: float = 1e-6
    centered: bool = False


NOTHING: Any = (None, None, 0.0, False)
"""Where there is no norm, in its place."""
