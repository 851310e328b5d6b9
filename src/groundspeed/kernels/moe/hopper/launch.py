"""The launch of the grouped product on Hopper from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from groundspeed.kernels.launch import Box, Launcher, multiprocessors
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.moe.grouping import Groups, most_tiles
from groundspeed.kernels.moe.hopper.choice import ALIGN, Launch
from groundspeed.kernels.moe.hopper.kernel import moe_grouped_gemm_hopper


class Call(NamedTuple):
    """All of a launch except its tensors."""

    boxes: tuple[Box, Box, Box]
    """The boxes of a, b and c."""
    numbers: tuple[int, int, int]
    constants: dict[str, Any]
    programs: int

    @classmethod
    def of(cls, b: torch.Tensor, rows: int, choices: int, activation: str | None, launch: Launch) -> Call:
        """Return the call for contiguous a [rows, K] and c [rows, N], with `choices` of the rows in groups."""
        (E, N, K), block_k, wide = b.shape, launch.block_k, widening(activation)
        width, steps = N // wide, triton.cdiv(K, block_k)
        constants = launch.constants(activation, steps)
        boxes = (
            Box.made((rows, K), (K, 1), (ALIGN, block_k), b.dtype),
            Box.made((E, N, K), (b.stride(0), b.stride(1), 1), (1, launch.block_n // wide, block_k), b.dtype),
            Box.made((rows, width), (width, 1), (ALIGN, constants["COLUMNS"]), b.dtype),
        )
        columns = triton.cdiv(N, launch.block_n)
        programs = min(most_tiles(choices, E, launch.rows) * columns, multiprocessors(b.device))
        return cls(boxes, (columns, width, steps), constants, programs)


def prepared(
    b: torch.Tensor, rows: int, choices: int, activation: str | None, launch: Launch
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Groups], None]:
    """Return a function for matrices like these; the other arguments are as in `Call.of`."""
    call, E = Call.of(b, rows, choices, activation, launch), b.shape[0]
    run = Launcher(moe_grouped_gemm_hopper, (call.programs, 1, 1), call.constants, launch.options, b.device, call.boxes)

    def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, groups: Groups) -> None:
        run(a, b, c, groups.tiles, groups.totals[E:], *call.numbers)

    return multiply
