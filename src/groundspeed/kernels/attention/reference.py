"""The oracle of attention: in FP64, short, obviously right, and able to answer for a few rows only.

out = softmax(q·kᵀ·scale)·v on q of [B, H, S, D], k of [B, G, N, D] and v of [B, G, N, V], H a multiple of G; with
`causal`, query i sees keys 0 … i + N − S, with a window those from left before i + N − S to right after it. Rows that
see none are 0. A soft-cap c makes c·tanh(s/c) of a score s; the sink of a head [H] is one more score, without a value.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from groundspeed.kernels.tolerance import Tolerance

if TYPE_CHECKING:
    from torch import Tensor


TOLERANCE = {
    # For standard-normal inputs: at least twice the worst that PyTorch's own code shows, over S from 1 to 4096 and D
    # from 16 to 256. The worst is eager `naive`, which rounds its scores to the dtype (rms_rel 4.9e-7, 7.4e-4, 5.9e-3);
    # the SDPA backends stay under a fifth of the 16-bit rms_rel. FP8 e4m3 operands have an rms_rel of 1.8e-2 or more,
    # TF32 operands of 1.4e-4 or more: both are refused.
    "fp32": Tolerance(max_abs=1e-5, mean_abs=1e-6, max_rel=1e-5, rms_rel=4e-6),
    "fp16": Tolerance(max_abs=7e-3, mean_abs=4e-4, max_rel=1.4e-2, rms_rel=1.6e-3),
    "bf16": Tolerance(max_abs=5e-2, mean_abs=4e-3, max_rel=1e-1, rms_rel=1.3e-2),
}


AT_ONCE_BYTES = {"cpu": 1 << 22, "cuda": 1 << 30}
"""Heads are answered for together as long as their keys, values and scores in FP64 take no more than this: what a
cache holds, or what keeps a GPU busy."""


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
    """The FP64 result as [rows, V], the leading dimensions flattened; of the given `rows` only, or of all."""
    import torch

    B, H, S, D = q.shape
    _, G, N, V = v.shape
    scale = D**-0.5 if scale is None else scale
    flat_q, flat_k, flat_v = q.reshape(B * H, S, D), k.reshape(B * G, N, D), v.reshape(B * G, N, V)

    left, right = window_size[0], 0 if causal else window_size[1]

    def answer(q_rows: Tensor, k_rows: Tensor, v_rows: Tensor, at: Tensor, sink: Tensor | None) -> Tensor:
        """Of [heads, m, D] queries that stand `at` [heads, m] in their sequences."""
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
    """Heads, each with the places [heads, m] in its sequence that are asked for, and where each row is found among
    them; None where they lie as they were asked for."""
    import torch

    if len(rows) <= FEW:  # finding out which of them share a head would take longer than answering one by one
        return rows // S, (rows % S)[:, None], None
    heads, line, asked = (rows // S).unique(return_inverse=True, return_counts=True)
    longest = int(asked.max())
    column = torch.empty_like(line)  # of each row, in the line of its head
    column[line.argsort(stable=True)] = torch.arange(len(rows)) - (asked.cumsum(0) - asked).repeat_interleave(asked)
    at = torch.zeros(len(heads), longest, dtype=torch.int64)  # a line that is not full ends with the first row
    at[line, column] = rows % S
    return heads, at, line * longest + column


PART, FEW = 256, 16
"""Keys, and rows."""


def _summed(weights: Tensor, values: Tensor) -> Tensor:
    """weights [heads, m, N] @ values [heads, N, V]. Of few rows in parts of the keys, which are added up afterwards:
    a GPU would go through all keys of a head one after the other."""
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
    """`attention` of each sequence by itself, of q [total, H, D], k [total, G, D] and v [total, G, V], in which they
    lie from cu_seqlens[b] to cu_seqlens[b + 1]: [rows, V] of the total·H rows."""
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
    """`attention` of each sequence by itself, of q [B, H, M, D] to the lengths[b] positions in its pages: [rows, D] of
    the B·H·M rows."""
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
