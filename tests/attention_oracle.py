"""Attention in FP64, spelled out, for tests of kernels: with its log-sum-exp, which the oracle of the suite has not."""

from __future__ import annotations

from typing import Any

import torch

AT_ONCE = 1 << 26
"""The most scores at once: tests of large shapes share the memory of a GPU with others that run at the same time."""


def oracle(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Any = None,
) -> tuple[Any, Any]:
    """Output and log-sum-exp in FP64, grouped heads and masks, which are aligned bottom-right, spelled out."""
    group = q.shape[1] // k.shape[1]
    if q.shape[1] > 1 and q.shape[:3].numel() * k.shape[2] > AT_ONCE:
        heads = [
            oracle(q[:, h : h + 1], k[:, h // group :][:, :1], v[:, h // group :][:, :1], causal, scale, window_size,
                   softcap, None if sinks is None else sinks[h : h + 1])
            for h in range(q.shape[1])
        ]  # fmt: skip
        out, lse = (torch.cat(parts, dim=1) for parts in zip(*heads, strict=True))
        return out, lse
    k, v = (t.repeat_interleave(group, dim=1).double() for t in (k, v))
    scores = q.double() @ k.transpose(-2, -1) * scale
    scores = softcap * (scores / softcap).tanh() if softcap else scores
    M, N = scores.shape[-2:]
    distance = torch.arange(N, device=q.device)[None, :] - (torch.arange(M, device=q.device)[:, None] + N - M)
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = ((distance > right) & (right >= 0)) | ((-distance > left) & (left >= 0))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    lse = scores.logsumexp(dim=-1)
    return torch.nan_to_num(scores.softmax(dim=-1))[..., :N] @ v, lse
