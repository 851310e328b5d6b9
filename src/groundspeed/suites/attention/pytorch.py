"""PyTorch's own contenders of attention on [B, H, S, D]."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.compiled import compiled_for_one_shape

if TYPE_CHECKING:
    from torch import Tensor


def naive(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    import torch

    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * scale
    if causal:
        after = 1 + k.shape[2] - q.shape[2]
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(after)
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(dim=-1) @ v


def sdpa(case: Case, *, biased: bool = False) -> Callable[..., Any]:
    """Call SDPA. Its own causal mask is aligned top-left, so with more keys than queries it gets a bottom-right one: as
    a `CausalBias`, which the flash and memory-efficient backends of a GPU serve without a mask in memory; on a CPU and
    with `biased` as a tensor, made in the first call. The other backends would make it anew in every call."""
    from torch.nn.functional import scaled_dot_product_attention

    queries, keys, grouped = int(case.params["S"]), int(case.params.get("N", case.params["S"])), "G" in case.params
    if keys == queries and not grouped:

        def call(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
            return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

        return call
    from torch.nn.attention.bias import causal_lower_right  # a slow import

    mask = causal_lower_right(queries, keys) if case.params["causal"] and keys != queries and queries > 1 else None
    plain = bool(case.params["causal"]) and keys == queries
    kept: list[Tensor] = []

    def masked(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        if mask is not None and not kept and (biased or not q.is_cuda):  # in the first call, which is never timed
            kept.append(_bias(queries, keys, q))
        bias = kept[0] if kept else mask
        return scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=plain, scale=scale, enable_gqa=grouped)

    return masked


def _bias(queries: int, keys: int, like: Tensor) -> Tensor:
    """Return what is added to the scores: 0 for the keys that a row sees, −inf for the others."""
    import torch

    hidden = torch.ones((queries, keys), dtype=torch.bool, device=like.device).triu(1 + keys - queries)
    return like.new_zeros((queries, keys)).masked_fill_(hidden, float("-inf"))


def forcing(backend: str) -> Callable[[], AbstractContextManager[Any]]:
    """Force a backend of SDPA. If that backend cannot serve a call, PyTorch raises; it never falls back to another."""

    def around() -> AbstractContextManager[Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        forced: AbstractContextManager[Any] = sdpa_kernel([getattr(SDPBackend, backend)])
        return forced

    return around


def compiled_naive(case: Case) -> Callable[..., Any]:
    return compiled_for_one_shape(naive)


def flex(case: Case) -> Callable[..., Any]:
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

    compiled = compiled_for_one_shape(flex_attention)
    S, N = int(case.params["S"]), int(case.params.get("N", case.params["S"]))
    grouped = {"enable_gqa": True} if "G" in case.params else {}
    masks: list[Any] = []

    left, right = case.arguments.get("window_size", (N, 0 if case.params["causal"] else S))
    bounded = bool(case.params["causal"]) or "W" in case.params
    score_mod = capped(case)

    def call(q: Tensor, k: Tensor, v: Tensor, *, scale: float, **_: Any) -> Tensor:
        if masks:
            pass
        elif bounded:  # in the first call, which is never timed
            masks.append(create_block_mask(seen, None, None, S, N, device=q.device.type))
        else:  # one block with everything; without a mask, each call would build it anew with small kernels
            one = torch.ones(1, 1, 1, dtype=torch.int32, device=q.device)
            whole = BlockMask.from_kv_blocks(one, one[None] - 1, BLOCK_SIZE=1 << 30, seq_lengths=(S, N))
            masks.append(whole)
        return compiled(q, k, v, block_mask=masks[0], scale=scale, **grouped, **score_mod)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        place = i + N - S
        before = place - j <= left
        return (place + right >= j) & before if "W" in case.params else place + right >= j

    return call


def capped(case: Case) -> dict[str, Callable[..., Any]]:
    """Return FlexAttention's arguments for a soft-cap, if there is one."""
    import torch

    cap = case.arguments.get("softcap", 0.0)
    return {"score_mod": lambda score, b, h, i, j: cap * torch.tanh(score / cap)} if cap else {}
