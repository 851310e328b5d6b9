"""Attention of a padded batch without its padding: `attention_varlen` on the tensors as they lie, in which padding is
sequences of their own, of keys that nobody asks or of queries that see no key and give zeros.

So nothing is gathered, the host waits for nothing, and no size depends on what is padded: a step can be captured in a
CUDA graph. Where the sequences begin is found once for all layers, and kept with the mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from groundspeed.hf.masks import Described
from groundspeed.kernels.attention.varlen import attention_varlen


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, described: Described, *, sinks: Tensor | None, **asked: Any
) -> Tensor:
    """[B, M, H, V] of q [B, H, M, D], k [B, G, N, D] and v [B, G, N, V]."""
    if q.shape[2] == 1 and sinks is None and not described.causal:
        return _of_one_query(q, k, v, mask, described, **asked)
    (B, H, M, _), N = q.shape, k.shape[2]
    cu_q, cu_k = kept(mask, ("rows", M, N), lambda: _by_rows(described, M, N))
    q, k, v = (x.transpose(1, 2).reshape(B * x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v))
    asked = {**asked, "causal": described.causal, "window_size": (described.window, described.window), "sinks": sinks}
    return attention_varlen(q, k, v, cu_q, cu_k, M, N, **asked).view(B, M, H, v.shape[2])


def _of_one_query(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, described: Described, **asked: Any) -> Tensor:
    """The heads that share keys are the queries of a sequence, so that a cache is read where it lies and once."""
    (B, H, _, D), (_, G, N, V) = q.shape, v.shape
    cu_q, cu_k = kept(mask, ("heads", H, G, N), lambda: _by_heads(described, H // G, G, N))
    q, k, v = q.reshape(B * H, 1, D), k.reshape(B * G * N, 1, D), v.reshape(B * G * N, 1, V)
    return attention_varlen(q, k, v, cu_q, cu_k, H // G, N, **asked).view(B, 1, H, V)


def _by_rows(described: Described, M: int, N: int) -> tuple[Tensor, Tensor]:
    """Of each row of the batch four sequences: queries before those that see something, keys before those that are
    seen, these together, and queries after them; at the end what is left of the keys."""
    first, last, begin, end = _numbers(described, M, N)
    rows = torch.arange(len(first), device=first.device)
    zero, behind = first.new_zeros(1), end + rows * N
    before = torch.cat([zero, behind[:-1]])
    of_q = torch.stack([first, first, last, torch.full_like(last, M)], dim=1) + rows[:, None] * M
    of_k = torch.stack([before, begin + rows * N, behind, behind], dim=1)
    ends = zero + len(first) * M, zero + len(first) * N
    return _joined(zero, of_q, ends[0]), _joined(zero, of_k, ends[1])


def _by_heads(described: Described, queries: int, G: int, N: int) -> tuple[Tensor, Tensor]:
    """Of each key head of each row two sequences: keys before those that are seen, and these with their queries."""
    _, _, begin, end = (numbers.repeat_interleave(G) for numbers in _numbers(described, 1, N))
    heads = torch.arange(len(begin), device=begin.device)
    zero = begin.new_zeros(1)
    of_q = torch.stack([heads, heads + 1], dim=1) * queries
    of_k = torch.stack([begin, end], dim=1) + heads[:, None] * N
    ends = zero + len(heads) * queries, zero + len(heads) * N
    return _joined(zero, of_q, ends[0]), _joined(zero, of_k, ends[1])


def _numbers(described: Described, M: int, N: int) -> tuple[Tensor, ...]:
    """First and last query, begin and end of the keys, of each row; none beyond the tensors, since our kernels believe
    them."""
    first, last, begin, end = described.rows.long().unbind(1)  # type: ignore[union-attr]
    last, end = last.clamp(max=M), end.clamp(max=N)
    return first.minimum(last), last, begin.minimum(end), end


def _joined(zero: Tensor, inner: Tensor, end: Tensor) -> Tensor:
    return torch.cat([zero, inner.flatten(), end]).to(torch.int32)


def kept(mask: Tensor, what: Any, make: Any) -> Any:
    """What was made of a mask before; it is one object in all layers. A compiler finds out for itself what is alike."""
    if torch.compiler.is_compiling():
        return make()
    made = mask.__dict__.setdefault("_groundspeed", {})
    if what not in made:
        made[what] = make()
    return made[what]
