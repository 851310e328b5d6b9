"""How the Hopper kernel is launched: its choices, and its call from the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from groundspeed.kernels.attention.hopper.kernel import attention_forward_hopper

LOG2_E = 1.4426950408889634
BLOCK_M = 64
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class Launch:
    """Every tunable of a launch, nothing else."""

    consumers: int = 2
    block_n: int = 128
    stages: int = 2
    slots: int = 2
    persistent: bool = True
    ordered: bool = False
    turns: bool = False
    local_sums: bool = False
    lazy: bool = False
    split: bool = False

    @classmethod
    def choose(cls, queries: int, keys: int, head_dim: int, causal: bool) -> Launch:
        if head_dim > 128:
            return cls(block_n=64, slots=1, persistent=False, local_sums=True, lazy=True, split=True)
        if head_dim > 64:
            if (causal and keys > 1024) or keys >= 16384:
                return cls(ordered=True, local_sums=True, lazy=True)
            return cls(local_sums=True)
        if keys <= 512:
            return cls(slots=4, stages=4)
        if causal and keys < 4096:
            return cls(slots=4)
        return cls(consumers=3, turns=True)

    @property
    def rows(self) -> int:
        return self.consumers * BLOCK_M

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": 4, "maxnreg": 168 if self.consumers == 2 else 128}

    def constants(self, queries: int, keys: int, head_dim: int, causal: bool) -> dict[str, Any]:
        return {
            "CONSUMERS": self.consumers,
            "BLOCK_M": BLOCK_M,
            "BLOCK_N": self.block_n,
            "HEAD_DIM": max(64, triton.next_power_of_2(head_dim)),
            "STAGES": self.stages,
            "SLOTS": self.slots,
            "CAUSAL": causal,
            "PAIRED": causal and self.persistent,
            "RAGGED": keys % self.block_n != 0,
            "EMPTY": causal and keys < queries,
            "ORDERED": self.ordered,
            "TURNS": self.turns,
            "LOCAL_SUMS": self.local_sums,
            "LAZY": self.lazy,
            "SPLIT": self.split,
            "REGISTERS": 240 if self.consumers == 2 else 160,
        }


@cache
def _layout(rows: int, columns: int, dtype: Any) -> Any:
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, columns], dtype)


def _described(tensor: Any, rows: int, columns: int) -> TensorDescriptor:
    layout = _layout(rows, columns, DTYPES[tensor.dtype])
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), [1, 1, rows, columns], layout)


@cache
def _multiprocessors(device: torch.device) -> int:
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def programs(launch: Launch, items: int, device: torch.device) -> int:
    return min(items, _multiprocessors(device)) if launch.persistent else items


def prepared(q: Any, k: Any, v: Any, o: Any, lse: Any, *, causal: bool, scale: float, launch: Launch) -> Any:
    """Arguments and options of a launch, and the items of its grid."""
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    constants = launch.constants(M, N, D, causal)
    columns = constants["HEAD_DIM"]
    tiles = triton.cdiv(M, launch.rows)
    items = B * H * (triton.cdiv(tiles, 2) if constants["PAIRED"] else tiles)
    arguments = (
        *(_described(x, BLOCK_M, columns) if x is q else _described(x, launch.block_n, columns) for x in (q, k, v)),
        _described(o, BLOCK_M, columns),
        lse,
        scale * LOG2_E,
        M,
        N,
        H,
        H // G,
        tiles,
        items,
    )
    return arguments, {**constants, **launch.options}, items


def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, launch: Launch | None = None) -> tuple[Any, Any]:
    """o and lse, freshly allocated."""
    B, H, M, D = q.shape
    o = torch.empty((B, H, M, D), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, M), dtype=torch.float32, device=q.device)
    launch = launch or Launch.choose(M, k.shape[2], D, causal)
    arguments, options, items = prepared(q, k, v, o, lse, causal=causal, scale=scale, launch=launch)
    attention_forward_hopper[(programs(launch, items, q.device),)](*arguments, **options)
    return o, lse
