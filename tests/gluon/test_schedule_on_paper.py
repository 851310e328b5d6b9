"""The schedule of the Hopper kernel on paper, over random shapes: every tile is computed once, by one program, with all
keys that its rows see; and what the host counts is what the programs have."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import paper
import pytest
import torch
from gluon_on_paper import instead_of_triton

from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import balance, choice
from groundspeed.kernels.attention.hopper.choice import Launch
from groundspeed.kernels.attention.hopper.launch import Call

with instead_of_triton("groundspeed.kernels.hopper", "groundspeed.kernels.attention.hopper"):
    from groundspeed.kernels.attention.hopper import kernel, schedule

LAUNCHES = [
    choice.BALANCED_128,
    choice.ONE_128,
    choice.TWO_128,
    Launch(consumers=3, places=6, turns=True, balanced=True),
    dataclasses.replace(choice.ONE_64, balanced=True),
    dataclasses.replace(choice.TWO_256, balanced=True),
]
PROGRAMS = (1, 2, 3, 4, 5, 7, 13, 78, 114, 132, 148)


class Int32:
    """A whole number as the GPU has it: 32 bits, and divided towards zero."""

    def __init__(self, value: Any) -> None:
        self.value = int(value)
        assert -(2**31) <= self.value < 2**31

    def _with(self, other: Any, what: Callable[[int, int], int]) -> Int32:
        return Int32(what(self.value, int(other)))

    def __add__(self, other: Any) -> Int32:
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Int32:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Int32:
        return Int32(int(other) - self.value)

    def __mul__(self, other: Any) -> Int32:
        return self._with(other, operator.mul)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Int32:
        return self._with(other, lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))

    def __mod__(self, other: Any) -> Int32:
        return self - self // other * int(other)

    def __and__(self, other: Any) -> Int32:
        return self._with(other, operator.and_)

    def __lt__(self, other: Any) -> bool:
        return self.value < int(other)

    def __gt__(self, other: Any) -> bool:
        return self.value > int(other)

    def __le__(self, other: Any) -> bool:
        return self.value <= int(other)

    def __ge__(self, other: Any) -> bool:
        return self.value >= int(other)

    def __eq__(self, other: object) -> bool:
        return self.value == int(other)  # type: ignore[call-overload, no-any-return]

    __hash__ = None  # type: ignore[assignment]

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value


LANGUAGE = {
    "to_tensor": Int32,
    "program_id": lambda axis: Int32(paper.here.number),
    "num_programs": lambda axis: Int32(paper.here.programs),
    "where": lambda condition, yes, no: yes if condition else no,
    "minimum": lambda a, b: Int32(min(int(a), int(b))),
    "maximum": lambda a, b: Int32(max(int(a), int(b))),
}


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Callable[[Call], list[Any]]:
    """The work of each program of a call, as the kernel makes it before it hands it to its partitions."""
    seen: list[Any] = []

    def specialize(partitions: Any, *_: Any) -> None:
        (_, arguments), *_ = partitions
        seen.append(next(one for one in arguments if isinstance(one, schedule.Work)))

    language = {**vars(kernel.gl), **LANGUAGE, "warp_specialize": specialize}
    language["allocate_shared_memory"] = lambda *_: None
    for module in (kernel, schedule):
        monkeypatch.setattr(module, "gl", SimpleNamespace(**language))
    monkeypatch.setattr(kernel, "barriers", lambda *_: None)
    side = SimpleNamespace(dtype=torch.bfloat16)

    def run(call: Call) -> list[Any]:
        seen.clear()
        numbers = [None if number is None else Int32(number) for number in call.numbers]
        for number in range(call.programs):
            paper.here = paper.Program(number, call.programs)
            kernel.attention_forward_hopper(*[side] * 8, None, 1.0, *numbers, None, None, **call.constants)
        return list(seen)

    return run


def call_of(heads: tuple[int, int], M: int, N: int, form: Form, launch: Launch) -> Call:
    q, k = (torch.empty(*heads, length, 128, dtype=torch.bfloat16, device="meta") for length in (M, N))
    return Call.of(q, k, k, q, form, launch)


def walk(works: list[Any]) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Return head, first row, first key and blocks of every tile, and the blocks of each program."""
    tiles, loads = [], []
    for number, work in enumerate(works):
        paper.here = paper.Program(number, len(works))
        tile, load = work.first(), 0
        for i in range(int(work.count())):
            assert int(tile.n) == i
            first, blocks = work.span(tile)
            tiles.append((int(work.head(tile)), int(first), int(work.begin(tile, first)), int(blocks)))
            load += int(blocks)
            tile = work.after(tile)
        assert int(work.blocks()) == load
        loads.append(load)
    return tiles, loads


