"""Attention of a padded batch without its padding: `attention_varlen` on the tensors in place. Padding becomes separate
sequences: keys without queries, and queries that see no key and give zeros.

So nothing is gathered, the host does not wait for the device, and no size depends on the padding: a decoding step can
be captured in a CUDA graph. The boundaries of the sequences are computed once for all layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from groundspeed.hf.masks import Described
from groundspeed.kernels import calls
from groundspeed.kernels.attention.varlen import attention_varlen
from groundspeed.nn.graphs import warming


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, described: Described, *, sinks: Tensor | None, **asked: Any
) -> Tensor:
    """Return the output [B, M, H, V] of q [B, H, M, D], k [B, G, N, D] and v [B, G, N, V]."""
    if q.shape[2] == 1 and sinks is None and not described.causal:
        return _of_one_query(q, k, v, mask, described, **asked)
    (B, H, M, _), N = q.shape, k.shape[2]
    cu_q, cu_k = kept(mask, ("rows", M, N), lambda: _by_rows(described, M, N))
    q, k, v = (x.transpose(1, 2).reshape(B * x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v))
    asked = {**asked, "causal": described.causal, "window_size": (described.window, described.window), "sinks": sinks}
    return attention_varlen(q, k, v, cu_q, cu_k, M, N, **asked).view(B, M, H, v.shape[2])


def _of_one_query(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, described: Described, **asked: Any) -> Tensor:
    """Treat the query heads that share a key head as the queries of one sequence, so that the cache is read in place
    and only once."""
    (B, H, _, D), (_, G, N, V) = q.shape, v.shape
    cu_q, cu_k = kept(mask, ("heads", H, G, N), lambda: _by_heads(described, H // G, G, N))
    q, k, v = q.reshape(B * H, 1, D), k.reshape(B * G * N, 1, D), v.reshape(B * G * N, 1, V)
    return attention_varlen(q, k, v, cu_q, cu_k, H // G, N, **asked).view(B, 1, H, V)


def _by_rows(described: Described, M: int, N: int) -> tuple[Tensor, Tensor]:
    """Return the boundaries of four sequences for each row of the batch: the queries before those that see a key; the
    keys before the visible ones; the queries and keys that see each other; the queries after those. One more sequence
    at the end holds the remaining keys."""
    first, last, begin, end = _numbers(described, M, N)
    rows = torch.arange(len(first), device=first.device)
    zero, behind = first.new_zeros(1), end + rows * N
    before = torch.cat([zero, behind[:-1]])
    of_q = torch.stack([first, first, last, torch.full_like(last, M)], dim=1) + rows[:, None] * M
    of_k = torch.stack([before, begin + rows * N, behind, behind], dim=1)
    ends = zero + len(first) * M, zero + len(first) * N
    return _joined(zero, of_q, ends[0]), _joined(zero, of_k, ends[1])


def _by_heads(described: Described, queries: int, G: int, N: int) -> tuple[Tensor, Tensor]:
    """Return the boundaries of two sequences for each key head of each row: the keys before the visible ones, and the
    visible keys with their queries."""
    _, _, begin, end = (numbers.repeat_interleave(G) for numbers in _numbers(described, 1, N))
    heads = torch.arange(len(begin), device=begin.device)
    zero = begin.new_zeros(1)
    of_q = torch.stack([heads, heads + 1], dim=1) * queries
    of_k = torch.stack([begin, end], dim=1) + heads[:, None] * N
    ends = zero + len(heads) * queries, zero + len(heads) * N
    return _joined(zero, of_q, ends[0]), _joined(zero, of_k, ends[1])


def _numbers(described: Described, M: int, N: int) -> tuple[Tensor, ...]:
    """Return first, last, begin and end of each row, limited to the sizes of the tensors because our kernels do not
    check them."""
    first, last, begin, end = described.rows.long().unbind(1)  # type: ignore[union-attr]
    last, end = last.clamp(max=M), end.clamp(max=N)
    return first.minimum(last), last, begin.minimum(end), end


def _joined(zero: Tensor, inner: Tensor, end: Tensor) -> Tensor:
    return torch.cat([zero, inner.flatten(), end]).to(torch.int32)


def kept(mask: Tensor, what: Any, make: Any) -> Any:
    """Return what `make` computes from the mask, which is the same object in all layers: computed once until the mask
    changes in place, which an inference tensor does not record. During a CUDA graph capture it is computed again, once
    for the graph if `compile_graphs` captures and else for each layer: a replay must see the mask of its own call, and
    memory of one graph must not be read by another. Not cached under a compiler, which merges equal computations
    itself."""
    if torch.compiler.is_compiling():
        return make()
    once = warming.captured_once()
    if once is not None:
        _, cache = once.setdefault(id(mask), (mask, {}))  # keeps the mask alive, so that no other gets its id
    elif calls.is_captured(mask):
        return make()
    else:
        cache = mask.__dict__.setdefault("_groundspeed", {})
    version = None if mask.is_inference() else mask._version
    if what not in cache or cache[what][0] != version:
        cache[what] = version, make()
    return cache[what][1]
