"""A transformer block for a few tokens, as in token-by-token generation: only reading the weights takes time, and there
should be few launches. With a cache, one launch norms the input, computes queries, keys and values, rotates them and
writes keys and values to the cache; one launch has the output projection and its residual sum; two launches have the
MLP with its norm, activation and residual sum. Long rows are normed by launches of their own, and those of the
attention come on top. Experts have kernels of their
own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from groundspeed.kernels import calls
from groundspeed.kernels.attention.api import attention
from groundspeed.kernels.linear.api import is_chosen, linear, why_not_ours
from groundspeed.kernels.linear.form import FEW_ROWS, MOST_PRODUCT_ROWS, SMALL_MATRIX, Pages
from groundspeed.kernels.linear.qkv_api import project_paged
from groundspeed.kernels.recall import Recall
from groundspeed.kernels.rotary.api import rotary
from groundspeed.nn.norm import LayerNorm, RMSNorm

if TYPE_CHECKING:
    from groundspeed.nn.cache import PagedCache
    from groundspeed.nn.transformer import Angles, TransformerBlock


def serve(block: TransformerBlock, x: Tensor, cache: PagedCache | None) -> bool:
    """Whether our kernels can serve the whole block, with no part of it replaced and no hooks on it."""
    if torch.compiler.is_compiling() or not x.is_cuda or not _is_few(x, cache):
        return False
    if not is_as_made(_parts(block)) or block.before_attention.impl != "auto" or block.before_mlp.impl != "auto":
        return False
    config, layers, norms = block.attention.config, _layers(block), (block.before_attention, block.before_mlp)
    told = [tensor for part in (*norms, *layers) for tensor in (part.weight, getattr(part, "bias", None))]
    tensors = x, *(tensor for tensor in told if tensor is not None)
    if cache is not None:
        tensors = *tensors, cache.k_pages[0], cache.v_pages[0], cache.lengths
    missing = tuple(tensor is None for tensor in told)
    key = cache is None, missing, config.heads, config.shared_by, config.columns, config.inner, config.activation
    if _recall.find(key, tensors):
        return True
    if not _fits(block, x, cache) or not calls.is_plain(*tensors) or calls.is_derived(*tensors):
        return False
    if any(why_not_ours(x, layer.weight, layer.bias) or not is_chosen(x, layer.weight) for layer in layers):
        return False
    _recall.keep(key, tensors, True)
    return True


_recall = Recall()


def _is_few(x: Tensor, cache: PagedCache | None) -> bool:
    """Whether there are few tokens, or some more of a small model: its smallest matrices are hidden × hidden. With a
    cache not some more of each sequence, since a prompt's attention needs no pages."""
    hidden = x.shape[-1]
    if 0 < x.numel() <= FEW_ROWS * hidden:
        return True
    some = 0 < x.numel() <= MOST_PRODUCT_ROWS * hidden and hidden * hidden <= SMALL_MATRIX
    return some and (cache is None or x.shape[1] <= FEW_ROWS)


def is_as_made(parts: Iterable[tuple[Any, tuple[type, ...]]]) -> bool:
    """Whether parts have one of their original classes, no replaced `forward` and no hooks, so that a call does nothing
    but what the class says."""
    if calls.has_global_hooks():
        return False
    return all(
        type(part) in kinds and not (part._forward_hooks or part._forward_pre_hooks or "forward" in part.__dict__)
        for part, kinds in parts
    )


def _parts(block: TransformerBlock) -> Iterator[tuple[Any, tuple[type, ...]]]:
    from groundspeed.nn import transformer

    yield block, (transformer.TransformerBlock,)
    yield block.before_attention, (RMSNorm, LayerNorm)
    yield block.before_mlp, (RMSNorm, LayerNorm)
    yield block.attention, (transformer.SelfAttention,)
    yield block.attention.qkv, (nn.Linear,)
    yield block.attention.out, (nn.Linear,)
    if not block.attention.config.experts:
        yield block.mlp, (transformer.MLP,)
        yield block.mlp.up, (nn.Linear,)
        yield block.mlp.down, (nn.Linear,)


def _layers(block: TransformerBlock) -> list[Any]:
    found = [block.attention.qkv, block.attention.out]
    return found if block.attention.config.experts else [*found, block.mlp.up, block.mlp.down]


def _fits(block: TransformerBlock, x: Tensor, cache: PagedCache | None) -> bool:
    """Whether all parts have fitting dtypes, one device and the sizes of the configuration. If they do not, the
    ordinary path runs, and reports what is wrong."""
    config, hidden = block.attention.config, x.shape[-1]
    heads, wide = config.heads * config.columns, (config.heads + 2 * config.shared_by) * config.columns
    inner = config.inner * (2 if config.activation == "swiglu" else 1)
    sizes = [(wide, hidden), (hidden, heads), (inner, hidden), (hidden, config.inner)]
    for layer, size in zip(_layers(block), sizes, strict=False):
        if tuple(layer.weight.shape) != size or (layer.weight.dtype, layer.weight.device) != (x.dtype, x.device):
            return False
        if layer.bias is not None and (layer.bias.dtype, layer.bias.device) != (x.dtype, x.device):
            return False
    for norm in (block.before_attention, block.before_mlp):
        for tensor in (norm.weight, getattr(norm, "bias", None)):
            if tensor is not None and (tuple(tensor.shape), tensor.device) != ((hidden,), x.device):
                return False
        if norm.weight.dtype not in (x.dtype, torch.float32):
            return False
    if cache is None:
        return True
    pages = cache.k_pages[0]
    fits = pages.shape[1] == config.shared_by and pages.shape[3] == config.columns and config.columns % 2 == 0
    return fits and (pages.dtype, pages.device) == (x.dtype, x.device) and len(cache.lengths) == len(x)


def through(block: TransformerBlock, x: Tensor, angles: Angles, cache: PagedCache | None, layer: int) -> Tensor:
    """Return the sum of x [B, S, hidden] and what the block adds to it."""
    x = _attended(block, x.contiguous(), angles, cache, layer)
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
        q, k, v = module.parts_of(linear(x, qkv.weight, qkv.bias, norm=norm))
        if angles is not None:
            q, k = rotary(q, k, *angles)
        seen = attention(q, k, v, causal=True, window_size=window)
    seen = seen.transpose(1, 2).reshape(B, S, config.heads * config.columns)
    return linear(seen, out.weight, out.bias, residual=x)
