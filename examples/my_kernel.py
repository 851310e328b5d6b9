"""A contender of your own: attention by blocks of keys with an online softmax, in plain PyTorch.

    groundspeed run attention --preset quick --with examples/my_kernel.py
    groundspeed run attention --preset quick --with examples/my_kernel.py --shape S=777,D=96 --dtype bf16

The laboratory imports this file in every measuring process. It checks `mine` against its FP64 oracle, before timing and
on timed calls, and only then compares it with PyTorch's own. The maths, for each query, one block of keys at a time:

    m' = max(m, max(s))    l' = l·exp(m - m') + Σ exp(s - m')    o' = o·exp(m - m') + exp(s - m')·v    out = o / l

So the scores of all keys are never in memory at once. `q`, `k` and `v` are [batch, heads, sequence, dimension].
"""

from __future__ import annotations

import torch
from torch import Tensor

import groundspeed as gs
from groundspeed.case import Case

BLOCK = 256
"""Keys per block: their scores for some hundred queries still fit in a core's cache."""


def supports(case: Case, device: str) -> str | None:
    """Return why `mine` cannot do a case, or None. A case refused here is listed as SKIPPED with this reason."""
    return None if int(case.params["D"]) <= 256 else "head dimensions up to 256 only"


@gs.contender("attention", name="mine", supports=supports)
def mine(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """Attention by blocks with an online softmax, in eager PyTorch"""
    S = q.shape[-2]
    queries = q.float() * scale
    top = torch.full((*q.shape[:-1], 1), float("-inf"), device=q.device)
    total = torch.zeros_like(top)
    out = torch.zeros_like(queries)
    for begin in range(0, S, BLOCK):
        first = begin if causal else 0  # queries before a block of keys do not see it
        keys, values = (tensor[..., begin : begin + BLOCK, :].float() for tensor in (k, v))
        scores = queries[..., first:, :] @ keys.mT
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        higher = torch.maximum(top[..., first:, :], scores.amax(-1, keepdim=True))
        weights = (scores - higher).exp()
        shrink = (top[..., first:, :] - higher).exp()
        total[..., first:, :] = total[..., first:, :] * shrink + weights.sum(-1, keepdim=True)
        out[..., first:, :] = out[..., first:, :] * shrink + weights @ values
        top[..., first:, :] = higher
    return (out / total).to(q.dtype)
