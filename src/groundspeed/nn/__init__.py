"""Modules made of kernels."""

from groundspeed.nn.moe import MoE

__all__ = ["MoE"]
