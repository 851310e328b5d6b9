"""Caches of Transformers that hold tokens read before. A call writes its own tokens into a cache and reads all of it,
as a step of `generate` does; then the cache is restored, so that the next call finds it in the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PutBack = Callable[[], None]


def growing(config: Any, keys: Tensor, values: Tensor) -> tuple[Any, PutBack]:
    """Return the cache that `generate` uses by default, with keys and values [layers, B, heads, N, D] as they are. A
    step copies them to larger tensors and leaves them unchanged, so restoring the cache only reassigns references."""
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=config)
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        cache.update(key, value, number)
    kept = list(zip(cache.layers, keys.unbind(), values.unbind(), strict=True))

    def put_back() -> None:
        for layer, key, value in kept:
            layer.keys, layer.values = key, value

    put_back()
    return cache, put_back


def fixed(config: Any, keys: Tensor, values: Tensor, more: int) -> tuple[Any, PutBack]:
    """Return the cache that `generate` compiles with: a copy of keys and values, with room for `more` tokens. Every
    layer counts its tokens on the device; all counters are restored at once."""
    import torch
    from transformers import StaticCache

    before = keys.shape[3]
    cache: Any = StaticCache(config=config, max_cache_len=before + more)
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        cache.update(key, value, number)
    counts = [getattr(layer, "cumulative_length", None) for layer in cache.layers]
    if not all(isinstance(count, torch.Tensor) for count in counts):
        raise NotImplementedError(
            "the static cache of this Transformers does not count tokens on the device; that of 5.17 does"
        )
    beginning = [torch.full_like(count, before) for count in counts]

    def put_back() -> None:
        torch._foreach_copy_(counts, beginning)

    return cache, put_back
