"""Fast GPU kernels in Python, and the evidence that they are fast.

Importing this package imports neither torch nor any other slow module: names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groundspeed import hf as hf
    from groundspeed import nn as nn
    from groundspeed.hf.patching import patch as patch
    from groundspeed.hf.patching import unpatch as unpatch
    from groundspeed.kernels.activation.api import activate as activate
    from groundspeed.kernels.attention.api import attention as attention
    from groundspeed.kernels.attention.append_api import append_paged as append_paged
    from groundspeed.kernels.attention.paged_api import attention_paged as attention_paged
    from groundspeed.kernels.attention.varlen import attention_varlen as attention_varlen
    from groundspeed.kernels.linear.api import linear as linear
    from groundspeed.kernels.linear.form import Norm as Norm
    from groundspeed.kernels.moe.api import moe as moe
    from groundspeed.kernels.norm.api import layer_norm as layer_norm
    from groundspeed.kernels.norm.api import rms_norm as rms_norm
    from groundspeed.kernels.rotary.api import rotary as rotary
    from groundspeed.lab.functions import compare as compare
    from groundspeed.lab.memory import profile_memory as profile_memory
    from groundspeed.nn.graphs import compile_graphs as compile_graphs
    from groundspeed.suites.registry import case_of as case_of
    from groundspeed.suites.registry import contender as contender

__version__ = "0.1.0"

_NAMES = {
    "Norm": "groundspeed.kernels.linear.form",
    "activate": "groundspeed.kernels.activation.api",
    "append_paged": "groundspeed.kernels.attention.append_api",
    "attention": "groundspeed.kernels.attention.api",
    "attention_paged": "groundspeed.kernels.attention.paged_api",
    "attention_varlen": "groundspeed.kernels.attention.varlen",
    "case_of": "groundspeed.suites.registry",
    "compare": "groundspeed.lab.functions",
    "compile_graphs": "groundspeed.nn.graphs",
    "contender": "groundspeed.suites.registry",
    "layer_norm": "groundspeed.kernels.norm.api",
    "linear": "groundspeed.kernels.linear.api",
    "moe": "groundspeed.kernels.moe.api",
    "patch": "groundspeed.hf.patching",
    "profile_memory": "groundspeed.lab.memory",
    "rms_norm": "groundspeed.kernels.norm.api",
    "rotary": "groundspeed.kernels.rotary.api",
    "unpatch": "groundspeed.hf.patching",
}
_ROOMS = ("hf", "nn")

_WITH_TRANSFORMERS = ("hf", "patch", "unpatch")
"""Left out of `__all__`: a star import fetches every name in it and would need Transformers."""

__all__ = [
    "Norm",
    "__version__",
    "activate",
    "append_paged",
    "attention",
    "attention_paged",
    "attention_varlen",
    "case_of",
    "compare",
    "compile_graphs",
    "contender",
    "layer_norm",
    "linear",
    "moe",
    "nn",
    "profile_memory",
    "rms_norm",
    "rotary",
]


def __getattr__(name: str) -> Any:
    try:
        if name in _NAMES:
            found = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)  # cached for later lookups
            return found
        if name in _ROOMS:
            return importlib.import_module(f"groundspeed.{name}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        needs = f"groundspeed.{name} needs {error.name}: pip install 'groundspeed[torch]'"
        raise ModuleNotFoundError(needs, name=error.name) from None
    raise AttributeError(f"module 'groundspeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_WITH_TRANSFORMERS])
