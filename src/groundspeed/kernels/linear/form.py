"""The options of a linear layer, and the limits of our kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_ROWS = 1024
"""The most rows that our kernel takes. With more than 64 rows it reads the matrix more than once, most likely from
L2."""
FEW_ROWS = 16
"""The most rows for which it is chosen: with more, every program reads more of x than of the matrix. Up to 8 were
measured."""
MOST_PRODUCT_ROWS = 128
"""The most rows for which it is chosen if the matrix has at most SMALL_MATRIX elements, on GPUs where a kernel starts
while the one before it runs. On an H200 it takes 0.5 to 0.9 of the time of cuBLAS and separate kernels with 64 and 128
rows and matrices of up to 3072 × 768."""
SMALL_MATRIX = 4 << 20
"""See MOST_PRODUCT_ROWS: reading 8 MB takes 1.7 µs of an H200, less than a launch that waits for the one before."""
MOST_NORMED = 1024
"""The most columns of x for which it normalises rows itself if the choice is ours: every program does so. On an H200 a
separate kernel is up to 10% slower with 768 columns and one row, and 1 to 3% faster with 2,048 and 4,096, more with 8
rows."""


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
