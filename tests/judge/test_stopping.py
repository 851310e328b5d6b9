"""The stopping rule: on width at the looks, never on significance (statistics.md 8)."""

from __future__ import annotations

import math

import pytest

from fakes import noisy, protocol
from groundspeed.judge.statistics import trimmed
from groundspeed.judge.stopping import log_ratios, should_stop
from records import MEANS, run

PAIR = [("ours", "base")]


def times(blocks: int, spread: float, ratio: float = 1.0) -> dict[str, dict[int, float]]:
    """A pair whose log ratio alternates by ± spread."""
    return {
        "base": {block: 1e-3 * ratio * math.exp(spread * (-1) ** block) for block in range(blocks)},
        "ours": dict.fromkeys(range(blocks), 1e-3),
    }


def test_a_log_ratio_above_zero_is_faster() -> None:
    assert log_ratios({"base": {0: 2.0}, "ours": {0: 1.0}}, "ours", "base") == [pytest.approx(math.log(2))]


def test_only_blocks_in_which_both_were_timed_count_and_in_their_order() -> None:
    seconds = {"base": {3: 4.0, 1: 2.0, 0: 1.0}, "ours": {0: 1.0, 2: 1.0, 3: 1.0}}
    assert log_ratios(seconds, "ours", "base") == pytest.approx([0.0, math.log(4)])
    assert log_ratios(seconds, "nobody", "base") == []


@pytest.mark.parametrize("blocks", [0, 1, 9, 11, 39, 41])
def test_between_the_looks_nothing_stops_it(blocks: int) -> None:
    assert should_stop(protocol(), blocks, times(blocks, 0.0), [], math.inf) is None


@pytest.mark.parametrize("blocks", [10, 20, 40])
def test_narrow_enough(blocks: int) -> None:
    narrow = times(blocks, 0.001)
    assert should_stop(protocol(), blocks, narrow, PAIR, 0.0) == "width"


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_the_width_is_the_yuen_half_width_of_the_preset(factor: float) -> None:
    seconds = times(10, 0.02)
    half = trimmed(log_ratios(seconds, "ours", "base")).half_width()
    stopped = should_stop(protocol(half_width=half * factor), 10, seconds, PAIR, 0.0)
    assert stopped == (None if factor < 1 else "width")


def test_a_significant_difference_does_not_stop_it() -> None:
    """Stopping on significance gives 17% of false positives."""
    assert should_stop(protocol(), 10, times(10, 0.1, ratio=100.0), PAIR, 0.0) is None


def test_every_judged_pair_must_be_narrow() -> None:
    seconds = {**times(10, 0.001), "wild": {block: 1e-3 * math.exp(0.2 * (-1) ** block) for block in range(10)}}
    assert should_stop(protocol(), 10, seconds, PAIR, 0.0) == "width"
    assert should_stop(protocol(), 10, seconds, [*PAIR, ("wild", "base")], 0.0) is None


def test_the_last_look_ends_it_wide_or_not() -> None:
    assert should_stop(protocol(), 20, times(20, 0.2), PAIR, 0.0) is None
    assert should_stop(protocol(), 40, times(40, 0.2), PAIR, 0.0) == "last look"


def test_the_budget_is_shared_by_the_processes() -> None:
    """60 s over 4 processes are 15 s for each, looked at with the blocks."""
    limited = protocol(budget_s=60.0)
    wide = times(10, 0.2)
    assert should_stop(limited, 10, wide, PAIR, 15.0) is None
    assert should_stop(limited, 10, wide, PAIR, 15.1) == "budget"
    assert should_stop(limited, 11, wide, PAIR, 99.0) is None
    assert should_stop(protocol(budget_s=None), 10, wide, PAIR, 1e9) is None


def test_without_a_pair_the_first_look_is_enough() -> None:
    assert should_stop(protocol(), 10, times(10, 0.2), [], 0.0) == "no pair left"


@pytest.mark.parametrize("common", [0, 1])
def test_a_pair_with_hardly_a_common_block_is_not_narrow(common: int) -> None:
    seconds = {"base": dict.fromkeys(range(10), 1.0), "ours": dict.fromkeys(range(common), 1.0)}
    assert should_stop(protocol(), 10, seconds, PAIR, 0.0) is None


@pytest.mark.parametrize(("noise", "blocks"), [(0.01, {10}), (0.05, {10, 20, 40})])
def test_a_run_stops_at_the_looks_alone(noise: float, blocks: set[int]) -> None:
    record = run(noisy(MEANS, noise), list(MEANS))
    assert {stop.blocks for stop in record.stops} <= blocks
    assert {stop.why for stop in record.stops} <= {"width", "last look"}
