"""How the Hopper kernel is launched: its choices, and its call from the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, NamedTuple

import torch
import triton
from triton.experimental.gluon import language as gl

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.hopper.kernel import attention_forward_hopper
from groundspeed.kernels.launch import Box, Launcher, maker, on

LOG2_E = 1.4426950408889634
BLOCK_M = 64
Forward = Callable[..., tuple[Any, Any]]
"""Of q, k, v, scale and sinks where there are: o and lse."""
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def padded(head_dim: int) -> int:
    """Columns of a tile."""
    columns: int = triton.next_power_of_2(head_dim)
    return max(64, columns)


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
    def choose(cls, queries: int, keys: int, head_dim: int, form: Form) -> Launch:
        """The first line of TABLE that holds. It was measured with as many queries as keys, full and causal; where
        there are few queries, tiles of three consumers would be half empty, and where rows may see no key, or more is
        done with scores, registers are short."""
        few = queries < FEW or form.left >= 0 or form.softcap > 0
        empty = _has_empty_rows(queries, keys, form) or form.softcap > 0
        seen = min(keys, form.left + BLOCK_M) if form.left >= 0 else keys
        return next(
            line.launch
            for line in TABLE
            if (head_dim <= line.head_dim and (form.right >= 0) in line.causal and seen <= line.keys)
            and not (few and line.launch.consumers > 2)
            and not (empty and line.launch.lazy)
        )

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

    def constants(self, queries: int, keys: int, head_dim: int, form: Form, *, packed: bool = False) -> dict[str, Any]:
        differ = form.right >= 0 and form.left < 0  # in length, from tile to tile
        return {
            "CONSUMERS": self.consumers,
            "BLOCK_M": BLOCK_M,
            "BLOCK_N": self.block_n,
            "HEAD_DIM": padded(head_dim),
            "COLUMNS": head_dim if packed else padded(head_dim),
            "STAGES": self.stages,
            "PLACES": self.places,
            "CAUSAL": form.right >= 0,
            "LEFT": form.left >= 0,
            "CAP": form.softcap > 0,
            "SINKS": form.sinks,
            "PACKED": packed,
            "PAIRED": differ and self.persistent and self._in_pairs(queries),
            "RAGGED": packed or keys % self.block_n != 0,
            "EMPTY": packed or _has_empty_rows(queries, keys, form),
            "FLAT": self.flat,
            "ORDERED": self.ordered,
            "TURNS": self.turns,
            "LOCAL_SUMS": self.local_sums,
            "LAZY": self.lazy,
            "SPLIT": self.split,
            "REGISTERS": 240 if self.consumers == 2 else 160,
        }


def _has_empty_rows(queries: int, keys: int, form: Form) -> bool:
    """Whether a row may see no key, or none of the first block of its tile."""
    return form.left >= 0 or (form.right >= 0 and keys + form.right < queries)


class Line(NamedTuple):
    """Of the table: for up to so large a head dimension, these masks, and up to so many keys."""

    head_dim: int
    causal: tuple[bool, ...]
    keys: float
    launch: Launch


FEW = 1024
ANY = (False, True)
TABLE = (
    Line(64, (False,), 512, Launch(local_sums=True)),
    Line(64, (True,), 1024, Launch(stages=4, places=8, flat=True, local_sums=True)),
    Line(64, (True,), 2048, Launch(stages=4, places=8, ordered=True, local_sums=True, lazy=True)),
    Line(64, ANY, inf, Launch(consumers=3, places=6, turns=True)),
    Line(64, ANY, inf, Launch(local_sums=True)),
    Line(128, (True,), 1024, Launch(places=6, flat=True, local_sums=True, lazy=True)),
    Line(128, ANY, inf, Launch(ordered=True, local_sums=True, lazy=True, split=True)),
    Line(128, ANY, inf, Launch(places=6, flat=True, local_sums=True)),
    Line(256, ANY, inf, Launch(2, 64, 2, 3, flat=True, ordered=True, local_sums=True, lazy=True, split=True)),
    Line(256, ANY, inf, Launch(2, 64, 2, 3, flat=True, local_sums=True, split=True)),
)
"""Made with tools/tune_hopper.py on an H200, BF16, 16,384 tokens and 2,048 columns of all heads in each batch."""


@cache
def _layout(block: tuple[int, ...], dtype: Any) -> Any:
    return gl.NVMMASharedLayout.get_default_for(list(block), dtype)


def _box(tensor: Any, rows: int) -> Box:
    """Batch and head as one dimension where strides allow it. A dimension of one may have any stride, and TMA takes
    multiples of 16 bytes."""
    B, H, M, D = tensor.shape
    over_batch, over_head, over_row, _ = tensor.stride()
    columns = padded(D)
    shape, strides = [B, H, M, D], [over_batch, over_head, over_row]
    if B == 1 or H == 1 or over_batch == H * over_head:
        shape, strides = [B * H, M, D], [over_head if H > 1 else over_batch, over_row]
    strides = [stride if size > 1 else columns for stride, size in zip(strides, shape[:-1], strict=True)]
    block = (1,) * (len(shape) - 2) + (rows, columns)
    return Box(shape, [*strides, 1], list(block), _layout(block, DTYPES[tensor.dtype]))


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":  # compiled only
        return 1
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def programs(launch: Launch, items: int, device: torch.device) -> int:
    return min(items, _multiprocessors(device)) if launch.persistent else items


class Call(NamedTuple):
    """All of a launch but its tensors and its scale."""

    boxes: tuple[Box, ...]
    """Of q, k, v and o."""
    numbers: tuple[int | float | None, ...]
    unit: float
    """What the scale is multiplied by."""
    constants: dict[str, Any]
    programs: int

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, o: Any, form: Form, launch: Launch) -> Call:
        B, H, M, D = q.shape
        G, N = k.shape[1], k.shape[2]
        constants = launch.constants(M, N, D, form)
        tiles = triton.cdiv(M, launch.rows)
        items = B * H * (triton.cdiv(tiles, 2) if constants["PAIRED"] else tiles)
        sides = (q, BLOCK_M), (k, launch.block_n), (v, launch.block_n), (o, BLOCK_M)
        boxes = tuple(_box(tensor, rows) for tensor, rows in sides)
        programs = min(items, _multiprocessors(q.device)) if launch.persistent else items
        numbers = M, N, H, H // G, tiles, items, *_bounds(form, M + N)
        return cls(boxes, numbers, _unit(form), constants, programs)

    @classmethod
    def of_packed(cls, q: Any, k: Any, v: Any, o: Any, longest: int, count: int, form: Form, launch: Launch) -> Call:
        """Of [total, heads, dim]: `count` sequences, the longest of which has so many queries."""
        total, H, D = q.shape
        constants = launch.constants(longest, k.shape[0], D, form, packed=True)
        tiles = triton.cdiv(longest, launch.rows)
        sides = (q, BLOCK_M), (k, launch.block_n), (v, launch.block_n), (o, BLOCK_M)
        boxes = tuple(_box(tensor.transpose(0, 1)[None], rows) for tensor, rows in sides)
        numbers = total, k.shape[0], H, H // k.shape[1], tiles, tiles * H * count, *_bounds(form, total + k.shape[0])
        return cls(boxes, numbers, _unit(form), constants, tiles * H * count)


def _bounds(form: Form, most: int) -> tuple[int | float | None, ...]:
    """Left, right and cap as the kernel takes them; a window is never wider than there are places."""
    left, right = (None if side < 0 else min(side, most) for side in (form.left, form.right))
    return left, right or None, form.softcap * LOG2_E or None


def _unit(form: Form) -> float:
    return 1 / form.softcap if form.softcap else LOG2_E


def described(
    q: Any, k: Any, v: Any, o: Any, lse: Any, sinks: Any = None, *, form: Form, scale: float, launch: Launch
) -> Any:
    """For Triton itself: arguments and options of a launch, and its grid."""
    call = Call.of(q, k, v, o, form, launch)
    boxed = [box.of(tensor) for box, tensor in zip(call.boxes, (q, k, v, o), strict=True)]
    arguments = (*boxed, lse, scale * call.unit, *call.numbers, sinks, None, None, None)
    return arguments, {**call.constants, **launch.options}, (call.programs,)


def forward(
    q: Any, k: Any, v: Any, *, form: Form, scale: float, sinks: Any = None, launch: Launch | None = None
) -> tuple[Any, Any]:
    """o and lse, freshly allocated."""
    return prepared(q, k, v, form, launch)(q, k, v, scale, sinks)


def prepared(q: Any, k: Any, v: Any, form: Form, launch: Launch | None = None) -> Forward:
    """`forward` for tensors like these: of the same shapes, strides, dtype and device, and aligned to 16 bytes."""
    chosen = launch or Launch.choose(q.shape[2], k.shape[2], q.shape[3], form)
    make = maker(q.device, (q.shape, q.dtype), (q.shape[:3], torch.float32))
    launcher = None
    if q.numel():
        call = Call.of(q, k, v, torch.empty(q.shape, dtype=q.dtype, device="meta"), form, chosen)
        grid = call.programs, 1, 1
        launcher = Launcher(attention_forward_hopper, grid, call.constants, chosen.options, q.device, call.boxes)

    def forward(q: Any, k: Any, v: Any, scale: float, sinks: Any = None) -> tuple[Any, Any]:
        o, lse = make()
        if launcher:
            launcher(q, k, v, o, lse, scale * call.unit, *call.numbers, sinks, None, None, None)
        return o, lse

    return forward


def packed_launch(longest: int, head_dim: int) -> Launch:
    """As a short window is launched, two consumers and rows that may see no key; but one tile for each program."""
    chosen = Launch.choose(longest, longest, head_dim, Form(left=0, right=0))
    return replace(chosen, places=chosen.consumers, persistent=False)


def packed_forward(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, longest: int, *, form: Form, scale: float, sinks: Any = None
) -> tuple[Any, Any]:
    """As the portable one has it: of q [total, H, D], k and v [total, G, D], o like q and lse [H, total]."""
    count, (total, H, _) = len(cu_q) - 1, q.shape
    launch = packed_launch(longest, q.shape[2])
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((H, total), dtype=torch.float32, device=q.device)
    call = Call.of_packed(q, k, v, o, longest, count, form, launch)
    if call.programs and total:
        described = [b.of(x.transpose(0, 1)[None]) for b, x in zip(call.boxes, (q, k, v, o), strict=True)]
        with on(q.device):
            attention_forward_hopper[(call.programs,)](
                *described, lse, scale * call.unit, *call.numbers, sinks, cu_q, cu_k, o, **call.constants,
                **launch.options,
            )  # fmt: skip
    return o, lse
