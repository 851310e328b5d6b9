"""PyTorch's compiler, as contenders use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled_for_one_shape(function: Callable[..., Any], *, whole: bool = True) -> Callable[..., Any]:
    """torch.compile for one fixed shape. At its recompile limit Dynamo would run the eager code and say nothing: here
    every case is a recompilation, so the limit is lifted and hitting it is an error. Not whole: what waits for the host
    may break it into parts."""
    import torch
    import torch._inductor.compile_fx  # as the first call would

    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=whole)
    return compiled
