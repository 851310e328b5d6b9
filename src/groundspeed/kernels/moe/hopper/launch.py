"""The launch of the grouped product on Hopper from the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from groundspeed.kernels.launch import Box, Launcher, multiprocessors
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.moe.grouping import Groups, most_tiles
from groundspeed.kernels.moe.hopper.choice import ALIGN, MATRIX, PIECE, Launch, Transposed
from groundspeed.kernels.moe.hopper.kernel import moe_grouped_gemm_hopper
from groundspeed.kernels.moe.hopper.transposed import moe_grouped_gemm_transposed


class Call(NamedTuple):
    """All of a launch except its tensors."""

    kernel: Any
    boxes: tuple[Box, ...]
    """The boxes of a, b and c. The transposed kernel takes a twice."""
    numbers: tuple[int, int, int]
    constants: dict[str, Any]
    programs: int

    @classmethod
    def of(
        cls,
        b: torch.Tensor,
        rows: int,
        choices: int,
        activation: str | None,
        launch: Launch | Transposed,
        *,
        biased: bool = False,
    ) -> Call:
        """Return the call for contiguous a [rows, K] and c [rows, N], with `choices` of the rows in groups. `biased`:
        there is a bias [N], the same for all groups. Gated activations take none, nor does the transposed kernel."""
        if biased and (isinstance(launch, Transposed) or widening(activation) > 1):
            raise ValueError(f"no bias can be added with activation={activation!r} and {launch}")
        (E, N, K), block_k, wide = b.shape, launch.block_k, widening(activation)
        width, steps = N // wide, triton.cdiv(K, block_k)
        constants = launch.constants(activation, steps)

        def box_of_a(block: int) -> Box:
            return Box.made((rows, K), (K, 1), (block, block_k), b.dtype)

        def boxes(of_a: tuple[Box, ...], matrix_rows: int, stored: int) -> tuple[Box, ...]:
            matrix = Box.made((E, N, K), (b.stride(0), b.stride(1), 1), (1, matrix_rows // wide, block_k), b.dtype)
            return (*of_a, matrix, Box.made((rows, width), (width, 1), (stored, constants["COLUMNS"]), b.dtype))

        if isinstance(launch, Transposed):
            kernel: Any = moe_grouped_gemm_transposed
            made = boxes((box_of_a(launch.tokens), box_of_a(launch.rest or PIECE)), MATRIX, PIECE)
        else:
            kernel, made = moe_grouped_gemm_hopper, boxes((box_of_a(ALIGN),), launch.block_n, ALIGN)
            constants["WHOLE"] = biased and N % launch.block_n == 0
        columns = triton.cdiv(N, launch.block_n)
        programs = min(most_tiles(choices, E, launch.rows) * columns, multiprocessors(b.device))
        return cls(kernel, made, (columns, width, steps), constants, programs)


def prepared(
    b: torch.Tensor,
    rows: int,
    choices: int,
    activation: str | None,
    launch: Launch | Transposed,
    *,
    biased: bool = False,
) -> Callable[..., None]:
    """Return a function from a, b, c, groups and, if `biased`, a bias, for tensors like these; the other arguments are
    as in `Call.of`."""
    call, E = Call.of(b, rows, choices, activation, launch, biased=biased), b.shape[0]
    run = Launcher(call.kernel, (call.programs, 1, 1), call.constants, launch.options, b.device, call.boxes)
    if isinstance(launch, Transposed):
        return lambda a, b, c, groups: run(a, a, b, c, groups.tiles, groups.totals[E:], *call.numbers)

    def multiply(
        a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, groups: Groups, bias: torch.Tensor | None = None
    ) -> None:
        run(a, b, c, groups.tiles, groups.totals[E:], bias, *call.numbers)

    return multiply
