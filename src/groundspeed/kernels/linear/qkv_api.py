"""`project_paged`: computes the queries of a few tokens and writes their keys and values to pages, in one launch, or in
two with a norm of long rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groundspeed.kernels import calls
from groundspeed.kernels.linear import parts
from groundspeed.kernels.linear.api import has_norm_apart, is_roomy
from groundspeed.kernels.linear.form import Norm
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

    from groundspeed.kernels.linear.form import Pages


def project_paged(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: Norm | None,
    angles: tuple[Tensor, Tensor] | None,
    pages: Pages,
    heads: int,
) -> Tensor:
    """Return the queries [B, heads, S, D], stored as [B, S, heads, D], of tokens x [B, S, K], as in
    kernels/linear/qkv.py. The caller has checked `why_not_ours` of api.py, and guarantees that all tensors share a
    dtype and device and fit together."""
    B, S, K = x.shape
    if norm is not None and has_norm_apart(x):
        x, norm = parts.normed(x, norm), None
    tensors = tuple(t for t in (x, weight, bias, *(norm or ())[:2], *(angles or ()), *pages) if t is not None)
    key = heads, bias is None, angles is None, None if norm is None else (norm.bias is None, norm.centered)
    run = _recall.find(key, tensors)
    known = run is not None
    run = run or _prepared(x, weight, norm, angles, pages, heads)
    q: Tensor = run(x.view(B * S, K), weight, bias, norm, angles, pages)
    if not known:
        _recall.keep(key, tensors, run)  # only after it has served a call
    return q.view(B, S, heads, pages.k_pages.shape[3]).transpose(1, 2)


_recall = Recall()


def _prepared(x: Tensor, weight: Tensor, norm: Any, angles: Any, pages: Pages, heads: int) -> Any:
    from groundspeed.kernels.linear import qkv

    chained = calls.capability(x.device) >= calls.HOPPER
    told = x.view(-1, x.shape[2]), weight, norm, angles, pages, heads
    return qkv.prepared(*told, chained=chained, roomy=is_roomy(x.device))
