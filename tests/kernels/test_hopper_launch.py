"""How the Hopper kernel is called, without a GPU: what TMA is told, and what would never end."""

from __future__ import annotations

import pytest
import torch

from groundspeed.kernels.attention.form import PLAIN
from groundspeed.kernels.attention.hopper.choice import BLOCK_M, Launch
from groundspeed.kernels.attention.hopper.launch import described


@pytest.mark.parametrize("D", [64, 128, 256])
def test_boxes_are_those_of_their_place_also_where_all_tensors_are_one(D: int) -> None:
    x = torch.empty(2, 4, 1024, D, dtype=torch.bfloat16)
    launch = Launch.choose(1024, 1024, D, PLAIN[True])
    arguments, _, _ = described(x, x, x, x, torch.empty(2, 4, 1024), form=PLAIN[True], scale=1.0, launch=launch)
    assert [one.block_shape[-2] for one in arguments[:4]] == [BLOCK_M, launch.block_n, launch.block_n, BLOCK_M]


def test_a_dimension_of_one_may_have_any_stride() -> None:
    x = torch.empty(1, 3, 100, 64, dtype=torch.bfloat16).as_strided((1, 3, 100, 64), (7, 6400, 64, 1))
    arguments, _, _ = described(x, x, x, x, torch.empty(1, 3, 100), form=PLAIN[False], scale=1.0, launch=Launch())
    assert all(stride % 8 == 0 for stride in arguments[0].strides[:-1])


def test_batch_and_head_are_one_dimension_where_strides_allow_it() -> None:
    plain = torch.empty(2, 3, 100, 64, dtype=torch.bfloat16)
    turned = torch.empty(2, 100, 3, 64, dtype=torch.bfloat16).transpose(1, 2)
    arguments, _, _ = described(
        plain, turned, turned[:1], plain[:, :1], torch.empty(0), form=PLAIN[False], scale=1.0, launch=Launch()
    )
    assert [one.shape for one in arguments[:4]] == [[6, 100, 64], [2, 3, 100, 64], [3, 100, 64], [2, 100, 64]]
    assert [one.strides for one in arguments[:4]] == [
        [6400, 64, 1], [19200, 64, 192, 1], [64, 192, 1], [19200, 64, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("keys", [1, 512, 1000, 4096, 100_000])
@pytest.mark.parametrize("queries", [1, 700, 4096])
@pytest.mark.parametrize("D", [16, 64, 80, 128, 192, 256])
def test_there_is_a_choice_for_everything(D: int, queries: int, keys: int) -> None:
    for causal in (False, True):
        launch = Launch.choose(queries, keys, D, PLAIN[causal])
        assert launch.block_n * max(64, D) <= 128 * 128
        assert launch.consumers < 3 or queries >= 1024


@pytest.mark.parametrize(
    "wrong", [{"stages": 1}, {"places": 2}, {"consumers": 3, "places": 3}, {"consumers": 1, "turns": True}]
)
def test_what_would_never_end_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="would deadlock"):
        Launch(**wrong)  # type: ignore[arg-type]


def test_one_tile_for_each_program_needs_no_place_more() -> None:
    assert Launch(places=2, persistent=False).rows == 2 * BLOCK_M


@pytest.mark.parametrize(
    ("heads", "S", "D", "rows", "block_n"),
    [
        (1, 512, 64, 64, 128),
        (8, 512, 128, 64, 64),
        (8, 4096, 128, 128, 128),
        (2, 4096, 64, 64, 128),
        (1, 512, 256, 128, 64),
    ],
)
def test_few_heads_have_small_tiles_unless_large_ones_fill_half_of_a_gpu(
    heads: int, S: int, D: int, rows: int, block_n: int
) -> None:
    launch = Launch.choose(S, S, D, PLAIN[True], heads)
    assert (launch.rows, launch.block_n) == (rows, block_n)


def test_values_of_fewer_dimensions_have_blocks_as_large_as_fit() -> None:
    """Of keys of 192 and values of 128; not where they are packed, which takes a program from tile to tile."""
    chosen = [
        Launch.choose(4096, 4096, 192, PLAIN[True], value_dim=V, packed=packed)
        for V, packed in ((128, False), (192, False), (128, True))
    ]
    assert [launch.block_n for launch in chosen] == [128, 64, 64]
    assert [launch.persistent for launch in chosen] == [False, True, True]
