"""The oracle of attention: in FP64, short, obviously right, and able to compute just a few rows of the result.

out = softmax(q·kᵀ·scale)·v for q [B, H, S, D], k [B, G, N, D] and v [B, G, N, V], with H a multiple of G. With
`causal`, query i sees keys 0 … i + N − S; with a window, it sees the keys from `left` before position i + N − S to
`right` after it. Rows that see no key are 0. A soft-cap c turns a score s into c·tanh(s/c). The sink of a head [H] is
one more score, without a value."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor


TOLERANCE = {
    # For standard-normal inputs: at least twice the worst error of PyTorch's own code, over S from 1 to 4096 and D
    # from 16 to 256. The worst is eager `naive`, which rounds its scores to the dtype (rms_rel 4.9e-7, 7.4e-4, 5.9e-3);
    # the SDPA backends stay under a fifth of the 16-bit rms_rel. FP8 e4m3 operands give an rms_rel of 1.8e-2 or more
    # and TF32 operands one of 1.4e-4 or more: both are rejected.
    "fp32": Tolerance(max_abs=1e-5, mean_abs=1e-6, max_rel=1e-5, rms_rel=4e-6),
    "fp16": Tolerance(max_abs=7e-3, mean_abs=4e-4, max_rel=1.4e-2, rms_rel=1.6e-3),
    "bf16": Tolerance(max_abs=5e-2, mean_abs=4e-3, max_rel=1e-1, rms_rel=1.3e-2),
}


AT_ONCE_BYTES = {"cpu": 1 << 22, "cuda": 1 << 30}
"""Heads are computed together as long as their keys, values and scores in FP64 take no more bytes than this: what fits
a CPU's cache, or what keeps a GPU busy."""


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    scale: float | None = None,
    rows: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return the FP64 result as [rows, V], with the leading dimensions flattened: of the given `rows` only, or of
    all."""
    import torch

    B, H, S, D = q.shape
    _, G, N, V = v.shape
    scale = D**-0.5 if scale is None else scale
    flat_q, flat_k, flat_v = q.reshape(B * H, S, D), k.reshape(B * G, N, D), v.reshape(B * G, N, V)

    left, right = window_size[0], 0 if causal else window_size[1]

    def answer(q_rows: Tensor, k_rows: Tensor, v_rows: Tensor, at: Tensor, sink: Tensor | None) -> Tensor:
        """Return the outputs of queries [heads, m, D] at the positions `at` [heads, m] of their sequences."""
        scores = q_rows.double() @ k_rows.double().transpose(1, 2) * scale
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        place, keys = at[..., None] + N - S, torch.arange(N, device=q.device)
        if right >= 0:
            scores = scores.masked_fill(keys > place + right, float("-inf"))
        if left >= 0:
            scores = scores.masked_fill(keys < place - left, float("-inf"))
        if sink is not None:
            scores = torch.cat([scores, sink.double()[:, None, None].expand(*scores.shape[:2], 1)], dim=2)
        weights = scores.softmax(dim=2)
        if left >= 0 or right >= 0:
            sees_none = (scores == float("-inf")).all(dim=2, keepdim=True)
            weights = weights.masked_fill(sees_none, 0.0)
        return _summed(weights[..., :N], v_rows.double())

    rows = torch.arange(B * H * S) if rows is None else rows.cpu().long()
    heads, at, back = _by_head(rows, S)
    asked_for = torch.cat([heads[:, None], (heads // H * G + heads % H // (H // G))[:, None], at], dim=1).to(q.device)
    size = max(1, AT_ONCE_BYTES[q.device.type] // max(1, 8 * N * (D + V + at.shape[1])))
    answers = []
    for some in asked_for.split(size):
        of, of_keys, places = some[:, 0], some[:, 1], some[:, 2:]
        sink = None if sinks is None else sinks[of % H]
        answers.append(answer(flat_q[of[:, None], places], flat_k[of_keys], flat_v[of_keys], places, sink))
    found = torch.cat(answers).flatten(0, 1)
    return found if back is None else found[back.to(q.device)]


def _by_head(rows: Tensor, S: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the heads that the rows belong to, the positions [heads, m] requested in each, and the index of each row
    in that array; the index is None if the rows are already in that order."""
    import torch

    if len(rows) <= FEW:  # finding the rows that share a head would take longer than computing each separately
        return rows // S, (rows % S)[:, None], None
    heads, line, asked = (rows // S).unique(return_inverse=True, return_counts=True)
    longest = int(asked.max())
    column = torch.empty_like(line)  # index of each row within the row list of its head
    column[line.argsort(stable=True)] = torch.arange(len(rows)) - (asked.cumsum(0) - asked).repeat_interleave(asked)
    at = torch.zeros(len(heads), longest, dtype=torch.int64)  # shorter lists are padded with position 0
    at[line, column] = rows % S
    return heads, at, line * longest + column


PART, FEW = 256, 16
"""PART is a number of keys, FEW a number of rows."""


def _summed(weights: Tensor, values: Tensor) -> Tensor:
    """Return weights [heads, m, N] @ values [heads, N, V]. With few rows, the product is split along the keys and the
    parts are added afterwards: otherwise a GPU would go through all keys of a head serially."""
    heads, m, N = weights.shape
    parts = N // PART
    if m > FEW or parts < 2:
        return weights @ values
    whole = parts * PART
    of_weights = weights[..., :whole].reshape(heads, m, parts, PART).transpose(1, 2)
    of_values = values[:, :whole].reshape(heads, parts, PART, values.shape[2])
    summed = (of_weights @ of_values).sum(1)
    return summed if whole == N else summed + weights[..., whole:] @ values[:, whole:]


def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *, rows: Tensor | None = None, **asked: Any
) -> Tensor:
    """Return `attention` of each packed sequence separately, for q [total, H, D], k [total, G, D] and v [total, G, V];
    sequence b has the rows from cu_seqlens[b] to cu_seqlens[b + 1]. The result is [rows, V], of the total·H rows."""
    import torch

    total, H, _ = q.shape
    rows = torch.arange(total * H) if rows is None else rows.cpu()
    token, head = rows // H, rows % H
    result = torch.empty(len(rows), v.shape[2], dtype=torch.float64, device=q.device)
    for begin, end in pairwise(cu_seqlens.tolist()):
        (here,) = ((begin <= token) & (token < end)).nonzero(as_tuple=True)
        if len(here):
            one = (x[begin:end].transpose(0, 1)[None] for x in (q, k, v))
            at = head[here] * (end - begin) + token[here] - begin
            result[here.to(q.device)] = attention(*one, rows=at, **asked)
    return result


def attention_paged(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    *,
    rows: Tensor | None = None,
    **asked: Any,
) -> Tensor:
    """Return `attention` of each sequence separately, for q [B, H, M, D] and the lengths[b] positions in its pages. The
    result is [rows, D], of the B·H·M rows."""
    import torch

    (B, H, M, D), page = q.shape, k_pages.shape[2]
    rows = torch.arange(B * H * M) if rows is None else rows.cpu()
    result = torch.empty(len(rows), D, dtype=torch.float64, device=q.device)
    for b, keys in enumerate(lengths.tolist()):
        (here,) = (rows // (H * M) == b).nonzero(as_tuple=True)
        if len(here):
            taken = pages[b, : -(-keys // page)].long()
            k, v = (x[taken].transpose(0, 1).flatten(1, 2)[None, :, :keys] for x in (k_pages, v_pages))
            result[here.to(q.device)] = attention(q[b : b + 1], k, v, rows=rows[here] % (H * M), **asked)
    return result