def assert_seen(first: int, key: int, blocks: int, M: int, N: int, form: Form, launch: Launch) -> None:
    """The blocks hold every key that a row of the tile sees."""
    rows = np.arange(first, min(first + launch.rows, M)) + N - M
    low = np.maximum(rows - form.left, 0) if form.left >= 0 else np.zeros_like(rows)
    high = np.minimum(rows + form.right, N - 1) if form.right >= 0 else np.full_like(rows, N - 1)
    some = low <= high
    assert blocks >= 1
    assert key % launch.block_n == 0
    if some.any():
        assert key <= low[some].min()
        assert high[some].max() < key + blocks * launch.block_n < N + launch.block_n


def test_every_tile_is_computed_once(works: Callable[[Call], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[tuple[int, bool]] = Counter()
    for _ in range(250):
        launch, multiprocessors = random.choice(LAUNCHES), random.choice(PROGRAMS)
        monkeypatch.setattr(choice, "MULTIPROCESSORS", random.choice((1, 2, 3, multiprocessors)))
        monkeypatch.setattr(
            "groundspeed.kernels.attention.hopper.launch.multiprocessors", lambda _, n=multiprocessors: n
        )
        heads = random.randint(1, 5), random.randint(1, 9)
        M = random.choice([random.randint(1, launch.rows * 12), launch.rows * random.randint(1, 12)])
        N = max(1, random.choice([M, random.randint(1, 3000), M + random.randint(-500, 500)]))
        left = random.choice((-1, -1, 0, 1, random.randint(0, 600), 5000))
        form = Form(left=left, right=random.choice((-1, 0, 0, random.randint(1, 500))))
        call = call_of(heads, M, N, form, launch)
        tiles, loads = walk(works(call))
        kinds[call.constants["PAIRED"], call.constants["SHIFTED"]] += 1
        count = -(-M // launch.rows)
        of_two = {(head, count // 2 * launch.rows) for head in range(heads[0] * heads[1])}
        twice = of_two if call.constants["PAIRED"] == schedule.WITHIN_A_HEAD and count % 2 else set()
        found = Counter(tile[:2] for tile in tiles)
        every = {(head, i * launch.rows) for head in range(heads[0] * heads[1]) for i in range(count)}
        assert found == {tile: 1 + (tile in twice) for tile in every}, (heads, M, N, form, launch, multiprocessors)
        for _, first, key, blocks in tiles:
            assert_seen(first, key, blocks, M, N, form, launch)
        if call.constants["SHIFTED"] and launch.persistent:
            lengths = balance.blocks(M, N, form, launch.rows, launch.block_n)
            shift, around = call.numbers[-2:]
            assert shift is not None
            assert around is not None
            assert balance.loads(lengths, heads[0] * heads[1], call.programs, int(shift), int(around)).tolist() == loads
    assert {kind for kind, _ in kinds} == {0, schedule.WITHIN_A_HEAD, schedule.OVER_TWO_HEADS}
    assert any(shifted for _, shifted in kinds)


def test_the_launches_that_are_chosen_are_balanced() -> None:
    odd = Launch.choose(4224, 4224, 128, PLAIN[True], 32)
    assert call_of((1, 32), 4224, 4224, PLAIN[True], odd).constants["PAIRED"] == schedule.OVER_TWO_HEADS
    window = Form(left=4096, right=4096)
    wide = Launch.choose(16384, 16384, 128, window, 16)
    call = call_of((1, 16), 16384, 16384, window, wide)
    assert call.constants["SHIFTED"]
    assert call.numbers[-2:] == balance.shift(16384, 16384, window, wide, 16, 132) != (0, 0)


def test_no_shift_is_sought_where_there_is_nothing_to_gain() -> None:
    """Half a million tiles would take seconds."""
    form = Form(left=4096, right=0)
    assert balance.shift(1 << 20, 1 << 20, form, choice.BALANCED_128, 64, 132) == (0, 0)
