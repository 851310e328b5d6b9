"""Fast GPU kernels in Python, and the evidence that they are fast.

Importing this package imports neither torch nor anything else that is slow: names are fetched when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groundspeed import nn as nn
    from groundspeed.kernels.attention.api import attention as attention
    from groundspeed.kernels.attention.append_api import append_paged as append_paged
    from groundspeed.kernels.attention.paged_api import attention_paged as attention_paged
    from groundspeed.kernels.attention.varlen import attention_varlen as attention_varlen
    from groundspeed.kernels.moe.api import moe as moe
    from groundspeed.suites.registry import case_of as case_of
    from groundspeed.suites.registry import contender as contender

__version__ = "0.1.0"

_NAMES = {
    "append_paged": "groundspeed.kernels.attention.append_api",
    "attention": "groundspeed.kernels.attention.api",
    "attention_paged": "groundspeed.kernels.attention.paged_api",
    "attention_varlen": "groundspeed.kernels.attention.varlen",
    "case_of": "groundspeed.suites.registry",
    "contender": "groundspeed.suites.registry",
    "moe": "groundspeed.kernels.moe.api",
}

__all__ = [
    "__version__",
    "append_paged",
    "attention",
    "attention_paged",
    "attention_varlen",
    "case_of",
    "contender",
    "moe",
    "nn",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        found = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)  # found at once from now on
        return found
    if name == "nn":
        return importlib.import_module("groundspeed.nn")
    raise AttributeError(f"module 'groundspeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
