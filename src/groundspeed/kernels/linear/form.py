"""The options of a linear layer, and the limits of our kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_ROWS = 1024
"""The most rows that our kernel takes. With more than 64 rows it reads the matrix more than once, most likely from
L2."""
FEW_ROWS = 16
"""The most rows for which it is chosen: with more, every program reads more of x than of the matrix. Not measured
yet."""
MOST_PRODUCT_ROWS = 128
"""The most rows for which it is chosen if the matrix has at most SMALL_MATRIX elements, on GPUs where a kernel starts
while the one before it runs. Predicted, not measured; see docs/log.md. 16 would switch this off."""
SMALL_MATRIX = 4 << 20
"""See MOST_PRODUCT_ROWS: reading 8 MB takes 1.7 µs of an H200, less than a launch that waits for the one before."""
MOST_NORMED = 32768
"""The most elements of x that it normalises itself, since every program reads them once more. Not measured yet."""


class Pages(NamedTuple):
    """The pages that keys and values are written to, as in `groundspeed.append_paged`."""

    k_pages: Tensor
    v_pages: Tensor
    table: Tensor
    lengths: Tensor


class Norm(NamedTuple):
    """The norm of rows before a product: `groundspeed.rms_norm`, or `groundspeed.layer_norm` if `centered`. Only the
    latter may have a bias."""

    weight: Tensor
    bias: Tensor | None = None
    eps: float = 1e-6
    centered: bool = False


NOTHING: Any = (None, None, 0.0, False)
"""The fields of `Norm` if there is no norm."""
