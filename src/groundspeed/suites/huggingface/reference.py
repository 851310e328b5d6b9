"""The oracle: the model in FP64, a few sequences at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NORM_EPS = 1e-5
THETA = 500_000.0
"""Base of the rotary embedding. The scaling of Llama 3.1 and 3.2 for long contexts is left out: it changes the angles
and not the work."""
SCORES = 1 << 28
"""Scores that are held at a time, in FP64."""


def llama(
    ids: Tensor,
    words: Tensor,
    norms: Tensor,
    last: Tensor,
    *matrices: Tensor,
    heads: int,
    key_heads: int,
    rows: Tensor | None = None,
) -> Tensor:
    """Return the output of the last norm for each of the tokens [B, S], or with S = 1 the logits of the next word; in
    FP64 as [rows, d or V]. `matrices` are those of `Shape.weights` after the norms, then keys and values if some were
    kept. With `rows`, only their sequences are computed."""
    import torch

    B, S = ids.shape
    wanted = torch.arange(B * S) if rows is None else rows.cpu()
    *layers, head = matrices[:5]
    kept = matrices[5:]
    before = kept[0].shape[3] if kept else 0
    out = torch.empty(len(wanted), head.shape[0] if S == 1 else head.shape[1], dtype=torch.float64, device=ids.device)
    for chosen in torch.unique(wanted // S).split(max(1, SCORES // (heads * S * (S + before)))):
        which = chosen.to(ids.device)
        x = words[ids[which]].double()
        x = _layers(x, norms, tuple(layers), tuple(part[:, which] for part in kept), heads, key_heads)
        here = torch.isin(wanted // S, chosen)
        place = torch.searchsorted(chosen, wanted[here] // S) * S + wanted[here] % S
        found = _norm(x, last).flatten(0, 1)[place.to(ids.device)]
        out[here.to(ids.device)] = found @ head.double().T if S == 1 else found
    return out


def _layers(
    x: Tensor, norms: Tensor, matrices: tuple[Tensor, ...], kept: tuple[Tensor, ...], heads: int, key_heads: int
) -> Tensor:
    import torch
    from torch.nn.functional import linear, silu

    B, S, d = x.shape
    D, before = d // heads, kept[0].shape[3] if kept else 0
    cos, sin = _turn(torch.arange(before, before + S, device=x.device), D)
    hidden = torch.ones(S, before + S, dtype=torch.bool, device=x.device).triu(before + 1)
    for layer in range(len(norms)):
        qkv, out, gate_up, down = (matrix[layer].double() for matrix in matrices)
        states = linear(_norm(x, norms[layer, 0]), qkv).view(B, S, -1, D).transpose(1, 2)
        q, k, v = states.split((heads, key_heads, key_heads), dim=1)
        q, k = (part * cos + torch.cat([-part[..., D // 2 :], part[..., : D // 2]], -1) * sin for part in (q, k))
        if kept:
            k, v = (torch.cat([old[layer].double(), new], 2) for old, new in zip(kept, (k, v), strict=True))
        k, v = (part.repeat_interleave(heads // key_heads, dim=1) for part in (k, v))
        scores = (q @ k.mT).mul_(D**-0.5).masked_fill_(hidden, float("-inf"))
        seen: Any = scores.softmax(-1) @ v
        x = x + linear(seen.transpose(1, 2).reshape(B, S, d), out)
        gate, up = linear(_norm(x, norms[layer, 1]), gate_up).chunk(2, -1)
        x = x + linear(silu(gate) * up, down)
    return x


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt() * weight.double()


def _turn(places: Tensor, D: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines. The angles are part of the model, which computes them in FP32 whatever its dtype."""
    import torch

    each = 1.0 / (THETA ** (torch.arange(0, D, 2, dtype=torch.float32, device=places.device) / D))
    angles = (places[:, None].float() * each).double().repeat(1, 2)
    return angles.cos(), angles.sin()
