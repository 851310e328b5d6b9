"""The model in plain PyTorch, with attention written out or by scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from groundspeed.suites.inference.reference import NORM_EPS

if TYPE_CHECKING:
    from torch import Tensor

Attend = Callable[..., Any]
"""Attention of q, k and v [B, H, S, D] under a causal mask, with queries and keys aligned at their ends."""


def naive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Textbook attention, with all scores at once."""
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    return scores.masked_fill(_hidden(q, k), float("-inf")).softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    M, N = q.shape[2], k.shape[2]
    if 1 < M < N:  # its own causal mask is aligned top-left
        return scaled_dot_product_attention(q, k, v, attn_mask=~_hidden(q, k))
    return scaled_dot_product_attention(q, k, v, is_causal=M > 1)


def _hidden(q: Tensor, k: Tensor) -> Tensor:
    import torch

    M, N = q.shape[2], k.shape[2]
    return torch.ones(M, N, dtype=torch.bool, device=q.device).triu(N - M + 1)


def model(attend: Attend, around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda f: f) -> Any:
    """Return a function of the inputs of a case; `around` may compile it. In the first call, which is never timed,
    weights are split by layer, and keys and values read before are copied to tensors with room for the new ones."""
    run = around(partial(_forward, attend))
    given: list[list[int]] = [[]]
    layers: list[tuple[Any, ...]] = []

    def forward(x: Tensor, norms: Tensor, last: Tensor, *matrices: Tensor, heads: int, kept: int) -> Tensor:
        if given[0] != (places := places_of(norms, last, *matrices)):
            given[0] = places
            rooms = _with_room(matrices[8], matrices[9], x.shape[1]) if kept else [(None, None)] * len(norms)
            parts = zip(*(matrix.unbind() for matrix in matrices[:8]), strict=True)
            layers[:] = [
                (tuple(norm.flatten(0, 1)), *part, *room) for norm, part, room in zip(norms, parts, rooms, strict=True)
            ]
        out: Tensor = run(x, layers, last[0], last[1], heads=heads, kept=kept)
        return out

    return forward


def places_of(*tensors: Tensor) -> list[int]:
    """Return the addresses of weights. Code that keeps parts of the weights checks whether they have moved."""
    return [tensor.data_ptr() for tensor in tensors]


def _forward(
    attend: Attend, x: Tensor, layers: list[tuple[Any, ...]], weight: Tensor, bias: Tensor, *, heads: int, kept: int
) -> Tensor:
    from torch.nn.functional import gelu, layer_norm, linear

    B, S, d = x.shape
    for norms, qkv, qkv_bias, out, out_bias, up, up_bias, down, down_bias, keys, values in layers:
        states = linear(layer_norm(x, (d,), norms[0], norms[1], NORM_EPS), qkv, qkv_bias)
        q, k, v = states.view(B, S, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        if kept:
            keys[:, :, kept:], values[:, :, kept:] = k, v
            k, v = keys, values
        x = x + linear(attend(q, k, v).transpose(1, 2).reshape(B, S, d), out, out_bias)
        inner = gelu(linear(layer_norm(x, (d,), norms[2], norms[3], NORM_EPS), up, up_bias))
        x = x + linear(inner, down, down_bias)
    return layer_norm(x, (d,), weight, bias, NORM_EPS)


def _with_room(keys: Tensor, values: Tensor, more: int) -> list[tuple[Tensor, Tensor]]:
    L, B, H, N, D = keys.shape
    made = [keys.new_empty(L, B, H, N + more, D) for _ in range(2)]
    for room, before in zip(made, (keys, values), strict=True):
        room[:, :, :, :N] = before
    return list(zip(*(room.unbind() for room in made), strict=True))
