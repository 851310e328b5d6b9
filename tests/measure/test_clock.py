"""When a warm-up is over, which calls are checked, how long an interval is (statistics.md 1 to 3)."""

from __future__ import annotations

import random

import pytest

from groundspeed.measure.clock import MIN_INTERVAL_S, MIN_TICKS, HostClock
from groundspeed.measure.gate import check_this_call
from groundspeed.measure.warmup import MAX_WARMUP, is_stable, warmup_over


def test_a_warm_up_is_stable_when_its_last_two_windows_agree() -> None:
    assert not is_stable([1.0] * 9)
    assert is_stable([1.0] * 10)
    assert is_stable([5.0] * 20 + [1.0] * 10)  # what came before does not count
    assert not is_stable([1.1] * 5 + [1.0] * 5)
    assert is_stable([1.015] * 5 + [1.0] * 5)
    assert not is_stable([1.0] * 5 + [1.1] * 5)


def test_a_spike_does_not_make_a_warm_up_unstable() -> None:
    samples = [1.0] * 10
    samples[3] = samples[8] = 50.0
    assert is_stable(samples)


def test_a_trend_is_not_stable() -> None:
    falling = [2.0 * 0.97**i for i in range(30)]
    assert not any(is_stable(falling[: n + 1]) for n in range(30))


def test_a_warm_up_lasts_its_minimum_and_until_it_is_stable() -> None:
    calm = [1e-3] * 50
    assert warmup_over(calm, 0.049, 0.05) is None
    assert warmup_over(calm, 0.05, 0.05) is True
    wild = [1e-3 * (1 + i % 7) * 1.5**i for i in range(30)]
    assert warmup_over(wild, 0.06, 0.05) is None
    assert warmup_over(wild, MAX_WARMUP * 0.05, 0.05) is None
    assert warmup_over(wild, MAX_WARMUP * 0.05 + 1e-6, 0.05) is False  # given up, and said so


def test_long_work_is_warm_after_three_calls() -> None:
    assert warmup_over([1.0, 0.7], 1.7, 0.05) is None
    assert warmup_over([1.0, 0.7, 0.6], 2.3, 0.05) is None
    assert warmup_over([1.0, 0.7, 0.695], 2.4, 0.05) is True
    assert warmup_over([1.0, 0.7] * 5, 8.5, 0.05) is False


@pytest.mark.parametrize("first_look", [1, 2, 4, 10, 20])
def test_every_contender_is_checked_well_before_the_first_look(first_look: int) -> None:
    """So that a worker lost in the last block before it leaves nobody unchecked."""
    for _ in range(200):
        blocks = range(max(1, first_look // 2))
        assert any(check_this_call(block, False, first_look, 10) for block in blocks)
    assert all(check_this_call(block, False, first_look, 10) for block in range(first_look // 2, 3 * first_look))


def test_nobody_can_know_which_call_is_checked() -> None:
    firsts = [next(b for b in range(10) if check_this_call(b, False, 10, 10)) for _ in range(1000)]
    assert {firsts.count(block) > 130 for block in range(5)} == {True}  # 200 of each, give or take
    later = sum(check_this_call(15, True, 10, 10) for _ in range(2000))
    assert 140 < later < 260  # one in ten
    random.seed(0)
    once = [check_this_call(15, True, 10, 10) for _ in range(64)]
    random.seed(0)
    assert once != [check_this_call(15, True, 10, 10) for _ in range(64)]  # no seed that a contender could set


def test_a5_a_clock_rotates_the_calls_and_returns_the_last_output() -> None:
    called: list[int] = []

    def call(i: int) -> int:
        called.append(i)
        return i

    calls = [lambda i=i: call(i) for i in range(3)]
    timing = HostClock().time(calls, 4, 5)
    assert called == [(4 + i) % 3 for i in range(timing.launches)]
    assert timing.used == tuple(called[-3:])
    assert timing.output == called[-1]
    assert timing.seconds > 0


def test_d6_how_many_calls_there_are_cannot_be_known() -> None:
    counts = {HostClock().time([lambda: None], 0, 5).launches for _ in range(200)}
    assert counts == {5, 6, 7, 8, 9}
    assert {HostClock().time([lambda: None], 0, 1).launches for _ in range(20)} == {1}


def test_a5_the_time_is_that_of_the_calls() -> None:
    clock = HostClock()

    def spin() -> None:
        spent = 0.0
        while spent < 0.002:
            spent += clock.time([lambda: None], 0, 1000).seconds

    timing = clock.time([spin], 0, 3)
    assert timing.seconds > timing.launches * 0.002


def test_an_interval_is_at_least_200_ticks_of_the_clock() -> None:
    clock = HostClock()
    for clock.tick_s in (1e-9, 1e-7, 1e-4, 15.6e-3):
        for estimate_s in (1e-9, 3e-7, 1e-4, 2e-3, 1.0, 30.0):
            launches = clock.launches_for(estimate_s)
            assert launches >= 1
            interval = launches * estimate_s
            assert interval >= MIN_TICKS * clock.tick_s * (1 - 1e-9)
            assert interval >= MIN_INTERVAL_S * (1 - 1e-9)
            assert launches == 1 or (launches - 1) * estimate_s < max(MIN_TICKS * clock.tick_s, MIN_INTERVAL_S)


def test_a_time_of_nothing_asks_for_finitely_many_launches() -> None:
    assert 1 <= HostClock().launches_for(0.0) <= 10**9


def test_the_tick_is_one_that_the_clock_makes() -> None:
    ticks = [HostClock().tick_s for _ in range(3)]
    assert all(1e-9 <= tick < 1e-3 for tick in ticks)
