"""PyTorch's compiler, as contenders use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled_for_one_shape(function: Callable[..., Any], *, whole: bool = True) -> Callable[..., Any]:
    """Return the function under torch.compile for one fixed shape. At its recompile limit Dynamo would silently run the
    eager code. Here every case is a recompilation, so the limit is raised and hitting it is an error. With
    `whole=False`, operations that wait for the host may break the graph into parts."""
    import torch
    import torch._inductor.compile_fx  # the first call would import it

    torch._dynamo.config.recompile_limit = 10_000
    torch._dynamo.config.accumulated_recompile_limit = 100_000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=whole)
    return compiled
