"""The attention of `attn_implementation="groundspeed"`: what Transformers passes to an attention function, and which
implementation serves it.

No mask, a causal mask or a window goes to `groundspeed.attention`. Padding on either side goes to
`groundspeed.attention_varlen` if our kernels can serve the call (packing.py), else to PyTorch with a mask. Any other
mask, dropout and position biases go to PyTorch, called as Transformers calls it for `sdpa`. A fallback to PyTorch warns
once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from groundspeed.hf import packing
from groundspeed.hf.masks import Described
from groundspeed.kernels.attention import api
from groundspeed.kernels.attention.able import why_not_ours
from groundspeed.kernels.calls import say_once


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return the output [B, M, H, V] of query [B, H, M, D], key [B, G, N, D] and value [B, G, N, V], and None in place
    of the attention weights. `s_aux` holds the sinks, one for each query head. A `sliding_window` among the `others` is
    already part of the mask. Without a mask, `is_causal`, or else the module's attribute, decides whether queries are
    causal; they are aligned with the first keys, as for `sdpa`, and a single query sees all keys."""
    if others.get("output_attentions"):
        raise ValueError(
            "groundspeed's attention does not return the weights that output_attentions=True asks for: "
            "use model.set_attn_implementation('eager')"
        )
    query, key, value = (_cast(x) for x in (query, key, value))
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        described: Described | None = Described(causal=bool(causal) and query.shape[2] > 1)
        if causal and query.shape[2] > 1:
            key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    else:
        described = Described.of(attention_mask)
    forms: dict[str, Any] = {"softcap": softcap or 0.0, "sinks": s_aux, "scale": scaling}
    reason = _why_pytorch(query, key, value, described, dropout, s_aux, position_bias)
    if described is None or reason:
        say_once("attention", reason or "our kernels support only causal masks, windows and padding")
        if attention_mask is not None and described is not None:
            size = query.shape[2], key.shape[2], query.device
            attention_mask = packing.kept(attention_mask, ("dense", *size), lambda: described.dense(*size))
        if softcap or s_aux is not None:
            return _spelt_out(query, key, value, attention_mask, dropout, position_bias, **forms), None
        told = {"is_causal": is_causal, "position_bias": position_bias}
        told = {name: given for name, given in told.items() if given is not None}
        out, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **told
        )
        return out, None
    if described.rows is not None and attention_mask is not None:
        return packing.attention(query, key, value, attention_mask, described, **forms), None
    window = described.window
    out = api.attention(query, key, value, causal=described.causal, window_size=(window, window), **forms)
    return out.transpose(1, 2).contiguous(), None


def _cast(x: Tensor) -> Tensor:
    """Return what autocast makes of an argument of SDPA. Rotary embeddings leave queries and keys in FP32 under it,
    beside values in 16 bits."""
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def _why_pytorch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    described: Described | None,
    dropout: float,
    sinks: Tensor | None,
    position_bias: Tensor | None,
) -> str | None:
    """Return why a call goes neither to `groundspeed.attention`, which makes its own checks, nor to packed sequences;
    None if it goes to one of them."""
    if dropout:
        return "our kernels do not support dropout"
    if position_bias is not None:
        return "our kernels do not support position biases"
    if described is not None and described.rows is not None:
        return why_not_ours(q, k, v, sinks)
    if described is not None and described.causal and q.shape[2] > k.shape[2]:
        return "there are more queries than keys, and no mask tells their positions"
    return None


def _spelt_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    position_bias: Tensor | None,
    *,
    softcap: float,
    sinks: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Return attention with a mask and a soft-cap or sinks, for which PyTorch has no function: computed in FP32, with
    O(M·N) memory."""
    if dropout or position_bias is not None or mask is None:
        what = "dropout" if dropout else "more queries than keys" if position_bias is None else "position biases"
        raise ValueError(
            f"groundspeed's attention does not support {what} together with soft-caps or sinks: "
            "use model.set_attn_implementation('eager')"
        )
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q.float() @ k.float().mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * (scores / softcap).tanh()
    lowest = torch.finfo(scores.dtype).min
    scores = scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.float()[:, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[2]]
    return (weights @ v.float()).to(q.dtype).transpose(1, 2).contiguous()
