"""PyTorch's own contenders of attention on packed sequences.

SDPA gets them as jagged nested tensors if its backend takes those, which is only on a GPU. Its math backend has no
causal mask for nested tensors and gets one sequence after the other, as the naive contender does. FlexAttention gets
one long sequence and a document mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.attention import pytorch
from groundspeed.suites.attention.shapes import shape_of
from groundspeed.suites.compiled import compiled_for_one_shape

if TYPE_CHECKING:
    from torch import Tensor


def nested_sdpa(case: Case) -> Callable[..., Any]:
    """Call SDPA on nested tensors. These are views, made when a tensor is first seen and cached by its address: a user
    who keeps tokens nested makes them only once, too. Here the first calls are never timed."""
    import torch
    import torch.nested._internal.sdpa  # the first call would import it
    from torch.nn.functional import scaled_dot_product_attention

    lengths = shape_of(case.params).lengths
    views: dict[tuple[int, int], Tensor] = {}

    def nested(tensor: Tensor, cu_seqlens: Tensor) -> Tensor:
        place = tensor.data_ptr(), cu_seqlens.data_ptr()
        if place not in views:
            made = torch.nested.nested_tensor_from_jagged(
                tensor, cu_seqlens, min_seqlen=min(lengths), max_seqlen=max(lengths)
            )
            views[place] = made.transpose(1, 2)
        return views[place]

    def call(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *, causal: bool, scale: float, **_: Any) -> Tensor:
        q, k, v = (nested(tensor, cu_seqlens) for tensor in (q, k, v))
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).transpose(1, 2).values()

    return call


def sdpa_in_turn(case: Case) -> Callable[..., Any]:
    from torch.nn.functional import scaled_dot_product_attention

    grouped = "G" in case.params

    def one(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped)

    return in_turn(case, one)


def naive(case: Case) -> Callable[..., Any]:
    return in_turn(case, pytorch.naive)


def compiled_naive(case: Case) -> Callable[..., Any]:
    return compiled_for_one_shape(naive(case))


def in_turn(case: Case, one: Callable[..., Tensor]) -> Callable[..., Any]:
    """Call `one` on one sequence after the other, without asking the device for their lengths."""
    import torch

    lengths = shape_of(case.params).lengths

    def call(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *, causal: bool, scale: float, **_: Any) -> Tensor:
        parts = zip(*(tensor.split(lengths) for tensor in (q, k, v)), strict=True)
        dense = ([tensor.transpose(0, 1)[None] for tensor in part] for part in parts)
        return torch.cat([one(*part, causal=causal, scale=scale)[0].transpose(0, 1) for part in dense])

    return call


def flex(case: Case) -> Callable[..., Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = compiled_for_one_shape(flex_attention)
    total = sum(shape_of(case.params).lengths)
    causal, windowed = bool(case.params["causal"]), "W" in case.params
    left, right = case.arguments.get("window_size", (total, 0 if causal else total))
    grouped = {"enable_gqa": True} if "G" in case.params else {}
    score_mod = pytorch.capped(case)
    masks: list[Any] = []

    def make_mask(cu_seqlens: Tensor) -> Any:
        counts = cu_seqlens.diff()
        document = torch.repeat_interleave(torch.arange(len(counts), device=cu_seqlens.device), counts)

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            same = document[i] == document[j]
            if causal or windowed:
                same = same & (i + right >= j)
            return same & (i - j <= left) if windowed else same

        return create_block_mask(seen, None, None, total, total, device=cu_seqlens.device.type)

    def call(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, *, scale: float, **_: Any) -> Tensor:
        if not masks:  # in the first call, which is never timed
            masks.append(make_mask(cu_seqlens))
        q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
        out: Tensor = compiled(q, k, v, block_mask=masks[0], scale=scale, **grouped, **score_mod)
        return out[0].transpose(0, 1)

    return call
