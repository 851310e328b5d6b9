"""C2: a slow-down is found, noise is none, and what may hide one is said to be unclear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

import pytest

from fakes import Fault, no_fault, noisy
from groundspeed.evidence.launched import Launched, Timing
from groundspeed.evidence.record import Record
from groundspeed.evidence.revision import INSTALLED, KEY, Revision
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.regression import Regression, of_runs
from records import biased, interrupted, run

BASE = 1e-3


def compared(head: float, noise: float = 0.01, seed: int = 1, fault: Fault = no_fault, name: str = "mine") -> Judgement:
    """A run of two revisions whose contender takes 1 ms in base."""
    sides = [Revision(name, side, side, letter * 40) for side, letter in (("base", "a"), ("head", "b"))]
    means: Mapping[str, float] = dict(zip((side.name for side in sides), (BASE, head), strict=True))
    record = run(noisy(means, noise, seed), list(means), fault=fault, isolated=True, seed=seed)
    environment = {**record.environment, KEY: {side.name: asdict(side) for side in sides}}
    return judge(replace(record, environment=environment))


def words(result: Regression) -> set[str]:
    return {change.word for change in result.changes}


@pytest.mark.parametrize(
    ("head", "word", "overall"),
    [
        (1.1 * BASE, "REGRESSED", "REGRESSED"),
        (0.9 * BASE, "IMPROVED", "NO REGRESSION"),
        (BASE, "SAME", "NO REGRESSION"),
    ],
)
def test_a_change_has_its_word_and_a_speed_up_is_no_regression(head: float, word: str, overall: str) -> None:
    result = of_runs([compared(head, noise=0.003)])
    assert words(result) == {word}
    assert result.overall == overall
    assert {change.contender for change in result.changes} == {"mine"}


def test_a_planted_slow_down_is_found_and_comparisons_of_the_same_with_itself_find_none() -> None:
    """C2. Holm lets one noisy run in twenty err, either way, and the floors most of those not."""
    found = [of_runs([compared(1.05 * BASE, seed=seed)]) for seed in range(10)]
    assert [result.overall for result in found] == ["REGRESSED"] * 10
    quiet = [of_runs([compared(BASE, noise=0.01, seed=seed)]) for seed in range(10)]
    assert [result.tally["REGRESSED"] for result in quiet] == [0] * 10
    noisy_runs = [of_runs([compared(BASE, noise=0.03, seed=seed)]) for seed in range(100, 140)]
    assert sum(result.overall == "REGRESSED" for result in noisy_runs) <= 2


def test_what_is_unclear_counts_only_where_it_may_hide_a_slow_down() -> None:
    hiding = of_runs([compared(1.02 * BASE, noise=0.2)])
    assert words(hiding) == {"UNCLEAR"}
    assert hiding.overall == "UNCLEAR"
    assert all(change.may_hide for change in hiding.changes)
    harmless = of_runs([compared(0.992 * BASE, noise=0.015)])  # a little faster, and under the floor
    assert words(harmless) == {"UNCLEAR"}
    assert harmless.overall == "NO REGRESSION"


def test_packages_that_are_not_the_same_on_both_sides_are_part_of_the_answer() -> None:
    judgement = compared(BASE)
    had = {
        "mine@base": {"asked": ["speedlib==1.0"], "met": "venv", "packages": {"speedlib": "1.0", "same": "1"}},
        "mine@head": {"asked": ["torch"], "met": "here", "packages": {"torch": "2.14.0", "same": "1"}},
    }
    record = replace(judgement.record, environment={**judgement.record.environment, INSTALLED: had})
    assert of_runs([judge(record)]).packages == (("speedlib", "1.0", None), ("torch", None, "2.14.0"))
    assert of_runs([judgement]).packages == ()


def test_holm_is_over_all_runs_together() -> None:
    """Nine runs in which nothing changed make the tenth harder to believe, not easier."""
    alone = of_runs([compared(1.05 * BASE)])
    many = of_runs([compared(1.05 * BASE), *(compared(BASE, seed=seed, name=f"other-{seed}") for seed in range(2, 6))])
    first, same = alone.changes[0], many.changes[0]
    assert first.interval == same.interval
    assert first.adjusted_p is not None
    assert same.adjusted_p is not None
    assert same.adjusted_p > first.adjusted_p


@pytest.mark.parametrize(
    ("broken", "word", "overall"),
    [("mine@head", "REGRESSED", "REGRESSED"), ("mine@base", "IMPROVED", "NO REGRESSION")],
)
def test_who_no_longer_gets_there_has_regressed(broken: str, word: str, overall: str) -> None:
    def fault(contender: str, case: str, block: int | None) -> dict[str, object] | None:
        wrong = contender == broken and block is None
        return {"status": "INCORRECT", "reason": "it is wrong", "broken": False} if wrong else None

    result = of_runs([compared(BASE, fault=fault)])
    assert words(result) == {word}
    assert result.overall == overall
    assert "INCORRECT: it is wrong" in result.changes[0].reason


def test_where_neither_gets_there_nothing_is_compared() -> None:
    def fault(contender: str, case: str, block: int | None) -> dict[str, object]:
        return {"status": "ERROR", "reason": "no such op", "broken": False}

    result = of_runs([compared(BASE, fault=fault)])
    assert result.changes == ()
    assert len(result.left_out) == 2
    assert "base is ERROR (no such op), head is ERROR" in result.left_out[0]
    assert result.overall == "UNCLEAR"


def seen_by_another_timer(record: Record) -> Record:
    """By which the kernels of head take a fifth longer than its clock says."""

    def launched(case: str, name: str) -> Launched:
        kernels_s = 1.18e-3 if name.endswith("head") else 0.98e-3
        return Launched(case, name, ("kernel",), (), (Timing("default", 1, 1e-3, kernels_s, 0.0),) * 5)

    return replace(record, launched=tuple(launched(c.name, x.name) for c in record.cases for x in record.contenders))


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (biased, "raised its alarm"),
        (seen_by_another_timer, "the timers disagree"),
        (lambda record: interrupted(record, 2), "the run was interrupted"),
    ],
)
@pytest.mark.parametrize("head", [0.9 * BASE, BASE, 1.5 * BASE])
def test_an_interval_that_is_not_believed_rules_nothing_out(
    spoilt: Callable[[Record], Record], reason: str, head: float
) -> None:
    result = of_runs([judge(spoilt(compared(head).record))])
    assert {(change.word, change.may_hide, change.lowest) for change in result.changes} == {("UNCLEAR", True, None)}
    assert reason in result.changes[0].reason
    assert result.overall == "UNCLEAR"
