"""The time budget of a preset: who is slow gets some of what others leave."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundspeed.measure.budget import Budget


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0.1, 100))
def test_all_together_take_at_most_half_as_much_again(wanted: list[float], process_s: float) -> None:
    """Each takes some part of what it may."""
    budget, spent = Budget(process_s, len(wanted)), 0.0
    for number, part in enumerate(wanted):
        spent += part * budget.room_s(spent, len(wanted) - number)
    assert spent <= 1.5 * process_s


def test_who_comes_first_may_take_more_than_a_share() -> None:
    assert Budget(15.0, 24).room_s(0.0, 24) > 3 * 15 / 24


def test_what_the_others_left_is_there_for_the_last() -> None:
    assert Budget(12.0, 12).room_s(1.0, 1) > 3.0


def test_who_comes_after_many_slow_ones_has_its_share() -> None:
    assert Budget(12.0, 12).room_s(11.5, 3) == Budget(12.0, 12).room_s(20.0, 3) == 1.0


def test_who_was_admitted_once_is_admitted_again() -> None:
    budget = Budget(12.0, 12, of="the 48 s of preset quick")
    refused = budget.why_not(("case", "other"), call_s=0.2, blocks=10, spent_s=12.0, left=1)
    assert refused
    assert refused.startswith(
        "a call takes 0.2 s, and the 15 that are needed more than the 1 s that it may take of the 48 s"
    )
    assert [budget.why_not(("case", "mine"), call_s, 10, 12.0, 1) for call_s in (0.05, 0.2)] == [None, None]


def test_without_a_budget_there_is_no_limit() -> None:
    assert Budget(None, 3).room_s(1e9, 3) == inf


@pytest.mark.parametrize("spent_s", [0.0, 6.0])
def test_while_time_is_left_nobody_has_less_than_a_share(spent_s: float) -> None:
    assert Budget(12.0, 12).room_s(spent_s, 6) >= 1.0
