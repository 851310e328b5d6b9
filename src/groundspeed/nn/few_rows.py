"""A block of a transformer for a few tokens, as when it writes token by token: reading the weights is all that takes
time, and launches are to be few. One makes queries, keys and values out of what is normed, turns them and writes them
to the cache; one has the second product with the sum behind it; two have the network, with norm, activation and sum.
Beside them are the launches of the attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from groundspeed.kernels import calls
from groundspeed.kernels.attention.api import attention
from groundspeed.kernels.linear.api import linear, why_not_ours
from groundspeed.kernels.linear.form import MOST_ROWS, Pages
from groundspeed.kernels.linear.qkv_api import project_paged
from groundspeed.kernels.recall import Recall
from groundspeed.kernels.rotary.api import rotary

if TYPE_CHECKING:
    from groundspeed.nn.cache import PagedCache
    from groundspeed.nn.transformer import Angles, SelfAttention, TransformerBlock


def serve(block: TransformerBlock, x: Tensor, cache: PagedCache | None) -> bool:
    """Whether our kernels do all of the block, and nobody put something else in its place or looks on."""
    if torch.compiler.is_compiling() or x.numel() > MOST_ROWS * x.shape[-1] or not x.is_cuda:
        return False
    layers, norms = _layers(block), (block.before_attention, block.before_mlp)
    if any(type(layer) is not nn.Linear for layer in layers) or any(map(_is_watched, (*layers, *norms))):
        return False
    if any(norm.impl != "auto" for norm in norms) or (cache is not None and not _belongs(cache, block.attention, x)):
        return False
    tensors = (x, *(part for layer in layers for part in (layer.weight, layer.bias) if part is not None))
    if _recall.find(len(layers), tensors):
        return True
    served = calls.is_plain(*tensors) and not any(why_not_ours(x, layer.weight, layer.bias) for layer in layers)
    if served:
        _recall.keep(len(layers), tensors, True)
    return served


_recall = Recall()


def _layers(block: TransformerBlock) -> list[Any]:
    found = [block.attention.qkv, block.attention.out]
    return found if block.attention.config.experts else [*found, block.mlp.up, block.mlp.down]


def _is_watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _belongs(cache: PagedCache, attention: SelfAttention, x: Tensor) -> bool:
    """Whether keys and values of the tokens have a place there; who asks otherwise says what does not fit."""
    pages, config = cache.k_pages[0], attention.config
    fits = pages.shape[1] == config.shared_by and pages.shape[3] == config.columns and config.columns % 2 == 0
    return fits and pages.dtype == x.dtype and pages.device == x.device and len(cache.lengths) == len(x)


def through(block: TransformerBlock, x: Tensor, angles: Angles, cache: PagedCache | None, layer: int) -> Tensor:
    """x [B, S, hidden] and what the block adds to it."""
    x = x.contiguous()
    x = _attended(block, x, angles, cache, layer)
    if block.attention.config.experts:
        made: Tensor = block.mlp(block.before_mlp(x)) + x
        return made
    up, down = block.mlp.up, block.mlp.down
    inner = linear(x, up.weight, up.bias, norm=block.before_mlp.told, activation=block.mlp.activation)
    return linear(inner, down.weight, down.bias, residual=x)


def _attended(block: TransformerBlock, x: Tensor, angles: Angles, cache: PagedCache | None, layer: int) -> Tensor:
    B, S, _ = x.shape
    module, norm = block.attention, block.before_attention.told
    config, qkv, out = module.config, module.qkv, module.out
    window = config.window, 0 if config.window >= 0 else -1
    if cache is not None:
        pages = Pages(cache.k_pages[layer], cache.v_pages[layer], cache.table, cache.lengths)
        q = project_paged(x, qkv.weight, qkv.bias, norm, angles, pages, config.heads)
        seen = cache.attend(layer, q, window_size=window)
    else:
        made = linear(x, qkv.weight, qkv.bias, norm=norm)
        q, k, v = module.parts_of(made)
        if angles is not None:
            q, k = rotary(q, k, *angles)
        seen = attention(q, k, v, causal=True, window_size=window)
    return linear(seen.transpose(1, 2).reshape(B, S, -1), out.weight, out.bias, residual=x)
