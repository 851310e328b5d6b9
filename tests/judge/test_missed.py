"""C2: of processes that are rarely slow one of two bundles may have none; the cases beside it tell of them."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from test_between import Machine, declared

from groundspeed.evidence.record import Record
from groundspeed.judge.apart import of_bundles
from groundspeed.judge.floors import Outliers, missed_share
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.missed import Missed, missed_by
from groundspeed.judge.regression import Regression

QUIET = Machine(process=0.003, process_contender=0.001, block=0.003)
RARE = replace(QUIET, rare=0.5)
NEITHER = Missed(None, None)
KIND = ("mine", "torch", "default", "long")


def without_floor(base: Judgement, head: Judgement) -> Regression:
    with mock.patch("groundspeed.judge.apart.missed_by", lambda kinds, *_: [NEITHER] * len(kinds)):
        return of_bundles(base, head)


def differs(result: Regression) -> bool:
    return bool(result.tally["REGRESSED"] or result.tally["IMPROVED"])


def one_slow_process(judgement: Judgement, case: int) -> Judgement:
    """Its first process takes half as long again, for mine-0 on this case."""
    columns, mine = judgement.record.samples, judgement.record.contender_index["mine-0"]
    where = (columns["process"] == 0) & (columns["case"] == case) & (columns["contender"] == mine)
    return judge(
        replace(judgement.record, samples={**columns, "seconds": np.where(where, 1.5, 1.0) * columns["seconds"]})
    )


def test_each_run_tells_of_its_own_on_the_side_that_matters() -> None:
    base, head = Outliers(0.3, 0.02, 0.0, 8), Outliers(0.1, 0.04, 0.0, 4)
    improved = math.hypot(missed_share(8) * 0.02, missed_share(4) * 0.1)
    regressed = math.hypot(missed_share(8) * 0.3, missed_share(4) * 0.04)
    assert Missed(base, head).floor(0.1).value == pytest.approx(improved)
    assert Missed(base, head).floor(-0.1).value == pytest.approx(regressed)
    assert Missed(None, head).floor(0.1).value == pytest.approx(missed_share(4) * 0.1)
    assert NEITHER.floor(0.1).value == NEITHER.hidden.value == 0


def test_of_one_case_nothing_lies_beside_it() -> None:
    assert missed_by([KIND], [[0.0, 0.0, -0.5]], [[0.0, 0.0, 0.0]], (3, 3)) == [NEITHER]


def test_with_one_beside_it_its_own_slow_process_counts_too() -> None:
    quiet, slow = [0.0, 0.0, 0.0], [0.0, 0.0, -0.5]
    first, second = missed_by([KIND] * 2, [quiet, slow], [quiet, quiet], (3, 3))
    assert first == second
    assert second.base
    assert second.base.below == pytest.approx(0.5)


@pytest.fixture(scope="module")
def twelve() -> Record:
    return declared(4, 1, 12)


def test_where_the_means_are_equal_and_one_bundle_missed_its_slow_processes_there_is_no_verdict(twelve: Record) -> None:
    """Head is always as much slower as base is by its slow processes in the mean."""
    g = np.random.default_rng(1)
    pairs = [(RARE.bundle(g, twelve), QUIET.bundle(g, twelve, {"mine-0": math.exp(0.5 / 8)})) for _ in range(25)]
    assert sum(differs(without_floor(*pair)) for pair in pairs) >= 5
    assert sum(differs(of_bundles(*pair)) for pair in pairs) == 0


def test_a_slow_down_on_quiet_noise_is_found_as_before(twelve: Record) -> None:
    g = np.random.default_rng(2)
    pairs = [(QUIET.bundle(g, twelve), QUIET.bundle(g, twelve, {"mine-0": 1.05})) for _ in range(5)]
    assert [of_bundles(*pair).tally["REGRESSED"] for pair in pairs] == [12] * 5


@pytest.mark.parametrize("slow_in_head", [False, True])
def test_beside_a_process_that_is_far_off_nothing_is_the_same(slow_in_head: bool) -> None:
    g, record = np.random.default_rng(4), declared(3, 1, 4)
    still = Machine(process=0.0005, process_contender=0.0, block=0.001)
    base, head = still.bundle(g, record), still.bundle(g, record)
    base, head = (base, one_slow_process(head, 0)) if slow_in_head else (one_slow_process(base, 0), head)
    assert without_floor(base, head).tally["SAME"] == 3
    result = of_bundles(base, head)
    assert not result.tally["SAME"]
    assert "outlying processes in similar comparisons give an outlier floor" in result.changes[1].reason
    assert all(change.may_hide for change in result.changes)
