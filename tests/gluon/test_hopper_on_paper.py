"""The Hopper kernel on paper: values, and that no barrier is waited for in vain and no buffer overwritten too early,
over tiles, masks, lengths and loop forms."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import re
from typing import Any

import paper
import pytest
import torch
from gluon_on_paper import instead_of_triton

from attention_oracle import oracle
from groundspeed.kernels.attention.able import HOPPER_SOFTCAP
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import balance, choice
from groundspeed.kernels.attention.hopper.choice import Columns, Launch
from groundspeed.kernels.attention.hopper.launch import Call
from groundspeed.kernels.attention.hopper.listing import most

with instead_of_triton("groundspeed.kernels.hopper", "groundspeed.kernels.attention.hopper"):
    from groundspeed.kernels.attention.hopper import consumer, kernel, loaders

TWO = Launch()
THREE = Launch(consumers=3, places=6, turns=True)
WIDE = Launch(block_n=64, places=3, local_sums=True, split=True)
FORMS = {
    "plain": TWO,
    "flat": dataclasses.replace(TWO, flat=True, places=6),
    "flat and lazy": dataclasses.replace(TWO, flat=True, lazy=True, local_sums=True),
    "ordered and lazy": dataclasses.replace(TWO, ordered=True, local_sums=True, lazy=True),
    "flat and ordered": dataclasses.replace(TWO, flat=True, ordered=True),
    "many places": dataclasses.replace(TWO, stages=4, places=8),
    "one place more": dataclasses.replace(TWO, places=3),
    "three": THREE,
    "three, flat": dataclasses.replace(THREE, flat=True, lazy=True),
    "three, four places": dataclasses.replace(THREE, places=4),
    "wide": WIDE,
    "wide and ordered": dataclasses.replace(WIDE, ordered=True, lazy=True),
    "wide and flat": dataclasses.replace(WIDE, flat=True),
    "one tile each": dataclasses.replace(WIDE, places=2, persistent=False),
    "one": Launch(consumers=1, places=2, local_sums=True),
    "one, narrow and lazy": Launch(consumers=1, block_n=64, places=3, ordered=True, local_sums=True, lazy=True),
    "one, one tile each": Launch(consumers=1, places=1, persistent=False, local_sums=True),
}
RELEASE = pytest.mark.release


def later(*names: str) -> list[Any]:
    """What is tested before a release alone, since others go through the same loops."""
    return [pytest.param(name, marks=RELEASE) for name in names]


LENGTHS = [(1, 1), (64, 64), (128, 512), (333, 333), (300, 100), (100, 300), (640, 640)]


def forward(
    q: Any, k: Any, v: Any, sinks: Any, form: Form, launch: Launch, programs: int, *, with_lse: bool = True
) -> tuple[Any, Any]:
    B, H, M, D = q.shape
    o = torch.full((B, H, M, v.shape[3]), float("nan"), dtype=q.dtype)
    lse = torch.full((B, H, M), float("nan"))
    call = Call.of(q, k, v, o, form, launch)
    sides = [q, k, v, o]
    if random.random() < 0.5:  # batch and head as one dimension
        sides = [x.flatten(0, 1) for x in sides]
    described: list[Any] = [
        paper.Descriptor(x, (*[1] * (x.ndim - 2), *box.block[-2:]))
        for x, box in zip([*sides, *sides], call.boxes, strict=False)
    ]
    described += [None] * (8 - len(described))
    numbers = [paper.Number(n) if isinstance(n, int) else n for n in call.numbers]
    items = call.numbers[5]
    assert isinstance(items, int)
    paper.launch(
        kernel.attention_forward_hopper,
        min(programs, items) if launch.persistent else items,
        *described,
        paper.Pointer(lse) if with_lse else None,
        D**-0.5 * call.unit,
        *numbers,
        None if sinks is None else paper.Pointer(sinks),
        None,
        **call.constants,
    )
    return o, lse


def packed_forward(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, sinks: Any, form: Form, launch: Launch, programs: int
) -> Any:
    """With the tiles in any order: that of the list brings speed alone."""
    o, lse = torch.full_like(q, float("nan")), torch.full((q.shape[1], q.shape[0]), float("nan"))
    longest = int(cu_q.diff().max())
    call = Call.of_packed(q, k, v, o, len(cu_q) - 1, form, launch, longest)
    sides = (q.transpose(0, 1)[None], k.transpose(0, 1)[None], v, o)
    told = [
        [row, a, c, b - a, d - c]
        for (a, b), (c, d) in zip(itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), strict=True)
        for row in range(0, b - a, launch.rows)
    ]
    assert len(told) <= most(len(q), len(cu_q) - 1, launch.rows)
    tiles = torch.zeros(len(told) + 1, 8, dtype=torch.int32)
    tiles[0, 0] = len(told)
    tiles[1:, :5] = torch.tensor(random.sample(told, len(told)))
    paper.launch(
        kernel.attention_forward_hopper,
        programs,
        *(paper.Boxed(x, box) for x, box in zip([*sides, *sides], call.boxes, strict=False)),
        *[None] * (8 - len(call.boxes)),
        paper.Pointer(lse),
        q.shape[2] ** -0.5 * call.unit,
        *(paper.Number(n) if isinstance(n, int) else n for n in call.numbers),
        None if sinks is None else paper.Pointer(sinks),
        paper.Pointer(tiles),
        **call.constants,
    )
    return o, lse


def exact(q: Any, k: Any, v: Any, sinks: Any, form: Form) -> tuple[Any, Any]:
    window = form.left, form.right
    return oracle(q, k, v, False, q.shape[-1] ** -0.5, window_size=window, softcap=form.softcap, sinks=sinks)


def assert_right(
    B: int, H: int, G: int, M: int, N: int, D: int, form: Form | bool, launch: Launch, programs: int
) -> None:
    form = form if isinstance(form, Form) else PLAIN[form]
    q = torch.randn(B, H, M, D).bfloat16()
    k, v = (torch.randn(B, G, N, D).bfloat16() for _ in range(2))
    sinks = torch.randn(H) * 3 if form.sinks else None
    out, lse = forward(q, k, v, sinks, form, launch, programs)
    expected, expected_lse = exact(q, k, v, sinks, form)
    assert (out.double() - expected).abs().max() < 0.05
    seen = expected_lse > float("-inf")
    assert torch.equal(lse > float("-inf"), seen)
    assert (lse[seen].double() - expected_lse[seen]).abs().max() < 1e-4
    assert bool((out[~seen] == 0).all())


@pytest.mark.parametrize("name", ["ordered and lazy", "flat and lazy", "wide and ordered", "one, narrow and lazy"])
def test_a_late_rescaling_is_as_exact_as_one_in_time(name: str) -> None:
    """Where nearly all weight is on one key of the first block, and on one of the third that has 2 to 15 times as much:
    its P is 1 only if the maximum is up to date, else it is rounded."""
    M, N, D = 640, 384, 64
    signs = torch.randint(0, 2, (1, 2, 1, D)) * 2.0 - 1.0
    q = signs * (0.25 + 0.75 * torch.rand(1, 2, M, 1))
    k = -3 * signs.repeat(1, 1, N, 1)
    k[:, :, 5], k[:, :, 300] = 3 * signs[:, :, 0], (3 + 3.9 * math.log(2) / D**0.5) * signs[:, :, 0]
    q, k, v = (x.bfloat16() for x in (q, k, torch.randn(1, 2, N, D)))
    expected, _ = exact(q, k, v, None, PLAIN[False])
    late, in_time = (
        float((forward(q, k, v, None, PLAIN[False], launch, 3)[0].double() - expected).square().mean().sqrt())
        for launch in (FORMS[name], TWO)
    )
    assert late <= 1.1 * in_time


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_values(form: Launch, causal: bool) -> None:
    """Of some of these lengths, drawn anew: all of them in a few runs."""
    for M, N in random.sample(LENGTHS, 2):
        assert_right(1, 4, 2, M, N, 64, causal, form, programs=random.choice((1, 2, 3)))


@pytest.mark.parametrize("causal", [pytest.param(False, marks=RELEASE), True], ids=["full", "causal"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_many_tiles_for_few_programs(form: Launch, causal: bool) -> None:
    assert_right(3, 3, 3, 200, 264, 64, causal, form, programs=2)


@pytest.mark.parametrize("window", [PLAIN[False], PLAIN[True], Form(left=70, right=0, sinks=True)], ids=str)
@pytest.mark.parametrize("launch", FORMS.values(), ids=FORMS)
def test_the_same_without_an_lse_that_nobody_asks_for(launch: Launch, window: Form) -> None:
    q, k, v = (torch.randn(1, 2, 200, 64).bfloat16() for _ in range(3))
    sinks = torch.randn(2) if window.sinks else None
    out, lse = forward(q, k, v, sinks, window, launch, 2, with_lse=False)
    assert torch.equal(out, forward(q, k, v, sinks, window, launch, 2)[0])
    assert lse.isnan().all()


@pytest.mark.parametrize(
    ("D", "columns"),
    [(16, (32, 0)), (32, (32, 0)), (40, (64, 0)), (64, (64, 0)), (72, (64, 16)), (80, (64, 16)), (96, (64, 32)),
     (112, (128, 0)), (136, (128, 16)), (160, (128, 32)), (192, (128, 64)), (200, (256, 0)), (256, (256, 0))],
)  # fmt: skip
def test_head_dimensions(D: int, columns: tuple[int, int]) -> None:
    assert Columns.of(D) == columns
    assert_right(1, 2, 1, 150, 150, D, True, Launch.choose(150, 150, D, PLAIN[True]), programs=2)


@pytest.mark.parametrize("launch", ["plain", "flat and lazy", "wide and ordered", "one"])
@pytest.mark.parametrize(("D", "V"), [(192, 128), (128, 64), (256, 40), (96, 80), (144, 96), (192, 160)])
def test_values_of_fewer_dimensions(D: int, V: int, launch: str) -> None:
    q, k = (torch.randn(1, 2, n, D).bfloat16() for n in (150, 200))
    v = torch.randn(1, 2, 200, V).bfloat16()
    out, lse = forward(q, k, v, None, PLAIN[True], FORMS[launch], 2)
    expected, expected_lse = exact(q, k, v, None, PLAIN[True])
    assert (out.double() - expected).abs().max() < 0.05
    assert (lse.double() - expected_lse).abs().max() < 1e-4


@pytest.mark.parametrize("launch", FORMS.values(), ids=FORMS)
def test_a_rest_of_columns(launch: Launch) -> None:
    """Under each of the loops: of what is rescaled, waited for and stored, there is one more."""
    D = random.choice((80, 96, 192))
    assert_right(1, 2, 1, 333, 400, D, random.choice((False, True)), launch, programs=2)


@pytest.mark.parametrize("form", ["one place more", "three, four places", "wide and flat"])
def test_whatever_comes_late(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of one block each, and copies that take longer than anything else."""
    monkeypatch.setattr(paper, "LATE_S", 0.02)
    for _ in range(4):
        assert_right(1, 4, 2, 300, 60, 64, True, FORMS[form], programs=1)


