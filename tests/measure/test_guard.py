"""D6: what the laboratory calls is what it was before a contender's file was imported, or it is said and put back."""

from __future__ import annotations

import functools
import gc
import secrets
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from groundspeed.case import Case, Contender
from groundspeed.kernels.attention import reference
from groundspeed.measure import inputs as inputs_
from groundspeed.measure.gate import Incorrect
from groundspeed.measure.guard import Guard
from groundspeed.measure.inputs import SETS, Inputs
from groundspeed.measure.turn import Turn
from groundspeed.measure.unseen import combinations
from groundspeed.suites.attention import cases
from groundspeed.suites.inputs import random_tensors

SMALL = cases.shape_cases("H=1,S=8,D=16,causal=0", ("fp32",))[0]


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    try:
        made.check()  # whatever a test left
    except Incorrect:
        pass


def other(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("nobody calls this")


@pytest.mark.parametrize(
    ("owner", "name"),
    [(torch, "equal"), (time, "perf_counter_ns"), (secrets, "randbelow"), (reference, "attention"), (Case, "names")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_replaced_is_named_and_put_back(guard: Guard, owner: Any, name: str) -> None:
    guard.check()
    before = getattr(owner, name)
    setattr(owner, name, other)
    with pytest.raises(Incorrect, match=f"replaced .*{name}, which the laboratory calls"):
        guard.check()
    assert getattr(owner, name) is before
    guard.check()


def test_a_method_that_was_inherited_is_replaced_too(guard: Guard) -> None:
    torch.Tensor.__sub__ = other  # type: ignore[method-assign]
    with pytest.raises(Incorrect, match=r"replaced torch\.Tensor\.__sub__"):
        guard.check()
    assert float(torch.ones(1) - 1) == 0


def test_a_function_with_other_code_is_another(guard: Guard) -> None:
    before = reference.attention.__code__
    reference.attention.__code__ = (lambda *a, **k: None).__code__
    with pytest.raises(Incorrect, match=r"reference\.attention"):
        guard.check()
    assert reference.attention.__code__ is before


@pytest.mark.parametrize("part", ["build", "around", "supports", "launches"])
def test_a_rival_that_is_built_otherwise(guard: Guard, part: str) -> None:
    rival = Contender("attention", "rival", "", lambda case: other)
    before = getattr(rival, part)
    guard.watch_contenders([rival])
    object.__setattr__(rival, part, other)
    with pytest.raises(Incorrect, match=f"replaced {part} of rival"):
        guard.check()
    assert getattr(rival, part) is before


def test_what_is_new_and_hides_nothing_is_nobodys_business(guard: Guard) -> None:
    torch.groundspeed_test = other  # type: ignore[attr-defined]
    try:
        guard.check()
    finally:
        del torch.groundspeed_test  # type: ignore[attr-defined]


def test_a_library_of_ours_may_replace_what_it_likes(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "allclose", other)
    guard.renew()
    guard.check()
    monkeypatch.undo()
    guard.renew()


class TestInputs:
    @pytest.fixture
    def inputs(self) -> Inputs:
        return Inputs.make(SMALL, (1, 2, 3), "cpu")

    def test_small_ones_are_many(self, inputs: Inputs) -> None:
        assert len(inputs) == SETS[0][1]
        large = cases.shape_cases("B=2,H=4,S=1024,D=128,causal=0", ("fp32",))[0]
        assert len(Inputs.make(large, (1, 2, 3), "cpu")) == 3

    def test_every_combination_of_a_block_has_a_part_of_the_set_that_was_renewed(self, inputs: Inputs) -> None:
        inputs.unseen.take(1, 0)
        fresh = inputs.unseen.next
        before = [tensor.clone() for tensor in inputs.sets[fresh]]
        inputs.unseen.start("default")
        new = inputs.unseen.take(1, 16**3 - 15**3 - 1) + inputs.unseen.left
        assert any(
            not torch.equal(a, b) for a, b in zip(before, inputs.sets[fresh], strict=True)
        )  # one may stay, by chance
        assert len(set(new)) == len(new) == 16**3 - 15**3
        assert all(fresh in combination for combination in new)
        inputs.check_all()

    @pytest.mark.parametrize(
        "harm",
        [
            lambda t: t.mul_(2),
            lambda t: t.requires_grad_(),
            lambda t: t.set_(t.clone()),
            lambda t: t.transpose_(-1, -2),
        ],
        ids=["in place", "requires_grad", "elsewhere", "turned"],
    )
    def test_what_shows_a_change_is_found_without_being_used(
        self, inputs: Inputs, harm: Callable[[torch.Tensor], Any]
    ) -> None:
        harm(inputs.sets[3][1])
        with pytest.raises(Incorrect, match="changed its input k"):
            inputs.glance([(0, 0, 0)])
        inputs.restore()
        inputs.check_all()

    def test_each_combination_is_handed_out_once(self, inputs: Inputs) -> None:
        inputs.unseen.start("default")
        some = [inputs.unseen.take(7, 14 - 7 * i) for i in range(3)]
        assert [len(one) for one in some] == [7, 7, 7]
        assert len({one for taken in some for one in taken}) == 21

    @pytest.mark.parametrize(
        ("drawn", "size", "wanted", "got", "sets"),
        [(1, 1000, 60, 60, 60), (1, 1 << 18, 60, 6, 6), (2, 1000, 800, 800, 29), (2, 1000, 31, 31, 16)],
        ids=["more sets", "too large for more", "combined", "one renewed"],
    )
    def test_c4_a_sample_has_no_more_calls_than_inputs_that_no_call_has_seen(
        self, drawn: int, size: int, wanted: int, got: int, sets: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("groundspeed.measure.unseen.RENEW_S", 60)
        names = ("a", "b")[:drawn]
        case = replace(
            SMALL,
            inputs=lambda seed, device: random_tensors([(size,)] * drawn, "bf16", seed, device),
            input_names=names,
        )
        made = Inputs.make(case, (1, 2, 3), "cpu")
        seen: set[tuple[bytes, ...]] = set()
        for _ in range(3):
            made.unseen.start("default")
            for _ in range(2):
                new = made.unseen.take(wanted, 0)
                contents = {tuple(x.view(torch.uint8).numpy().tobytes() for x in made.of(one)) for one in new}
                assert len(contents) == len(new) == got
                assert len(contents & seen) <= (0 if drawn == 1 else 0.05 * got)  # rotated back
                seen |= contents
        assert len(made) == sets
        made.check_all()

    def test_inputs_that_take_long_to_make_are_renewed_one_at_a_time(
        self, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("groundspeed.measure.unseen.RENEW_S", 0.0)
        assert len(inputs.unseen.take(2000, 0)) == 16**3 - 15**3

    def test_of_very_many_some_are_drawn(self) -> None:
        """Nine inputs of sixteen sets have 30 billion combinations with the newest, which nobody lists."""
        found = combinations([3, 4], 16, 9, 2, 500)
        assert len({*found}) == 500
        assert all({3, 4} & {*one[:9]} and one[9:] == (0, 0) and {*one} <= {*range(16)} for one in found)
        assert len({tuple(place for place in range(9) if one[place] == 3) for one in found}) > 20
        assert len(combinations([0], 12, 4, 0, 10**6)) == (12**4 - 11**4) // 2

    @pytest.mark.parametrize("at_once", [1 << 24, 0], ids=["together", "one by one"])
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_all_are_compared_whoever_was_used(
        self, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, at_once: int, place: int
    ) -> None:
        """Also where no mark of a tensor shows it, and after they were put back elsewhere."""
        monkeypatch.setattr("groundspeed.measure.unchanged.AT_ONCE", at_once)
        for _ in range(2):
            inputs.check_all()
            inputs.sets[-1][place].data.view(-1)[-1] += 1
            with pytest.raises(Incorrect, match=f"changed its input {'qkv'[place]}"):
                inputs.check_all()
            inputs.sets[-1][place].data = torch.zeros(1)
            assert inputs.restore()

    @pytest.fixture
    def packed(self) -> Inputs:
        case = cases.shape_cases("H=1,D=16,lengths=20000+257+1,causal=0", ("bf16",))[0]
        return Inputs.make(case, (1, 2, 3), "cpu")

    def test_what_is_fixed_makes_no_other_combination(self, packed: Inputs) -> None:
        """Of the same q, k and v a result that was kept would be right."""
        count = len(packed)
        new = packed.unseen.take(count**3 - (count - 1) ** 3, 0)
        assert len({combination[:3] for combination in new}) == len(new) == count**3 - (count - 1) ** 3
        assert {combination[3] for combination in (*new, *packed.diagonal())} == {0}
        assert [one[-1].tolist() for one in packed.sets] == [[0, 20000, 20257, 20258]] * count

    def test_a_fixed_input_is_not_held_back(self, packed: Inputs) -> None:
        places = {Turn(packed.case, packed, packed.diagonal(), lambda: True).place for _ in range(100)}
        assert places == {0, 1, 2}

    @pytest.mark.parametrize("change", [False, True])
    def test_a_changed_fixed_input_is_found_after_its_set_was_renewed_too(self, packed: Inputs, change: bool) -> None:
        """Where no mark of the tensor shows it."""
        packed.sets[0][3].data[1] += int(change)
        for number in range(len(packed)):
            packed.renew(number)
        if change:
            with pytest.raises(Incorrect, match="changed its input cu_seqlens"):
                packed.check_all()
            packed.restore()
        packed.check_all()

    @pytest.mark.parametrize("thorough", [True, False])
    def test_of_a_large_input_a_part_is_held_back_where_nobody_brought_anything_along(
        self, thorough: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(inputs_, "LARGE_KNOWN", 1 << 10)
        case = cases.shape_cases("S=64,H=1,D=64,causal=0", ("fp32",))[0]
        made = Inputs.make(case, (1, 2, 3), "cpu", thorough=thorough)
        one = made.diagonal()[1]
        handed_in = made.of(one)[1].clone()
        made.hold_back([one], 1)
        kept = (made.of(one)[1] == handed_in).all(dim=(0, 1, 2))
        assert kept.tolist() == [False] * 64 if thorough else [False] * 16 + [True] * 48
        held, before = made.of(one)[1].clone(), made.held_back(one, 1)[1]
        assert torch.equal(before, held)
        made.give([one], 1)
        assert torch.equal(made.of(one)[1], handed_in)
        made.check_all()

    def test_a_whole_number_among_16_bit_floats_is_compared_as_it_is(self, packed: Inputs) -> None:
        """In BF16 these two are the same."""
        packed.glance(packed.diagonal())
        packed.sets[0][3].data[1] += 1
        with pytest.raises(Incorrect, match="changed its input cu_seqlens"):
            packed.glance([packed.diagonal()[2]])
        packed.restore()
        packed.glance(packed.diagonal())


def test_what_was_built_for_a_case_is_let_go_with_it(guard: Guard) -> None:
    """A model that a function encloses would stay on the device for as long as the worker lives."""
    weights = torch.ones(4)
    gone = weakref.ref(weights)

    def build() -> Callable[[], Any]:
        kept = torch.ones(8)
        inner = functools.partial(lambda: kept)
        return lambda: inner()

    def of_weights(weights: Any) -> Callable[[], Any]:
        return lambda: weights

    guard.watch("of a case", of_weights(weights), of_case=True)
    function = build()
    guard.watch("of a case too", function, of_case=True)
    del weights
    assert gone() is not None, "what is called is watched"
    guard.let_go()
    gc.collect()
    assert gone() is None
    another = build()  # whatever its place in memory was before
    guard.watch("of the next case", another, of_case=True)
    another.__defaults__ = (1,)
    with pytest.raises(Incorrect, match="replaced of the next case"):
        guard.check()
