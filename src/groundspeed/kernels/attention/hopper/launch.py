"""How the Hopper kernel is launched: its choices, and its call from the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from groundspeed.kernels.attention.hopper.kernel import attention_forward_hopper
from groundspeed.kernels.launch import on

LOG2_E = 1.4426950408889634
BLOCK_M = 64
Forward = Callable[[Any, Any, Any, float], tuple[Any, Any]]
"""Of q, k, v and scale: o and lse."""
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class Launch:
    """Every tunable of a launch, nothing else."""

    consumers: int = 2
    block_n: int = 128
    stages: int = 2
    places: int = 4
    persistent: bool = True
    flat: bool = False
    ordered: bool = False
    turns: bool = False
    local_sums: bool = False
    lazy: bool = False
    split: bool = False

    def __post_init__(self) -> None:
        if self.stages < 2 or self.places < self.consumers + self.persistent:
            raise ValueError(f"{self} would wait for ever: a second tile needs a place more than there are consumers")

    @classmethod
    def choose(cls, queries: int, keys: int, head_dim: int, causal: bool) -> Launch:
        """From a first round of tools/tune_hopper.py on an H200, as many queries as keys. Not measured yet: what is
        flat, more than one tile for a program at D = 256, and where there are other keys than queries or rows that see
        none: there it is the nearest choice that compiles without spills."""
        if head_dim > 128:
            empty = causal and keys < queries
            return cls(2, 64, 2, 3, flat=empty, ordered=not empty, local_sums=True, lazy=not empty, split=True)
        if head_dim > 64:
            if causal and keys <= 1024:
                return cls(places=6, flat=True, local_sums=True)
            if causal or keys >= 2048:
                return cls(ordered=True, local_sums=True, lazy=True)
            return cls(local_sums=True)
        if causal and keys <= 512:
            return cls(stages=4, places=8, flat=True)
        if keys <= 1024:
            return cls(stages=4, places=8) if causal else cls(local_sums=True)
        if (causal and keys <= 2048) or queries < 1024:
            return cls(local_sums=True)
        return cls(consumers=3, places=6, turns=True)

    @property
    def rows(self) -> int:
        return self.consumers * BLOCK_M

    def _in_pairs(self, queries: int) -> bool:
        """Of an odd number of tiles the one in the middle is done twice: too much where there are few."""
        tiles: int = triton.cdiv(queries, self.rows)
        return tiles % 2 == 0 or tiles > 8

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
            "PLACES": self.places,
            "CAUSAL": causal,
            "PAIRED": causal and self.persistent and self._in_pairs(queries),
            "RAGGED": keys % self.block_n != 0,
            "EMPTY": causal and keys < queries,
            "FLAT": self.flat,
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
    """A dimension of one may have any stride, and TMA takes multiples of 16 bytes."""
    strides = [stride if size > 1 else columns for stride, size in zip(tensor.stride(), tensor.shape, strict=True)]
    layout = _layout(rows, columns, DTYPES[tensor.dtype])
    return TensorDescriptor(tensor, list(tensor.shape), [*strides[:3], 1], [1, 1, rows, columns], layout)


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":  # compiled only
        return 1
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def programs(launch: Launch, items: int, device: torch.device) -> int:
    return min(items, _multiprocessors(device)) if launch.persistent else items


def described(q: Any, k: Any, v: Any, o: Any, lse: Any, *, causal: bool, scale: float, launch: Launch) -> Any:
    """Arguments and options of a launch, and the items of its grid."""
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    constants = launch.constants(M, N, D, causal)
    columns = constants["HEAD_DIM"]
    tiles = triton.cdiv(M, launch.rows)
    items = B * H * (triton.cdiv(tiles, 2) if constants["PAIRED"] else tiles)
    arguments = (
        _described(q, BLOCK_M, columns),
        _described(k, launch.block_n, columns),
        _described(v, launch.block_n, columns),
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
    return prepared(q, k, v, causal, launch)(q, k, v, scale)


def prepared(q: Any, k: Any, v: Any, causal: bool, launch: Launch | None = None) -> Forward:
    """`forward` for tensors like these: of the same shapes, strides, dtype and device."""
    chosen = launch or Launch.choose(q.shape[2], k.shape[2], q.shape[3], causal)

    def forward(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, Any]:
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        if o.numel():
            arguments, options, items = described(q, k, v, o, lse, causal=causal, scale=scale, launch=chosen)
            with on(q.device):
                attention_forward_hopper[(programs(chosen, items, q.device),)](*arguments, **options)
        return o, lse

    return forward