WINDOWS = {
    "causal": Form(left=70, right=0),
    "of one key": Form(left=0, right=0),
    "both sides": Form(left=37, right=80),
    "left alone": Form(left=100),
    "right alone": Form(right=50),
    "wider than all": Form(left=5000, right=5000),
    "a block and a half": Form(left=192, right=0),
    "soft-cap": Form(right=0, softcap=2.0),
    "soft-cap that hardly is one": Form(right=0, softcap=HOPPER_SOFTCAP),
    "sinks": Form(right=0, sinks=True),
    "sinks alone": Form(sinks=True),
    "all of it": Form(left=130, right=5, softcap=1.5, sinks=True),
}


@pytest.mark.parametrize("launch", ["plain", "ordered and lazy", "wide and flat", "one", *later("flat", "three")])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_soft_caps_and_sinks(window: Form, launch: str) -> None:
    """Each of them with another of these lengths, drawn anew."""
    for M, N in random.sample([(333, 333), (300, 100), (100, 300), (1, 777)], 2):
        assert_right(1, 2, 1, M, N, 64, window, FORMS[launch], programs=random.choice((1, 2, 3)))


@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_as_they_are_launched(window: Form, D: int) -> None:
    assert_right(2, 2, 1, 400, 464, D, window, Launch.choose(400, 464, D, window), programs=3)


