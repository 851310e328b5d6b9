"""Modules made of kernels, and what they keep between calls."""

from groundspeed.nn.cache import OutOfPages, PagedCache
from groundspeed.nn.moe import MoE

__all__ = ["MoE", "OutOfPages", "PagedCache"]
