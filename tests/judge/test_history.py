"""C2: runs in order, lines through them, and what is a line of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from groundspeed.errors import BadInput
from groundspeed.evidence.protocol import NAME, THIRD_NAME
from groundspeed.evidence.revision import INSTALLED, KEY
from groundspeed.judge import history
from groundspeed.judge.changes import find_changes
from groundspeed.judge.floors import Floor
from groundspeed.judge.history import Figure, Run, from_json, in_order, run_of, to_json
from groundspeed.judge.judgement import judge
from groundspeed.judge.lines import Line, Point, lines
from groundspeed.judge.statistics import t_quantile
from histories import MEANS, history_run, record_of


def scaled(factor: float, *names: str) -> dict[str, float]:
    return {name: mean * (factor if name in (names or MEANS) else 1) for name, mean in MEANS.items()}


def line(runs: list[Run], kind: str, contender: str = "sdpa-flash") -> Line:
    found = [one for one in lines(runs) if one.kind == kind and one.latest.contender == contender]
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def drifted() -> list[Run]:
    """From the seventh day on all is 10% slower, and from the tenth the contender twice as fast."""
    means = [scaled(1.1 if day >= 7 else 1.0) for day in range(14)]
    return [history_run(d, {**m, "sdpa-flash": m["sdpa-flash"] * (0.5 if d >= 10 else 1)}) for d, m in enumerate(means)]


def test_drift_of_the_machine_is_in_times_and_cancels_in_speed_ups(drifted: list[Run]) -> None:
    assert [change.at for change in line(drifted, "time", "sdpa-math").changes] == [7]
    assert [change.at for change in line(drifted, "time").changes] == [7, 10]
    (change,) = line(drifted, "speed-up").changes
    assert change.at == 10
    assert math.exp(change.shift) == pytest.approx(2, rel=0.02)


def test_the_baseline_has_no_speed_up(drifted: list[Run]) -> None:
    assert [one.latest.contender for one in lines(drifted) if one.kind == "speed-up"] == ["sdpa-flash"]


def test_figures_are_those_of_the_judgement() -> None:
    judgement = judge(record_of(1))
    result = judgement.cases[0].result("sdpa-flash")
    assert result.latency
    assert result.comparison
    measured = run_of(judgement, "0" * 64).measured[1]
    assert measured.time
    assert measured.speed_up
    assert (measured.time.value, measured.time.low, measured.time.high) == (
        result.latency.median,
        result.latency.low,
        result.latency.high,
    )
    assert measured.speed_up.value == result.comparison.ratio
    assert measured.speed_up.error == pytest.approx(result.comparison.interval.sd / math.sqrt(2))
    assert measured.floor >= 0.01


def test_a_run_of_one_process_has_no_interval() -> None:
    time = history_run(1, processes=1).measured[0].time
    assert time
    assert (time.low, time.high, time.error) == (None, None, None)


@pytest.mark.parametrize("said", [math.inf, math.nan, 1e300])
def test_a_floor_that_no_machine_has_is_none(said: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "floor_for", lambda *arguments: Floor(said, "calibrated"))
    assert {measured.floor for measured in history_run(1).measured} <= {1.0, 0.01}


def test_runs_are_kept_as_json_and_come_back(drifted: list[Run]) -> None:
    assert from_json(json.loads(json.dumps(to_json(drifted[0])))) == drifted[0]
    with pytest.raises(BadInput):
        from_json({**to_json(drifted[0]), "measured": [{}]})


def test_runs_stand_by_when_they_began_each_once() -> None:
    runs = [history_run(day, run={"started": when}) for day, when in ((1, "2026-05-01T12:00+09:00"), (2, "2026-05-01"))]
    assert [run.started for run in in_order([*runs, *runs])] == [
        "2026-05-01T00:00:00+00:00",
        "2026-05-01T03:00:00+00:00",
    ]


def test_a_run_that_was_interrupted_and_gone_on_with_is_in_a_line_once(drifted: list[Run]) -> None:
    left, whole, later = replace(drifted[0], identity="f" * 64, processes=1), *drifted[:2]
    for runs in ([left, whole, later], [whole, left, later]):
        assert [runs[point.run] for point in line(runs, "time").points] == [whole, later]


def test_two_runs_of_one_second_and_seed_are_two_if_their_cases_are_others() -> None:
    """Parts of one job, say, that run side by side with a given seed."""
    one, other = history_run(1), history_run(1, shapes=("B=1,S=65,causal=0",))
    assert (one.started, one.seed) == (other.started, other.seed)
    assert len(lines([one, other])) == 2 * len(lines([one]))


@pytest.mark.parametrize("started", ["", "yesterday", "0001-01-01T00:00+14:00", "\x1b[2J"])
def test_a_run_that_does_not_say_when_has_no_place(started: str) -> None:
    with pytest.raises(BadInput, match="is not a date"):
        history_run(1, run={"started": started})


@pytest.mark.parametrize(
    "other",
    [
        {"environment": {"cpu": {"name": "Another CPU"}}},
        {"threads": 2},
        {"shapes": ("B=1,S=65,causal=0",)},
    ],
)
def test_another_device_or_another_case_is_a_line_of_its_own(other: dict[str, Any]) -> None:
    assert len(lines([history_run(1), history_run(2)])) == 3
    assert len(lines([history_run(1), history_run(2, **other)])) == 6


@pytest.mark.parametrize(("device", "clock", "found"), [("cuda", "", 6), ("cuda", "warm", 3), ("cpu", "", 3)])
def test_a_cold_cache_that_was_flushed_otherwise_is_a_line_of_its_own(device: str, clock: str, found: int) -> None:
    """The protocol before flushed by writing, some microseconds of which were in the time; of one protocol all is as
    ever."""

    def by(day: int, protocol: str) -> Run:
        record = record_of(day)
        cases = [replace(c, params={**c.params, "clock": clock}) if clock else c for c in record.cases]
        named = replace(record.protocol, name=protocol)
        changed = replace(record, protocol=named, cases=tuple(cases), run=replace(record.run, device=device))
        return run_of(judge(changed), f"{day:064x}")

    then, now = THIRD_NAME, NAME
    assert len(lines([by(1, then), by(2, now)])) == found
    assert len({one.latest.clock for one in lines([by(1, then), by(2, now)])}) == (2 if found == 6 else 1)
    assert len(lines([by(1, now), by(2, now)])) == len(lines([by(1, then), by(2, then)])) == 3


def test_another_baseline_is_another_speed_up_and_the_same_time() -> None:
    means = {**MEANS, "mine": 2e-3}
    found = lines([history_run(1, means), history_run(2, means, baseline="sdpa-flash")])
    assert {(one.latest.contender, one.baseline): len(one.points) for one in found if one.kind == "speed-up"} == {
        ("sdpa-flash", "sdpa-math"): 1,
        ("mine", "sdpa-math"): 1,
        ("sdpa-math", "sdpa-flash"): 1,
        ("mine", "sdpa-flash"): 1,
    }
    assert [len(one.points) for one in found if one.kind == "time"] == [2, 2, 2]


def test_of_two_revisions_the_later_is_in_the_line_of_its_contender() -> None:
    def compared(day: int, base: str, head: str) -> Run:
        told = {
            f"mine@{side}": {"contender": "mine", "side": side, "asked": side, "commit": commit * 40}
            for side, commit in (("base", base), ("head", head))
        }
        means = {"mine@base": 3e-3, "mine@head": 2e-3}
        had = {"asked": [], "met": "venv", "packages": {"torch": "2.14.0"}}
        packages = {"packages": {"torch": "2.13.0"}, INSTALLED: {"mine@head": had}}
        return history_run(day, means, environment={KEY: told, **packages})

    found = lines([compared(1, "a", "b"), compared(2, "c", "d"), history_run(3, {"sdpa-math": 3e-3, "mine": 2e-3})])
    times = {one.latest.contender: len(one.points) for one in found if one.kind == "time"}
    assert times == {"mine": 3, "sdpa-math": 1}
    ratios = [(one.latest.contender, one.baseline) for one in found if one.kind == "speed-up"]
    assert ratios == [("mine", "sdpa-math")], "the earlier is another in each run"
    said = compared(1, "a", "b").surroundings
    assert said["revision"] == "b" * 12
    assert said["PyTorch"] == "2.14.0", "with which the later was measured"
    assert "revision" not in history_run(3).surroundings


def test_lines_of_a_calibration_come_last() -> None:
    runs = [history_run(1), *(replace(history_run(day), suite="calibration") for day in (2, 3))]
    assert [one.suite for one in lines(runs)] == ["attention"] * 3 + ["calibration"] * 3


def test_who_fails_stays_in_the_line_without_a_figure() -> None:
    def wrong(contender: str, case: str, block: int | None) -> Any:
        return {"status": "INCORRECT", "reason": "wrong"} if contender == "sdpa-flash" and block is None else None

    runs = [history_run(1), history_run(2, fault=wrong), history_run(3)]
    failed = line(runs, "time")
    assert [point.status for point in failed.points] == ["PASSED", "INCORRECT", "PASSED"]
    assert [point.figure is None for point in failed.points] == [False, True, False]
    assert len(failed.counted) == 2


def test_surroundings_are_words_whatever_the_record_says() -> None:
    odd = {"gpu": {"driver": {"a": "b"}, "id": 7}, "packages": ["torch"]}
    said = history_run(1, environment=odd, run={"commit": "x" * 500}).surroundings
    assert said["GPU"] == "7"
    assert "driver" not in said
    assert "PyTorch" not in said
    assert len(said["commit"]) == 80


def test_the_step_from_the_run_before_counts_beyond_floor_and_scatter() -> None:
    steady = [history_run(day) for day in range(1, 8)]
    step = line([*steady, history_run(9, scaled(1.2, "sdpa-flash"))], "time").step
    assert step
    assert step.beyond
    assert math.exp(step.shift) == pytest.approx(1.2, rel=0.02)
    step = line(steady, "time").step
    assert step
    assert not step.beyond
    assert line(steady[:1], "time").step is None
    few = [*steady[:5], history_run(9, scaled(1.2, "sdpa-flash"))]
    step = line(few, "time").step
    assert step
    assert (step.beyond, step.early) == (False, True)  # the whole machine may have been slower that day
    step = line(few, "speed-up").step
    assert step
    assert (step.beyond, step.early) == (False, True)  # neither is it known how far two runs of the same may differ
    step = line([*steady, history_run(9, scaled(1.07, "sdpa-flash"))], "speed-up").step
    assert step
    assert (step.beyond, step.early) == (True, False)
    wild = [history_run(day, scaled(1.15 if day % 2 else 1.0, "sdpa-flash")) for day in range(8)]
    step = line(wild, "time").step
    assert step
    assert not step.beyond


def through(figures: Sequence[Figure], processes: int = 4, together: int = 50) -> Line:
    """A line of speed-ups with these figures, one of `together` that are tested."""
    points = tuple(Point(run, "PASSED", "1", processes, figure) for run, figure in enumerate(figures))
    values, errors = [math.log(f.value) for f in figures], [f.error or 0.0 for f in figures]
    changes = tuple(find_changes(values, errors, 0.01))
    return replace(some_line(), floor=0.01, points=points, changes=changes, together=together)


@cache
def some_line() -> Line:
    return line([history_run(1)], "speed-up")


def figure(value: float, low: float, high: float, processes: int = 4) -> Figure:
    return Figure(value, low, high, math.log(high / low) / 2 / t_quantile(0.975, processes - 1))


@pytest.mark.parametrize("earlier", [0, 8])
def test_the_same_code_on_a_busy_machine_is_not_called_lower(earlier: int) -> None:
    """Two runs of four processes each, seen by a user. They are more than 1.96 standard errors apart, as one line in
    ten is by chance with so few processes."""
    steady = [figure(1.53 + 0.02 * (run % 2), 1.31, 1.78) for run in range(earlier)]
    step = through([*steady, figure(1.53, 1.31, 1.78), figure(1.28, 1.04, 1.59)], together=1).step
    assert step
    assert (step.beyond, step.early) == (False, False)
    step = through([*steady, figure(1.53, 1.51, 1.55), figure(1.05, 1.03, 1.07)], together=1).step
    assert step
    assert (step.beyond, step.early) == (bool(earlier), not earlier)


@pytest.mark.parametrize(("between", "within"), [(0.0, 0.1), (0.01, 0.002), (0.05, 0.02)])
def test_noise_shows_a_step_in_few_histories_of_fifty_lines(between: float, within: float) -> None:
    """By simulation of runs of four processes that differ by chance alone."""
    random, histories, runs, together = np.random.default_rng(1), 40, 8, 50

    def shown() -> bool:
        times = random.normal(0, between, (runs, 1)) + random.normal(0, within, (runs, 4))
        drawn = [Figure(math.exp(t.mean()), 1.0, 1.0, t.std(ddof=1) / 2) for t in times]
        step = through(drawn, together=together).step
        return bool(step and step.beyond)

    seen = sum(any(shown() for _ in range(together)) for _ in range(histories))
    assert seen <= 0.1 * histories


def test_lines_that_end_in_the_same_run_are_tested_together(drifted: list[Run]) -> None:
    other = [history_run(day, {**MEANS, "mine": 2e-3}, shapes=("B=1,S=65,causal=0",)) for day in (20, 21)]
    found = lines([*drifted, *other])
    assert {(one.kind, one.points[-1].run, one.together) for one in found} == {
        *(("time", 13, 2), ("speed-up", 13, 1), ("time", 15, 3), ("speed-up", 15, 2))
    }


def test_functions_without_a_name_have_each_run_to_themselves() -> None:
    """Two of the same sizes may do anything."""

    def run(number: int, name: str) -> Run:
        record = record_of(number)
        params = {**({"name": name} if name else {}), **record.cases[0].params}
        cases = (replace(record.cases[0], params=params), *record.cases[1:])
        return run_of(judge(replace(record, cases=cases, run=replace(record.run, suite="functions"))), str(number))

    for name, expected in (("", {1}), ("softmax", {2})):
        found = lines(in_order([run(1, name), run(2, name)]))
        assert {len(line.points) for line in found if line.latest.case == found[0].latest.case} == expected
