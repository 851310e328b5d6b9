"""The oracle: the model in FP64, one sequence at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NORM_EPS = 1e-5


def transformer(
    x: Tensor, norms: Tensor, last: Tensor, *matrices: Tensor, heads: int, rows: Tensor | None = None
) -> Tensor:
    """Return hidden states x [B, S, d] after all layers and the last norm, in FP64 as [rows, d]. Layers are pre-norm,
    with causal attention of `heads` heads and GELU. `matrices` are those of `Shape.weights` after the norms, then keys
    and values if some were kept. With `rows`, only their sequences are computed."""
    import torch

    B, S, d = x.shape
    wanted = torch.arange(B * S) if rows is None else rows.cpu()
    out = torch.empty(len(wanted), d, dtype=torch.float64, device=x.device)
    for b in torch.unique(wanted // S).tolist():
        here = wanted // S == b
        until = int((wanted[here] % S).max()) + 1  # none of these rows sees later tokens
        state = _one(x[b, :until].double(), norms, matrices, heads, b)
        out[here.to(x.device)] = _norm(state, last.double())[(wanted[here] % S).to(x.device)]
    return out


def _one(x: Tensor, norms: Tensor, matrices: tuple[Tensor, ...], heads: int, b: int) -> Tensor:
    import torch
    from torch.nn.functional import gelu, linear

    S, d = x.shape
    for layer in range(len(norms)):
        qkv, qkv_bias, out, out_bias, up, up_bias, down, down_bias = (m[layer].double() for m in matrices[:8])
        first, second = norms[layer].double()
        q, k, v = linear(_norm(x, first), qkv, qkv_bias).view(S, 3, heads, -1).permute(1, 2, 0, 3)
        before = 0
        if len(matrices) > 8:
            kept_k, kept_v = (m[layer, b].double() for m in matrices[8:])
            k, v, before = torch.cat([kept_k, k], 1), torch.cat([kept_v, v], 1), kept_k.shape[1]
        scores = q @ k.transpose(1, 2) * (d // heads) ** -0.5
        hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(before + 1)
        seen: Any = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        x = x + linear(seen.transpose(0, 1).reshape(S, d), out, out_bias)
        x = x + linear(gelu(linear(_norm(x, second), up, up_bias)), down, down_bias)
    return x


def _norm(x: Tensor, weight_and_bias: Tensor) -> Tensor:
    from torch.nn.functional import layer_norm

    weight, bias = weight_and_bias
    return layer_norm(x, x.shape[-1:], weight, bias, NORM_EPS)
