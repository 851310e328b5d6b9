"""Modules made of kernels."""

from groundspeed.nn.moe import MoE
from groundspeed.nn.norm import LayerNorm, RMSNorm

__all__ = ["LayerNorm", "MoE", "RMSNorm"]
