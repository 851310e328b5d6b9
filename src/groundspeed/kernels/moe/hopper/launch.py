"""How the grouped product on Hopper is called from the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from triton.experimental.gluon import language as gl

from groundspeed.kernels.launch import Box, Launcher
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.moe.grouping import Groups, most_tiles
from groundspeed.kernels.moe.hopper.choice import ALIGN, MULTIPROCESSORS, Launch
from groundspeed.kernels.moe.hopper.kernel import moe_grouped_gemm_hopper

DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@cache
def _layout(block: tuple[int, ...], dtype: Any) -> Any:
    return gl.NVMMASharedLayout.get_default_for(list(block), dtype)


def _box(shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...], dtype: torch.dtype) -> Box:
    return Box(list(shape), list(strides), list(block), _layout(block, DTYPES[dtype]))


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":  # compiled only
        return MULTIPROCESSORS
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


class Call(NamedTuple):
    """All of a launch but its tensors."""

    boxes: tuple[Box, Box, Box]
    """Of a, b and c."""
    numbers: tuple[int, int, int]
    constants: dict[str, Any]
    programs: int

    @classmethod
    def of(cls, b: torch.Tensor, rows: int, choices: int, activation: str | None, launch: Launch) -> Call:
        """Of a [rows, K] and c [rows, N], contiguous, with `choices` of the rows in groups."""
        (E, N, K), block_k, wide = b.shape, launch.block_k, widening(activation)
        width, steps = N // wide, triton.cdiv(K, block_k)
        constants = launch.constants(activation, steps)
        boxes = (
            _box((rows, K), (K, 1), (ALIGN, block_k), b.dtype),
            _box((E, N, K), (b.stride(0), b.stride(1), 1), (1, launch.block_n // wide, block_k), b.dtype),
            _box((rows, width), (width, 1), (ALIGN, constants["COLUMNS"]), b.dtype),
        )
        columns = triton.cdiv(N, launch.block_n)
        programs = min(most_tiles(choices, E, launch.rows) * columns, _multiprocessors(b.device))
        return cls(boxes, (columns, width, steps), constants, programs)


def prepared(
    b: torch.Tensor, rows: int, choices: int, activation: str | None, launch: Launch
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Groups], None]:
    """Of matrices like these, as `Call.of` has it."""
    call, E = Call.of(b, rows, choices, activation, launch), b.shape[0]
    run = Launcher(moe_grouped_gemm_hopper, (call.programs, 1, 1), call.constants, launch.options, b.device, call.boxes)

    def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, groups: Groups) -> None:
        run(a, b, c, groups.tiles, groups.totals[E:], *call.numbers)

    return multiply
