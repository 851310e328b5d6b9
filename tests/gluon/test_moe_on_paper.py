"""The grouped product for Hopper on paper: values, and that no barrier is waited for in vain and no buffer overwritten
too early, over tiles, activations and groups of all sizes."""

from __future__ import annotations

import random
from typing import Any

import paper
import pytest
import torch
from gluon_on_paper import instead_of_triton

from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe.grouping import TILE, most_rows
from groundspeed.kernels.moe.hopper.choice import ALIGN, Launch, Transposed, choose_pair
from groundspeed.kernels.moe.hopper.launch import Call

with instead_of_triton("groundspeed.kernels.hopper", "groundspeed.kernels.moe.hopper"):
    from groundspeed.kernels.moe.hopper import kernel, transposed

LAUNCHES = {
    "two consumers": Launch(block_n=128, stages=3, together=3),
    "two, whole tiles": Launch(stages=4),
    "one": Launch(1, 128, stages=2, together=2),
    "one, narrow": Launch(1, 64, stages=5, together=32),
    "transposed": Transposed(),
    "transposed, few stages": Transposed(64, 32, stages=2, together=3),
    "transposed, no rest": Transposed(64, 0, stages=3, together=1),
}
GROUPS = {
    "some without rows": (0, 70, 0, 1, 200, 0),
    "all rows in one": (0, 0, 300),
    "one row": (1,),
    "none": (0, 0),
    "whole tiles": (128, 64, 192),
    "a tile and its rest": (129, 160, 161),
}


def grouped(sizes: tuple[int, ...], rows_of_tile: int) -> tuple[Any, Any, int]:
    """Tiles and their count as on the device, and the first row of each group."""
    tiles, firsts, row = [], [], 0
    for expert, size in enumerate(sizes):
        firsts.append(row)
        tiles += [[row + i, expert, min(size - i, rows_of_tile), -1] for i in range(0, size, rows_of_tile)]
        row += -(-size // ALIGN) * ALIGN
    listed = torch.tensor([*tiles, [1 << 29] * TILE], dtype=torch.int32)
    return listed, firsts, len(tiles)


@pytest.mark.parametrize("activation", [None, "gelu", "swiglu", "relu2"])
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_values(launch: Launch | Transposed, sizes: tuple[int, ...], activation: str | None) -> None:
    random.seed(torch.randint(1 << 30, ()).item())
    assert_right(launch, sizes, activation, *random.choice([(72, 40), (256, 64), (300, 136)]))


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("launch", [launch for launch in LAUNCHES.values() if isinstance(launch, Launch)], ids=str)
def test_values_with_a_bias(launch: Launch, dtype: torch.dtype, activation: str | None) -> None:
    """For whole tiles, and under a mask: a load beyond the last bias is an error on paper. Of rows that are not a
    multiple of anything, and of more than one group, which share the bias."""
    for width in (2 * launch.block_n, 2 * launch.block_n + 8, 72):
        for sizes in ((171,), (1,), (0, 70, 130)):
            assert_right(launch, sizes, activation, width, 72, biased=True, dtype=dtype)


@pytest.mark.parametrize("lag", [1, 2])
def test_a_bias_where_one_consumer_is_behind_the_other(lag: int) -> None:
    launch = Launch(block_n=64, block_k=16, stages=3, together=2, lag=lag)
    assert_right(launch, (171,), "gelu", 128, 136, biased=True)


def test_a_bias_is_refused_where_none_is_added() -> None:
    b = torch.empty(1, 256, 64, dtype=torch.bfloat16)
    for launch, activation in ((Launch(), "swiglu"), (Transposed(), "gelu")):
        with pytest.raises(ValueError, match="no bias can be added with activation="):
            Call.of(b, 300, 300, activation, launch, biased=True)
    whole = [Call.of(b[:, :n], 300, 300, None, Launch(), biased=biased) for n, biased in ((256, True), (248, True))]
    assert [call.constants["WHOLE"] for call in whole] == [True, False]
    assert not Call.of(b, 300, 300, None, Launch()).constants["WHOLE"]  # one kernel for all that have none


@pytest.mark.parametrize("lag", [1, 2])
def test_one_consumer_behind_the_other(lag: int) -> None:
    launch = Launch(block_n=64, block_k=16, stages=3, together=2, lag=lag)
    assert launch.constants("gelu", 9)["LAG"] == lag
    assert_right(launch, GROUPS["some without rows"], "gelu", 130, 136)
    with pytest.raises(ValueError, match="would deadlock"):
        Launch(stages=3, lag=3)


@pytest.mark.parametrize("choices", [1000, 1200])
@pytest.mark.parametrize(("width", "activation"), [(4096, None), (14336, "swiglu")])
def test_both_products_of_a_layer_read_one_list_of_tiles(width: int, activation: str | None, choices: int) -> None:
    """Mixtral 8×7B with 500 or 600 tokens: the up product has columns enough for tiles of 256, the down product has
    not. Each of the launches that the layer chooses, on a list of the first one's tiles, computes every row."""
    up, down = choose_pair(choices, 8, (14336, "swiglu"), (4096, None))
    mine = up if activation else down
    assert_right(mine, (70, 0, 130, 128, 1, 200, 64, 3), activation, 2 * mine.block_n, 64, listed_by=up.rows)


def assert_right(
    launch: Launch | Transposed,
    sizes: tuple[int, ...],
    activation: str | None,
    width: int,
    K: int,
    listed_by: int | None = None,
    biased: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """`listed_by`: the rows per tile of the list, if that is another launch's."""
    N = 2 * width if activation == "swiglu" else width
    listed, firsts, count = grouped(sizes, listed_by or launch.rows)
    rows = most_rows(max(1, sum(sizes)), len(sizes), ALIGN)
    a = torch.randn(rows, K).to(dtype)
    b = (torch.randn(len(sizes), N, K) / K**0.5).to(dtype)
    bias = torch.randn(N).to(dtype) if biased else torch.zeros(N, dtype=dtype)
    c = torch.full((rows, width), float("nan"), dtype=dtype)
    call = Call.of(b, rows, max(1, sum(sizes)), activation, launch, biased=biased)
    is_transposed = isinstance(launch, Transposed)
    boxed = zip((a, a, b, c) if is_transposed else (a, b, c), call.boxes, strict=True)
    described = [paper.Boxed(tensor, box) for tensor, box in boxed]
    told: list[Any] = [paper.Pointer(listed), paper.Pointer(torch.tensor([count], dtype=torch.int32))]
    if not is_transposed:
        told.append(paper.Pointer(bias) if biased else None)
    numbers = (paper.Number(number) for number in call.numbers)
    run = transposed.moe_grouped_gemm_transposed if is_transposed else kernel.moe_grouped_gemm_hopper
    paper.launch(run, random.choice([1, 3]), *described, *told, *numbers, **call.constants)
    used = torch.zeros(rows, dtype=torch.bool)
    for expert, (first, size) in enumerate(zip(firsts, sizes, strict=True)):
        expected = a[first : first + size].double() @ b[expert].double().T + bias.double()
        expected = expected if activation is None else activated(expected, activation)
        found = c[first : first + size].double()
        assert ((found - expected).abs() <= torch.finfo(dtype).eps / 2 * expected.abs() + 1e-4).all()
        used[first : first + -(-size // ALIGN) * ALIGN] = True
    assert c[~used].isnan().all()  # between the groups nothing is written