@pytest.mark.parametrize("balanced", [False, True], ids=["as they come", "balanced"])
@pytest.mark.parametrize("launch", ["plain", "wide and ordered", "one", *later("flat and lazy", "three")])
@pytest.mark.parametrize("window", [PLAIN[True], Form(left=70, right=0), Form(left=150, right=80)], ids=str)
def test_tiles_of_different_lengths(window: Form, launch: str, balanced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU so small that a program has several: in pairs, those in the middle of two heads too, and each head
    beginning where it is told."""
    monkeypatch.setattr(choice, "MULTIPROCESSORS", 2)
    monkeypatch.setattr(balance, "shift", lambda *_: (1, 1))
    chosen = dataclasses.replace(FORMS[launch], balanced=balanced)
    for tiles, heads, pairs in ((3, 4, 2 if balanced else 0), (3, 3, 0), (4, 3, 1), (9, 2, 2 if balanced else 1)):
        M = chosen.rows * tiles - random.randrange(chosen.rows)
        constants = chosen.constants(M, M, 64, window, heads)
        assert constants["PAIRED"] == (0 if window.left >= 0 else pairs)
        assert constants["SHIFTED"] == (balanced and window.left >= 0)
        if tiles < 9 or launch == "plain":  # which takes a while
            assert_right(1, heads, 1, M, M, 64, window, chosen, programs=random.choice((2, 3)))


def test_a_balanced_launch_has_less_for_whoever_has_most() -> None:
    """16 heads of 16,384 tokens that see 4,096 keys: a program would have tiles of the middle alone, or of an end."""
    for window, share in ((Form(left=4096, right=4096), 0.88), (Form(left=4096, right=0), 0.91)):
        shift, around = balance.shift(16384, 16384, window, TWO, 16, 132)
        lengths = balance.blocks(16384, 16384, window, TWO.rows, TWO.block_n)
        before, after = (balance.loads(lengths, 16, 132, *how).max() for how in ((0, 0), (shift, around)))
        assert after < share * before
        assert around * shift < len(lengths)  # what the kernel takes off once


PACKED = {
    "one": [(70, 70)],
    "full tiles": [(128, 128), (256, 256), (64, 128)],
    "odd": [(5, 300), (200, 17), (1, 1), (333, 333)],
    "nothing of some": [(0, 9), (33, 0), (0, 0), (130, 65)],
}


@pytest.mark.parametrize("launch", ["plain", "one, narrow and lazy", *later("wide and flat", "three")])
@pytest.mark.parametrize("window", ["both sides", "all of it", "full", "causal mask"])
@pytest.mark.parametrize("lengths", PACKED.values(), ids=PACKED)
def test_packed_sequences(lengths: list[tuple[int, int]], window: str, launch: str) -> None:
    """What is not finite in one of them, and what lies behind the last, is no other's."""
    form = {**WINDOWS, "full": PLAIN[False], "causal mask": PLAIN[True]}[window]
    D = random.choice((64, 40, 80))
    cu_q, cu_k = (torch.tensor([0, *(one[side] for one in lengths)]).cumsum(0).int() for side in (0, 1))
    q = torch.randn(int(cu_q[-1]) + 9, 4, D).bfloat16()
    k, v = (torch.randn(int(cu_k[-1]) + 9, 2, D).bfloat16() for _ in range(2))
    spoilt = random.randrange(len(lengths) + 1)
    begin, end = [*cu_k.tolist(), len(k)][spoilt : spoilt + 2]
    k[begin:end], v[begin:end] = float("nan"), float("inf")
    sinks = torch.randn(4) * 3 if form.sinks else None
    out, lse = packed_forward(q, k, v, cu_q, cu_k, sinks, form, FORMS[launch], random.choice((1, 2, 5)))
    assert out[int(cu_q[-1]) :].isnan().all()
    assert lse[:, int(cu_q[-1]) :].isnan().all()
    for i, (a, b) in enumerate(itertools.pairwise(cu_q.tolist())):
        c, d = cu_k[i : i + 2].tolist()
        if i == spoilt:
            continue
        one = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
        expected, expected_lse = exact(*one, sinks, form)
        assert torch.allclose(out[a:b].double(), expected[0].transpose(0, 1), atol=0.05)
        assert torch.allclose(lse[:, a:b].double(), expected_lse[0], atol=1e-4)


class TestPaper:
    """It finds what it is for."""

    def fails(self, form: str = "plain") -> BaseException:
        try:
            for _ in range(5):
                assert_right(1, 2, 2, 640, 640, 64, False, FORMS[form], programs=1)
        except (paper.Broken, AssertionError) as found:
            return found
        pytest.fail("nothing was found")

    def test_a_buffer_that_is_released_too_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def finish(out: Any, rest: Any, n: int, more: bool, pipe: Any, form: Any) -> Any:
            pipe.k_free.index(n % form.STAGES).arrive()
            paper.time.sleep(0.01)
            return consumer._awaited(out, rest, form)

        monkeypatch.setattr(consumer, "_finish", finish)
        assert "overwritten" in str(self.fails())

    def test_what_was_written_without_a_fence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consumer, "fence_async_shared", lambda: None)
        assert "fence" in str(self.fails())

    def test_a_release_that_never_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paper, "PATIENCE_S", 0.5)
        monkeypatch.setattr(consumer, "_finish", lambda out, rest, *others: consumer._awaited(out, rest, others[-1]))
        found = str(self.fails())
        assert "waits for ever" in found or "another partition" in found

    def test_a_key_that_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel.Ring, "wait", lambda self, n, pred=True: None)
        self.fails()

    def test_a_product_that_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wait = consumer.warpgroup_mma_wait
        monkeypatch.setattr(consumer, "warpgroup_mma_wait", lambda pending, deps: wait(7, deps=deps))
        assert "under way" in str(self.fails())

    def test_a_turn_that_is_passed_on_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pass_turn = consumer.pass_turn
        monkeypatch.setattr(consumer, "pass_turn", lambda C: (pass_turn(C), pass_turn(C)))
        assert "twice" in str(self.fails("three"))

    def test_a_turn_that_nobody_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consumer, "await_turn", lambda C: None)
        found = str(self.fails("three"))
        assert "twice" in found or "in vain" in found

    def test_a_store_that_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loaders.tma, "store_wait", lambda pending: None)
        monkeypatch.setattr(paper, "LATE_S", 0.02)
        assert "still reads" in str(self.fails("one place more"))


