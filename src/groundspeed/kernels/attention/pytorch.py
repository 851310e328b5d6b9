"""Attention by PyTorch: the fallback where none of our kernels can serve, on any device and with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.kernels.attention.form import PLAIN, Form

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attention(q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float, sinks: Tensor | None, return_lse: bool) -> Any:
    M, N = q.shape[2], k.shape[2]
    seen = None if form == PLAIN[False] or (form == PLAIN[True] and M == N) else _seen(M, N, form, q.device)
    if form.softcap or sinks is not None:
        out = _spelt_out(q, k, v, form, scale, sinks, seen)
    else:  # PyTorch's own causal mask is aligned top-left
        causal, grouped = form == PLAIN[True] and seen is None, q.shape[1] != k.shape[1]
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal, scale=scale, enable_gqa=grouped)
    if seen is not None:
        out = out.masked_fill(~seen.any(dim=1)[:, None], 0.0)  # rows that see no key
    return (out, _log_sum_exp(q, k, form, scale, sinks)) if return_lse else out


def _seen(M: int, N: int, form: Form, device: torch.device) -> Tensor | None:
    """Return a mask [M, N] of the keys that each query sees, or None if it sees all."""
    if form.left < 0 and form.right < 0:
        return None
    after = torch.arange(N, device=device)[None, :] - torch.arange(M, device=device)[:, None] - (N - M)
    seen = torch.ones(M, N, dtype=torch.bool, device=device)
    if form.right >= 0:
        seen &= after <= form.right
    if form.left >= 0:
        seen &= after >= -form.left
    return seen


def _scores(q: Tensor, k: Tensor, form: Form, scale: float, seen: Tensor | None) -> Tensor:
    """Return the scores in FP32. q and k have the same number of heads."""
    scores = q.float() @ k.float().transpose(-2, -1) * scale
    if form.softcap:
        scores = form.softcap * (scores / form.softcap).tanh()
    return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def _spelt_out(
    q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float, sinks: Tensor | None, seen: Tensor | None
) -> Tensor:
    """Return the result of forms that PyTorch has no function for, using O(M·N) memory."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = _scores(q, k, form, scale, seen)
    if sinks is not None:
        scores = torch.cat([scores, sinks.float()[:, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[2]]
    return (weights @ v.float()).to(q.dtype)


def _log_sum_exp(q: Tensor, k: Tensor, form: Form, scale: float, sinks: Tensor | None) -> Tensor:
    """Return the log-sum-exp of each row, computed one head at a time so that memory stays O(M·N) of one head."""
    B, H, M, _ = q.shape
    N, group = k.shape[2], H // k.shape[1]
    seen = _seen(M, N, form, q.device)
    rows = []
    for b in range(B):
        for h in range(H):
            lse = _scores(q[b, h], k[b, h // group], form, scale, seen).logsumexp(dim=-1)
            rows.append(lse if sinks is None else torch.logaddexp(lse, sinks[h].float()))
    return torch.stack(rows).view(B, H, M) if rows else q.new_empty((B, H, M), dtype=torch.float32)
