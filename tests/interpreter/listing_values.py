"""The list of tiles of packed sequences: every tile once, those with the most keys first, in the interpreter."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.hopper.listing import most, prepared

FORMS = [
    Form(),
    Form(right=0),
    Form(right=70),
    Form(left=100, right=0),
    Form(left=100),
    Form(right=2**31 - 1),
    Form(right=2**40),
]
TILES = [(64, 64), (128, 128), (192, 64)]


def blocks(row: int, queries: int, keys: int, form: Form, rows: int, block_n: int) -> int:
    seen = keys if form.right < 0 else min(keys, row + rows + keys - queries + form.right)
    return max(1, -(-seen // block_n))


def assert_listed(lengths: list[tuple[int, int]], form: Form, rows: int, block_n: int) -> None:
    cu_q, cu_k = (torch.tensor([0, *(one[side] for one in lengths)]).cumsum(0).int() for side in (0, 1))
    found = prepared(len(lengths), int(cu_q[-1]), form, rows, block_n, cu_q.device)(cu_q, cu_k).view(-1, 8)
    count = int(found[0, 0])
    tiles = [tuple(entry) for entry in found[1 : count + 1, :5].tolist()]
    whole = [
        (row, int(cu_q[i]), int(cu_k[i]), queries, keys)
        for i, (queries, keys) in enumerate(lengths)
        for row in range(0, queries, rows)
    ]
    assert sorted(tiles) == sorted(whole)
    assert count <= most(int(cu_q[-1]), len(lengths), rows) == len(found) - 1
    if form.left < 0:
        work = [blocks(row, queries, keys, form, rows, block_n) for row, _, _, queries, keys in tiles]
        assert work == sorted(work, reverse=True)


length = st.one_of(st.sampled_from([0, 1, 63, 64, 128, 129]), st.integers(0, 1500))
both = st.one_of(st.tuples(length, length), length.map(lambda n: (n, n)))


@settings(max_examples=40, deadline=None)
@given(st.lists(both, min_size=1, max_size=6), st.sampled_from(FORMS), st.sampled_from(TILES))
def test_every_tile_is_listed_once_and_the_longest_first(
    lengths: list[tuple[int, int]], form: Form, tile: tuple[int, int]
) -> None:
    assert_listed(lengths, form, *tile)


def test_more_sequences_than_are_looked_at_at_once() -> None:
    lengths = [(n * 37 % 200, n * 53 % 300) for n in range(150)]
    assert_listed(lengths, Form(right=0), 64, 64)


def test_a_sequence_of_more_tiles_than_are_looked_at_at_once() -> None:
    assert_listed([(2500, 2500), (64, 64), (1200, 3000)], Form(right=0), 64, 128)
