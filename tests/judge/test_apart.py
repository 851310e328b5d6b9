"""C2: two bundles are of different times; what is the same in both tells the drift, and where nothing is it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fakes import noisy
from groundspeed.errors import BadInput
from groundspeed.evidence.launched import Launched, Timing
from groundspeed.judge.apart import of_bundles
from groundspeed.judge.between import anchors_of
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.statistics import welch_interval
from records import biased, run

MEANS = {"torch": 1e-3, "mine": 0.8e-3}


def bundle(mine: float = 1.0, drift: float = 1.0, seed: int = 1, noise: float = 0.01, **changes: Any) -> Judgement:
    """A run in which `mine` takes so many times as long as usual, and everything `drift` times."""
    means = {"torch": MEANS["torch"] * drift, "mine": MEANS["mine"] * mine * drift}
    return judge(run(noisy(means, noise, seed), list(means), seed=seed, **changes))


def other_version(judgement: Judgement, contender: str) -> Judgement:
    facts = [replace(c, version="2") if c.name == contender else c for c in judgement.record.contenders]
    return judge(replace(judgement.record, contenders=tuple(facts)))


def on_another_cpu(judgement: Judgement) -> Judgement:
    return judge(replace(judgement.record, environment={"cpu": {"name": "Other CPU", "cores": 2}, "gpu": None}))


def test_welch_is_that_of_scipy() -> None:
    generator = np.random.default_rng(1)
    before, after = generator.normal(0, 1, 4), generator.normal(0.5, 3, 8)
    ours, theirs = welch_interval(before, after), stats.ttest_ind(after, before, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))
    assert ours.mean == pytest.approx(after.mean() - before.mean())


def test_what_is_the_same_in_both_takes_the_drift_out_of_the_figures() -> None:
    """The machine was 10% slower the second time, and so were both contenders."""
    result = of_bundles(bundle(), bundle(drift=1.1, seed=4))
    assert result.how == "anchored"
    assert {change.word for change in result.changes} == {"UNCLEAR"}
    assert all(change.interval and abs(change.interval.mean) < 0.01 for change in result.changes)
    assert "compared with torch in its own run, which itself ran 0.9" in result.notes[0]
    assert {change.contender for change in result.changes} == {"mine"}


def test_a_planted_slow_down_is_found_and_ten_comparisons_of_the_same_find_none() -> None:
    base = bundle()
    found = [of_bundles(base, bundle(1.15, seed=seed)) for seed in range(2, 7)]
    assert [result.overall for result in found] == ["REGRESSED"] * 5
    quiet = [of_bundles(base, bundle(seed=seed, noise=0.02)) for seed in range(2, 12)]
    assert not any(result.tally["REGRESSED"] or result.tally["IMPROVED"] for result in quiet)


def test_a_speed_up_is_no_regression() -> None:
    result = of_bundles(bundle(), bundle(0.8, seed=2))
    assert {change.word for change in result.changes} == {"IMPROVED"}
    assert result.overall == "NO REGRESSION"


def test_without_an_anchor_the_bare_times_are_shown_and_there_is_no_verdict() -> None:
    base, head = bundle(), other_version(bundle(2.0, seed=2), "torch")
    assert anchors_of(base.record, head.record, ["mine"]) == []
    result = of_bundles(base, head)
    assert result.how == "apart"
    assert {change.word for change in result.changes} == {"UNCLEAR"}
    assert all(change.interval and change.interval.mean < -0.6 for change in result.changes)
    assert "no unchanged contender shows how far the machine drifted" in result.changes[0].reason
    assert result.overall == "UNCLEAR"
    assert of_bundles(head, base).overall == "UNCLEAR"  # faster by the clock, and that rules nothing out
    assert "these figures include the drift of the machine" in result.notes[0]
    assert any("torch: 1 in base, 2 in head" in note for note in result.notes)


def test_a_difference_whose_interval_reaches_into_the_floor_is_unclear() -> None:
    """p alone would do: hardly any noise. The floor of two runs is 1.4%, and the runs differ by a little more."""
    under, over = (of_bundles(bundle(noise=0.001), bundle(slower, seed=4, noise=0.001)) for slower in (1.009, 1.016))
    for result in (under, over):
        assert {change.word for change in result.changes} == {"UNCLEAR"}
        assert "part of the interval is within the floor plus what two runs may differ by" in result.changes[0].reason
    assert under.overall == "NO REGRESSION"  # for certain none over the floor
    assert over.overall == "UNCLEAR"


def test_a_machine_that_raised_its_alarm_rules_nothing_out() -> None:
    base, head = bundle(noise=0.001), bundle(0.99, seed=2, noise=0.001)
    result = of_bundles(base, judge(biased(head.record)))
    assert {(change.word, change.may_hide) for change in result.changes} == {("UNCLEAR", True)}
    assert "raised its alarm" in result.changes[0].reason
    assert result.overall == "UNCLEAR"


def test_what_a_run_does_not_believe_of_itself_says_nothing_in_a_comparison_either() -> None:
    """Two timers that watched mine and torch in head disagree."""
    head = bundle(2.0, seed=2)
    watched = [
        Launched(case.facts.name, name, ("kernel",), (), (Timing("default", 1, 1e-3, kernels_s, 0.0),) * 5)
        for case in head.cases
        for name, kernels_s in (("torch", 0.98e-3), ("mine", 0.5e-3))
    ]
    assert of_bundles(bundle(), head).overall == "REGRESSED"
    result = of_bundles(bundle(), judge(replace(head.record, launched=tuple(watched))))
    assert {(change.word, change.may_hide) for change in result.changes} == {("UNCLEAR", True)}
    assert result.changes[0].reason.startswith("in head, the timers disagree")


def test_other_hardware_is_refused_or_marked() -> None:
    base, head = bundle(), on_another_cpu(bundle(seed=2))
    with pytest.raises(BadInput, match=r"different hardware \(Test CPU .* and Other CPU .*\); use --force"):
        of_bundles(base, head)
    assert "Other CPU" in of_bundles(base, head, force=True).marked


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"isolated": True}, "isolated"), ({"threads": 2}, "number of threads"), ({"warmup_s": 1.0}, "warmup_s")],
)
def test_another_protocol_is_refused_by_name(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=f"cannot be compared: the .*{why} is .* in base and "):
        of_bundles(bundle(), bundle(seed=2, **changes))


def test_what_is_in_one_alone_is_listed() -> None:
    base = bundle(shapes=("B=1,S=64,causal=0", "B=2,S=64,causal=0"))
    head = bundle(shapes=("B=1,S=64,causal=0", "B=4,S=64,causal=0"), seed=2)
    result = of_bundles(base, head)
    assert len(result.changes) == 1
    assert [said.partition(":")[2] for said in result.left_out[-2:]] == [" only in base", " only in head"]


def test_an_interrupted_run_says_nothing_for_certain() -> None:
    half = judge(run(noisy(MEANS, 0.01), list(MEANS), finished=3))
    result = of_bundles(half, bundle(1.5, seed=2))
    assert {change.word for change in result.changes} == {"UNCLEAR"}
    assert result.changes[0].reason == "the base run was interrupted"


def test_what_disturbed_either_run_is_said_once_with_whose_it_was() -> None:
    def under_load(judgement: Judgement, load: float) -> Judgement:
        cpu = {"name": "Test CPU", "cores": 2, "load_1min": load}
        return judge(replace(judgement.record, environment={"cpu": cpu, "gpu": None}))

    busy = "other work is running (load {} on 2 cores)"
    remedy = "stop it, or measure when it is done"
    quiet, loud, louder = under_load(bundle(), 0.1), under_load(bundle(seed=2), 2.4), under_load(bundle(seed=3), 6.8)
    assert f"head: {busy.format(2.4)}; {remedy}" in of_bundles(quiet, loud).notes
    assert f"base: {busy.format(2.4)}; head: {busy.format(6.8)}; {remedy}" in of_bundles(loud, louder).notes
    notes = of_bundles(quiet, loud).notes
    (assumed,) = [note for note in notes if "is assumed, not measured" in note]
    assert assumed.startswith("base and head: ")


def test_names_that_are_in_neither_are_offered_the_nearest() -> None:
    base, head = bundle(), bundle(seed=2)
    with pytest.raises(BadInput, match="unknown contender of both bundles 'mie'; did you mean mine"):
        of_bundles(base, head, only=("mie",))
    with pytest.raises(BadInput, match="unknown case of both bundles 'b9'"):
        of_bundles(base, head, cases=("b9",))
    assert {change.contender for change in of_bundles(base, head, only=("torch",)).changes} == {"torch"}