@pytest.mark.parametrize("seen", ["gt", "le"])
@pytest.mark.parametrize("count", [32, 64])
def test_what_is_hidden_is_what_a_row_does_not_see(count: int, seen: str) -> None:
    """The text of it, against how the columns of two rows lie in the registers of four threads."""
    text = consumer._hiding(count, seen)
    found = re.findall(rf"setp\.{seen}\.s32 p, (a|b), (\d+);\nselp\.f32 \$(\d+), \$(\d+), 0fFF800000, p;", text)
    assert len(found) == count
    for place in range(4):
        columns: dict[str, set[int]] = {"a": set(), "b": set()}
        for row, column, to, source in found:
            assert to == source
            assert row == ("a", "b")[int(to) // 2 % 2]
            columns[row].add(int(column) + 2 * place)
        assert columns["a"] == columns["b"] == {8 * i + 2 * place + j for i in range(count // 4) for j in range(2)}
    assert f"sub.s32 a, ${2 * count}, place;\nsub.s32 b, ${2 * count + 2}, place;" in text
    assert "%laneid;\nand.b32 place, place, 3;\nshl.b32 place, place, 1;" in text


@pytest.mark.parametrize("count", [32, 64])
def test_what_is_rescaled_is_multiplied_by_what_belongs_to_its_row(count: int) -> None:
    text = consumer._lazily(count)
    found = re.findall(r"mul\.f32 \$(\d+), \$(\d+), \$(\d+);", text)
    assert [tuple(map(int, one)) for one in found] == [(i, i, 2 * count + i) for i in range(count)]
    assert f"setp.neu.f32 a, ${2 * count}, 0f3F800000;" in text
    assert f"setp.neu.f32 b, ${2 * count + 2}, 0f3F800000;" in text
    assert text.index("vote.sync.any") < text.index("@!a bra DONE;") < text.index("mul.f32")
