"""A plain matrix product by the kernels of the experts: all rows are one group, whose tiles are listed in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from groundspeed.kernels import calls
from groundspeed.kernels.launch import maker
from groundspeed.kernels.moe import grouped_gemm
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.moe.grouping import Groups
from groundspeed.kernels.recall import Recall

_recall = Recall()


def matmul(a: torch.Tensor, b: torch.Tensor, *, hopper: bool) -> torch.Tensor:
    """Return a [M, K] · bᵀ for b [N, K], as in a linear layer: FP16 or BF16, contiguous, on an NVIDIA GPU."""
    forward = _recall.find(hopper, (a, b))
    if forward is None:
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1] or a.dtype != b.dtype:
            raise ValueError(f"a must be [M, K] and b [N, K], of the same dtype: {list(a.shape)} and {list(b.shape)}")
        if not a.is_contiguous() or not b.is_contiguous():
            raise ValueError("a and b must be contiguous")
        forward = prepared(a, b, capability=calls.capability(a.device), hopper=hopper)
        _recall.keep(hopper, (a, b), forward)
    out: torch.Tensor = forward(a, b)
    return out


def prepared(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    capability: tuple[int, int],
    hopper: bool,
    activation: str | None = None,
    biased: bool = False,
    launch: Any = None,
) -> Callable[..., torch.Tensor]:
    """Return a function from a, b and, if `biased`, a bias [N] to activation(a · bᵀ + bias), for tensors like these.
    The portable kernel has neither activation nor bias here; "swiglu", for which b is [2·N, K] with the gate first, has
    no bias. `launch` replaces the one that is chosen for the shape."""
    (M, K), N, expert = a.shape, b.shape[0] // widening(activation), b[None]
    if hopper:
        from groundspeed.kernels.moe.hopper.choice import Launch
        from groundspeed.kernels.moe.hopper.launch import prepared as on_hopper

        launch = launch or Launch.choose(M, 1, N, activation)
        multiply, block_m = on_hopper(expert, M, M, activation, launch, biased=biased), launch.rows
    elif activation or biased:
        raise ValueError("the portable product has no bias, and an activation only for experts")
    else:
        launch = launch or grouped_gemm.Launch.choose(M, 1, None, capability)
        multiply = grouped_gemm.prepared(expert, M, None, launch, stride_a=K, gathered=False)
        block_m = launch.block_m
    groups, make = _one_group(M, block_m, a.device), maker(a.device, ((M, N), a.dtype))

    def forward(a: torch.Tensor, b: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
        (c,) = make()
        multiply(a, b[None], c, groups, *bias)
        return c

    return forward


def _one_group(rows: int, block_m: int, device: torch.device) -> Groups:
    first = torch.arange(0, rows, block_m, dtype=torch.int32)
    nothing = torch.zeros_like(first)
    tiles = torch.stack([first, nothing, (rows - first).clamp(max=block_m), nothing], dim=1)
    totals = torch.tensor([rows, len(first)], dtype=torch.int32)
    unused = torch.empty(0, dtype=torch.int32)
    return Groups(*(tensor.to(device) for tensor in (unused, unused, tiles.contiguous(), totals)))
