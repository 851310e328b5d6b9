"""`gs.nn.Transformer` with the weights of a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case
from groundspeed.suites.inference.pytorch import places_of
from groundspeed.suites.inference.reference import NORM_EPS
from groundspeed.suites.inference.shapes import WIDENING, Shape, shape_of

PAGE = 64
"""Positions per page."""

if TYPE_CHECKING:
    from torch import Tensor

    from groundspeed.nn import PagedCache


def model(case: Case) -> Callable[..., Tensor]:
    import torch

    from groundspeed.nn import Transformer, TransformerConfig

    shape = shape_of({key: value for key, value in case.params.items() if key in "LdHBSN"})
    config = TransformerConfig(
        layers=shape.L,
        hidden=shape.d,
        heads=shape.H,
        intermediate=WIDENING * shape.d,
        activation="gelu",
        norm="layer",
        positions="none",
        bias=True,
        eps=NORM_EPS,
        max_positions=shape.S + shape.N,
    )
    with torch.device("meta"):
        made = Transformer(config).eval()
    caches: list[PagedCache] = []
    given: list[int] = []

    def call(x: Tensor, norms: Tensor, last: Tensor, *matrices: Tensor, heads: int, kept: int) -> Tensor:
        if given != (places := places_of(norms, last, *matrices)):  # in the first call, which is never timed
            given[:] = places
            made.load_state_dict(_named(norms, last, *matrices[:8]), assign=True)
            made.requires_grad_(False)
            caches[:] = [_filled(shape, *matrices[8:])] if kept else []
        for cache in caches:
            _go_on(cache, shape.S)
        out: Tensor = made(x, *caches)
        return out

    return call


def _go_on(cache: PagedCache, tokens: int) -> None:
    """Grow the cache as a generation loop does for each call; with a CUDA graph the loop does so outside the graph. The
    cache is shrunk first, so that every call is the same."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return
    cache.shrink(tokens)
    cache.grow(tokens)


def _filled(shape: Shape, keys: Tensor, values: Tensor) -> PagedCache:
    """Return a cache with the tokens read before, and room for those of a call, which every call writes again."""
    from groundspeed.nn import PagedCache

    longest = shape.N + shape.S
    pages = shape.B * -(-longest // PAGE)
    sizes = {"pages": pages, "sequences": shape.B, "longest": longest, "page_size": PAGE}
    cache = PagedCache(shape.L, shape.H, shape.head_dim, **sizes, device=keys.device, dtype=keys.dtype)
    cache.allocate([shape.N] * shape.B)
    for layer in range(shape.L):
        cache.append(layer, keys[layer], values[layer])
    cache.grow(shape.S)
    return cache


def _named(norms: Tensor, last: Tensor, *matrices: Tensor) -> dict[str, Any]:
    """Return the weights by the names of the module, without copying any."""
    found = {"norm.weight": last[0], "norm.bias": last[1]}
    parts = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    for layer in range(norms.shape[0]):
        for i, norm in enumerate(("before_attention", "before_mlp")):
            found |= {f"blocks.{layer}.{norm}.{kind}": norms[layer, i, j] for j, kind in enumerate(("weight", "bias"))}
        for part, weight, bias in zip(parts, matrices[::2], matrices[1::2], strict=True):
            found |= {f"blocks.{layer}.{part}.weight": weight[layer], f"blocks.{layer}.{part}.bias": bias[layer]}
    return found
