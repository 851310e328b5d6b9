"""Modules made of kernels."""

from groundspeed.nn.moe import MoE
from groundspeed.nn.norm import LayerNorm, RMSNorm
from groundspeed.nn.transformer import Transformer, TransformerBlock, TransformerConfig

__all__ = ["LayerNorm", "MoE", "RMSNorm", "Transformer", "TransformerBlock", "TransformerConfig"]
