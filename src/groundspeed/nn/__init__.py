"""Modules built from our kernels, and the caches that they keep between calls."""

from groundspeed.nn.cache import OutOfPages, PagedCache
from groundspeed.nn.config import TransformerConfig
from groundspeed.nn.moe import MoE
from groundspeed.nn.norm import LayerNorm, RMSNorm
from groundspeed.nn.transformer import Transformer, TransformerBlock

__all__ = [
    "LayerNorm",
    "MoE",
    "OutOfPages",
    "PagedCache",
    "RMSNorm",
    "Transformer",
    "TransformerBlock",
    "TransformerConfig",
]
