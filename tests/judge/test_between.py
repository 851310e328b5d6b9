"""C2: a run as a whole may be off by more than its processes show, and two bundles of the same code are no change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from groundspeed.evidence.record import Record
from groundspeed.judge.apart import of_bundles
from groundspeed.judge.between import alone, between
from groundspeed.judge.floors import spread_floor
from groundspeed.judge.judgement import Judgement, judge
from records import constant, run

PAIRS = 80
RATE = 0.05
"""Of pairs of bundles in which anything has a false verdict."""


@cache
def declared(anchors: int, compared: int, cases: int) -> Record:
    names = [f"anchor-{i}" for i in range(anchors)] + [f"mine-{i}" for i in range(compared)]
    shapes = [f"B={1 + i},S=64,causal=0" for i in range(cases)]
    times = constant(dict.fromkeys(names, 1e-3))
    return run(times, names, shapes=shapes, judged=names[anchors:], looks=(10,), half_width=0.025)


@dataclass(frozen=True)
class Machine:
    """Standard deviations of log times. Those of runs come from no process and are in no interval."""

    run: float = 0.0
    """Of a run, for everybody alike."""
    contender: float = 0.0
    """Of a run, for each contender by itself."""
    case: float = 0.0
    """Of a run, for each contender on each case by itself."""
    process: float = 0.02
    process_contender: float = 0.005
    block: float = 0.01
    rare: float = 0.0
    """How much slower one process of eight is, for mine-0, on each case by itself."""

    def bundle(self, g: np.random.Generator, record: Record, slower: Mapping[str, float] | None = None) -> Judgement:
        columns = record.samples
        process, case, contender = (columns[key].astype(int) for key in ("process", "case", "contender"))
        shape = (record.declared_processes, len(record.cases), len(record.contenders))
        whole = self.run * g.standard_normal() + self.contender * g.standard_normal(shape[2])
        logs = math.log(1e-3) + whole + self.case * g.standard_normal(shape[1:])
        logs = logs + self.process * g.standard_normal((*shape[:2], 1))
        logs = logs + self.process_contender * g.standard_normal(shape)
        if self.rare:
            logs[:, :, record.contender_index["mine-0"]] += self.rare * (g.random(shape[:2]) < 1 / 8)
        for name, factor in (slower or {}).items():
            logs[:, :, record.contender_index[name]] += math.log(factor)
        blocks = self.block * g.standard_normal(len(process))
        return judge(replace(record, samples={**columns, "seconds": np.exp(logs[process, case, contender] + blocks)}))


BUSY = Machine(run=0.15, contender=0.1, case=0.05, process=0.2, process_contender=0.06)
"""As twelve bundles of a CPU that others used showed it."""


@pytest.mark.parametrize(
    ("machine", "anchors", "compared", "cases"),
    [
        (BUSY, 1, 1, 4),
        (Machine(contender=0.2), 1, 1, 2),
        (Machine(contender=0.05), 3, 1, 2),
        (Machine(contender=0.05), 2, 2, 2),
        (Machine(case=0.05), 1, 1, 1),
        (Machine(case=0.02), 3, 1, 4),
    ],
)
def test_of_bundles_of_the_same_code_at_most_the_stated_share_has_a_verdict(
    machine: Machine, anchors: int, compared: int, cases: int
) -> None:
    """Without the allowance for runs it is half of them and more."""
    g, record = np.random.default_rng(1), declared(anchors, compared, cases)
    bundles = [machine.bundle(g, record) for _ in range(PAIRS + 1)]
    results = [of_bundles(base, head) for base, head in pairwise(bundles)]
    false = sum(bool(result.tally["REGRESSED"] or result.tally["IMPROVED"]) for result in results)
    assert false <= stats.binom.ppf(0.999, PAIRS, RATE)


@pytest.mark.parametrize("anchors", [1, 3])
def test_where_what_is_the_same_keeps_still_twice_the_time_is_found(anchors: int) -> None:
    g, record, steady = np.random.default_rng(2), declared(anchors, 1, 2), Machine(contender=0.005, process=0.005)
    results = [of_bundles(steady.bundle(g, record), steady.bundle(g, record, {"mine-0": 2.0})) for _ in range(10)]
    assert [dict(result.tally) for result in results] == [{"REGRESSED": 2}] * 10


def test_an_anchor_that_moved_over_the_floor_leaves_no_verdict_and_rules_nothing_out() -> None:
    """Head is no slower by the clock, and the anchor ran 1.8 times as fast: which of the two tells is not known."""
    g, record, still = np.random.default_rng(3), declared(1, 1, 2), Machine(process=0.005)
    result = of_bundles(still.bundle(g, record, {"anchor-0": 1.8}), still.bundle(g, record))
    assert {change.word for change in result.changes} == {"UNCLEAR"}
    assert "the anchor, which did not change, moved by more than the floor" in result.changes[0].reason
    assert result.overall == "UNCLEAR"
    assert all(change.lowest is None for change in result.changes)
    assert "unchanged code may differ by over 100% from run to run" in result.notes[1]


def test_same_allows_for_the_runs_too() -> None:
    g, record = np.random.default_rng(4), declared(3, 1, 2)
    quiet, moving = Machine(process=0.0005, process_contender=0.0, block=0.001), Machine(contender=0.005)
    assert of_bundles(quiet.bundle(g, record), quiet.bundle(g, record)).overall == "NO REGRESSION"
    result = of_bundles(moving.bundle(g, record), moving.bundle(g, record))
    assert result.overall == "UNCLEAR"


def test_the_spread_of_both_runs_and_what_lies_between_them_come_off_the_interval() -> None:
    g, record, machine = np.random.default_rng(5), declared(2, 1, 3), Machine(contender=0.004, block=0.0)
    base, head = machine.bundle(g, record), machine.bundle(g, record, {"mine-0": 1.5})
    result = of_bundles(base, head)
    intervals = [change.interval for change in result.changes if change.interval]
    spread = spread_floor(intervals, 4)
    runs = between(base.record, head.record, list(zip(base.cases, head.cases, strict=True)), ["mine-0"])
    assert spread is not None
    assert len(runs.moves) == 2
    for change, theta in zip(result.changes, intervals, strict=True):
        assert change.lowest == pytest.approx(theta.low - spread.value - runs.allowance(change.case))


def test_more_that_is_the_same_tells_more() -> None:
    moves = {"a": 0.01, "b": -0.01}
    assert alone([moves], 1, 2) == pytest.approx(0.127, rel=0.01)  # one value of what a run does: t with 1 df
    assert alone([moves] * 4, 1, 2) == pytest.approx(0.0278, rel=0.01)
    assert alone([moves] * 4, 3, 2) > alone([moves] * 4, 1, 2)
    assert alone([], 1, 2) == math.inf
