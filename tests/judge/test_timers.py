"""D7: two timers on the same calls; where they disagree by more than the floor, no claim rests on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import fake_run, noisy
from groundspeed.evidence.launched import Launched, Timing
from groundspeed.evidence.protocol import SECOND_NAME
from groundspeed.evidence.record import Record
from groundspeed.judge.claims import headline
from groundspeed.judge.judgement import judge
from groundspeed.judge.timers import Timers, timers_of
from groundspeed.judge.timers import watched as seen_twice
from groundspeed.judge.verdict import Comparison
from groundspeed.judge.views import view_warnings
from groundspeed.report import words
from records import on_gpu

Times = Mapping[str, tuple[float, float]]
"""Contender → what the clock and what the profiler saw."""
AGREE: Times = {"base": (100e-6, 98e-6), "ours": (80e-6, 78.4e-6)}
DISAGREE: Times = {"base": (100e-6, 98e-6), "ours": (80e-6, 95e-6)}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    made = fake_run(tmp_path, noisy({"base": 1e-4, "ours": 0.8e-4}, 0.003), ["base", "ours"])
    return on_gpu(made, "Unknown GPU")


def watched(record: Record, times: Times, clock: str = "default", overhead_s: float = 0.0, launches: int = 1) -> Record:
    def timing(name: str) -> Timing:
        seconds, kernels_s = times[name]
        return Timing(clock, launches, seconds, kernels_s, overhead_s)

    launched = tuple(
        Launched(case.name, name, ("kernel",), (), (timing(name),) * 5) for case in record.cases for name in times
    )
    return replace(record, launched=launched)


def of_first(record: Record) -> Timers | None:
    return timers_of(record, seen_twice(record), record.cases[0], "ours")


def test_where_they_agree_nothing_is_said(record: Record) -> None:
    judgement = judge(watched(record, AGREE))
    assert [case.result("ours").comparison.verdict for case in judgement.cases] == ["FASTER"] * 2  # type: ignore[union-attr]
    assert "timers" not in {warning.code for warning in judgement.warnings}
    assert headline(judgement, judgement.grids[0])[0]


def test_where_they_do_not_no_claim_is_made(record: Record) -> None:
    judgement = judge(watched(record, DISAGREE))
    for case in judgement.cases:
        comparison = case.result("ours").comparison
        assert comparison is not None
        assert comparison.verdict == "UNCLEAR"
        assert "1.250× by the clock less its overhead, and 1.032× by the profiler" in comparison.reason
    (warning,) = [warning for warning in judgement.warnings if warning.code == "timers"]
    assert warning.message.endswith(
        "by the profiler on the same calls; that is more than the floor, likewise in 1 more comparison"
    )
    supported, sentence = headline(judgement, judgement.grids[0])
    assert not supported
    assert "the timers disagree" in sentence
    assert not list(words.case_claims(judgement))


def test_a_verdict_that_stands_over_a_higher_floor_is_said_to(record: Record) -> None:
    """The comparisons of a run may vary more than those of its calibration did."""
    judgement = judge(watched(record, DISAGREE))
    (unclear,) = [warning for warning in view_warnings(record, judgement.cases) if warning.code == "timers"]
    assert "ours" in unclear.message
    assert "no verdict rests on these" in unclear.remedy
    stand = [
        replace(case, results=tuple(replace(r, comparison=_standing(r.comparison)) for r in case.results))
        for case in judgement.cases
    ]
    (told,) = view_warnings(record, stand)
    assert told.code == "timers"
    assert "less than the comparisons of this run vary" in told.message
    assert "the verdicts stand" in told.remedy


def in_graphs(record: Record, *cases: int) -> Record:
    """These are timed in a CUDA graph."""
    facts = [
        replace(case, params={**case.params, "clock": "graph"}) if i in cases else case
        for i, case in enumerate(record.cases)
    ]
    return replace(record, cases=tuple(facts))


def test_what_is_timed_in_a_graph_is_not_advised_to_be(record: Record) -> None:
    """Where the run has both, each is told what it can do."""
    made = in_graphs(record, 1)
    default, graph = (watched(made, DISAGREE, clock).launched for clock in ("default", "graph"))
    both = replace(made, launched=(default[0], default[1], graph[2], graph[3]))
    plain, in_graph = [warning for warning in judge(both).warnings if warning.code == "timers"]
    for warning, case in zip((plain, in_graph), both.cases, strict=True):
        assert warning.message.startswith(f"ours on {case.name}: the timers disagree")
        assert warning.message.endswith("that is more than the floor")
    assert plain.remedy == "no verdict rests on these; measure work this short with --clock graph"
    assert (
        in_graph.remedy
        == "no verdict rests on these; quote none of these speed-ups more precisely than its timers agree"
    )


def _standing(comparison: Comparison | None) -> Comparison | None:
    return comparison and replace(comparison, verdict="FASTER")


def test_what_the_clock_has_beside_a_kernel_is_no_kernels(record: Record) -> None:
    """Two microseconds around every launch bring short ones closer together: that is no disagreement."""
    short: Times = {"base": (12e-6, 10e-6), "ours": (10e-6, 8e-6)}
    plain, told = (of_first(watched(record, short, overhead_s=overhead_s)) for overhead_s in (0.0, 2e-6))
    assert plain is not None
    assert told is not None
    assert plain.apart == pytest.approx(-0.0408, abs=1e-4)
    assert told.apart == pytest.approx(0.0, abs=1e-12)


class TestHidden:
    """Of a graph with much in it, a part of the clock's share may be hidden: cuDNN clears memory first, which begins
    while the kernels of the graph are still on their way."""

    CLEAR = (402e-6, 400e-6, 8e-6)
    """Seconds by the clock and by the profiler, and what the clock is said to have beside kernels."""
    PLAIN = (206e-6, 200e-6, 6e-6)

    def of(self, record: Record, base: tuple[float, ...], own: tuple[float, ...]) -> Timers:
        def launched(name: str, told: tuple[float, ...]) -> Launched:
            return Launched(record.cases[0].name, name, ("kernel",), (), (Timing("default", 1, *told),) * 5)

        some = launched("base", base), launched("ours", own), launched("math", (1e-3, 0.998e-3, 2e-6))
        found = of_first(replace(record, launched=some))
        assert found is not None
        return found

    def test_by_the_baseline(self, record: Record) -> None:
        found = self.of(record, self.CLEAR, self.PLAIN)
        assert found.clock - found.profiler == pytest.approx(math.log(394 / 400), abs=1e-6)
        assert found.hidden == pytest.approx(6 / 402, abs=1e-6), "less what was least beside any"
        assert found.apart == pytest.approx(math.log(394 / 400) + 6 / 402, abs=1e-6)
        assert not found.disagree(0.01)

    def test_a_contender_has_no_such_excuse(self, record: Record) -> None:
        assert self.of(record, self.PLAIN, self.CLEAR).disagree(0.01)

    def test_kernels_that_are_not_in_the_interval(self, record: Record) -> None:
        assert self.of(record, self.CLEAR, (206e-6, 230e-6, 6e-6)).disagree(0.01)
        assert self.of(record, (402e-6, 430e-6, 8e-6), self.PLAIN).disagree(0.01)


@pytest.mark.parametrize("times", [{"base": (1e-4, 1e-4)}, {"ours": (1e-4, 1e-4)}, {}])
def test_one_timer_is_no_disagreement(record: Record, times: Times) -> None:
    assert of_first(watched(record, times)) is None


def test_each_clock_has_its_own(record: Record) -> None:
    assert of_first(watched(record, DISAGREE, clock="graph")) is None


def test_intervals_of_different_lengths_are_compared_by_the_call(record: Record) -> None:
    """How many launches a graph holds is drawn when it is captured."""
    ten, twenty = (watched(record, {name: AGREE[name]}, launches=n) for name, n in (("base", 10), ("ours", 20)))
    found = of_first(replace(record, launched=(*ten.launched, *twenty.launched)))
    assert found is not None
    assert math.exp(found.clock) == pytest.approx(2 * 1.25)
    assert found.apart == pytest.approx(0.0, abs=1e-12)


def test_noise_between_intervals_is_no_disagreement(record: Record) -> None:
    def launched(name: str, *seconds: float) -> Launched:
        timings = tuple(Timing("default", 1, s, 1e-4, 0.0) for s in seconds)
        return Launched(record.cases[0].name, name, ("kernel",), (), timings)

    noisy_one = launched("ours", 0.8e-4, 1.2e-4, 0.9e-4, 1.1e-4, 1.2e-4)
    steady = launched("base", *[1e-4] * 5)
    found = of_first(replace(record, launched=(noisy_one, steady)))
    assert found is not None
    assert found.noise > abs(found.apart) > 0.01
    assert not found.disagree(0.01)


def test_who_was_seen_by_one_timer_only_is_told(record: Record) -> None:
    both = watched(record, AGREE)
    half = tuple(replace(x, timings=()) if x.contender == "ours" else x for x in both.launched)
    assert "unwatched" not in {w.code for w in judge(both).warnings}
    (warning,) = [w for w in judge(replace(both, launched=half)).warnings if w.code == "unwatched"]
    assert "only one timer saw ours" in warning.message
    assert "and 1 more" in warning.message


def test_so_is_a_run_in_which_nobody_was_seen_by_two(record: Record) -> None:
    """Unless it is of a time when there was one timer, or of a CPU."""
    (warning,) = [w for w in judge(record).warnings if w.code == "unwatched"]
    assert "and 3 more" in warning.message
    before = replace(record, protocol=replace(record.protocol, name=SECOND_NAME))
    on_cpu = replace(record, run=replace(record.run, device="cpu"))
    for other in (before, on_cpu):
        assert "unwatched" not in {w.code for w in judge(other).warnings}


@pytest.mark.parametrize(
    ("seconds", "kernels_s", "overhead_s", "launches"),
    [
        (0.0, 1.0, 0.0, 1),
        (1.0, 0.0, 0.0, 1),
        (-1.0, 1.0, 0.0, 1),
        (1e7, 1.0, 0.0, 1),
        (float("nan"), 1.0, 0.0, 1),
        (1.0, 1.0, -1e-6, 1),
        (1.0, 1.0, 0.0, 0),
    ],
)
def test_a_time_that_is_none_is_refused(seconds: float, kernels_s: float, overhead_s: float, launches: int) -> None:
    with pytest.raises(ValueError, match="a timing has a duration"):
        Timing("default", launches, seconds, kernels_s, overhead_s)
