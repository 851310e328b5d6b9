"""What a report says a run means, and what to do: sentences made of its figures by rules."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, judgement_of, markdown_tables, sweep_of

from groundspeed.judge.judgement import Judgement
from groundspeed.judge.roofline import share
from groundspeed.report import markdown
from groundspeed.report.interpretation import interpretation
from groundspeed.report.recommendations import NOTHING, recommendations

LENGTHS: dict[str, Any] = {"lengths": (512, 1024, 2048), "dims": [64], "baseline": "cudnn", "judged": ["ours"]}


def by_length(contender: str, case: Any) -> float:
    """Ours wins on long sequences, loses on short ones and ties between."""
    return {512: 0.8, 1024: 1.0, 2048: 1.25}[case["S"]] if contender == "ours" else 1.0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    rates = {"cudnn": 5e14, "ours": 5e14, "slow": 1e14}
    return sweep_of(tmp_path_factory.mktemp("mixed"), rates, rate=by_length, noise=0.002, **LENGTHS)


def test_it_says_where_ours_wins_loses_and_ties_and_by_how_much(mixed: Judgement) -> None:
    said = interpretation(mixed)
    lost, won, level = said[:3]
    begin = "than cudnn on 2 of 6 cases, device time, cold L2: from"
    assert re.match(rf"ours is slower {begin} 0\.(80\d?|799)× \(0\.\d+–0\.\d+\) on ", lost)
    assert re.match(rf"ours is faster {begin} 1\.2(5\d?|49)× \(1\.\d+–1\.\d+\) on ", won)
    assert level.startswith("ours is the same as cudnn within 1% on 2 of 6 cases, device time, cold L2: ")
    assert all("s512" in name for name in lost.split(" on ")[2:])
    assert all("s2048" in name for name in won.split(" on ")[2:])


def test_it_says_what_binds_and_how_much_of_the_roof_is_reached(mixed: Judgement) -> None:
    bounds, ours, baseline = interpretation(mixed)[3:]
    assert (
        bounds
        == "By the datasheet roofs, which meet at 206 FLOP per byte, compute limits 5 and memory limits 1 of 6 cases."
    )
    shares = sorted((share(mixed, case, case.result("ours")) or 0.0, case.facts.name) for case in mixed.cases)
    (least, worst), (most, best) = shares[0], shares[-1]
    assert ours == f"ours reaches {least:.1%} ({worst}) to {most:.1%} ({best}) of what the datasheet roofs allow."
    (bound,) = (value for value, name in shares if "s2048" in name and "full" in name)
    assert bound == pytest.approx(1.25 * 5e14 / 989.4e12, rel=0.01), "of the arithmetic, which binds there"
    assert baseline.startswith("cudnn reaches 50.")


def test_it_says_whom_to_take_for_what(mixed: Judgement) -> None:
    *take, begin = recommendations(mixed)
    said = {re.split(r" (?:ahead|first) on 2 of 6 \(", advice.seen)[0]: (advice.cause, advice.try_) for advice in take}
    alone = "all others are slower, by verdict or, without one, by interval"
    level = "the evidence does not show which is faster"
    assert said == {
        "cudnn": (alone, "use cudnn there"),
        "ours": (alone, "use ours there"),
        "cudnn and ours": (level, "use either, or measure more"),
    }
    assert begin.seen.startswith("ours is furthest behind on ")
    (case,) = (case for case in mixed.cases if f" {case.facts.name}," in begin.seen)  # of two that noise puts in order
    reached = share(mixed, case, case.result("ours"))
    assert begin.seen.endswith(f": 0.80×, at {reached:.1%} of the datasheet roof")
    assert begin.cause in ("it is compute-bound there", "it is memory-bound there")
    assert begin.try_ == "start there to make ours faster"
    content = markdown.to_markdown(mixed, IDENTITY)
    told = markdown_tables(content)["Recommendations"]
    assert [tuple(row) for row in told] == [("what was seen", "likely cause", "what to try")] * 4
    assert "such advice rests on their medians and the intervals of these.\n" in content


def test_a_verdict_decides_where_intervals_of_times_overlap(tmp_path: Path) -> None:
    """What both drift by from process to process, the paired comparison does not see."""
    begun: Counter[tuple[str, str]] = Counter()

    def drifting(contender: str, case: str, block: int) -> float:
        begun[contender, case] += block == 0
        drift = random.Random(f"{case} {begun[contender, case]}").lognormvariate(0, 0.5)
        return drift * (1e-3 if contender == "a" else 1.1e-3) * random.lognormvariate(0, 0.001)

    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 1e-3}, seconds=drifting, judged=["b"])
    assert {case.result("b").comparison.verdict for case in judgement.cases} == {"SLOWER"}  # type: ignore[union-attr]
    latencies = [(case.result("a").latency, case.result("b").latency) for case in judgement.cases]
    assert all(a and b and b.low < a.high for a, b in latencies)
    assert any(re.match(r"a ahead on all \d+ cases", advice.seen) for advice in recommendations(judgement))


def with_outliers(contender: str, means: dict[str, float]) -> Any:
    """Outliers of this one decide what is said of it."""

    def seconds(name: str, case: str, block: int) -> float:
        outlier = 20.0 if name == contender and block % 8 == 0 else 1.0
        return outlier * means[name] * random.lognormvariate(0, 0.001)

    return seconds


def taken(judgement: Judgement) -> list[tuple[str, str, str]]:
    """Without how many cases there are."""
    found = [advice for advice in recommendations(judgement) if " ahead on " in advice.seen]
    return [(advice.seen.partition(" on all ")[0], advice.cause, advice.try_) for advice in found]


OPEN = "is UNCLEAR, and intervals cannot decide what a verdict leaves open"
SETTLE = "settle that first; the reason of that verdict says how"


@pytest.mark.parametrize("ours", [0.5e-3, 2e-3], ids=["faster by median", "slower by median"])
def test_a_verdict_that_is_unclear_puts_nobody_ahead(tmp_path: Path, ours: float) -> None:
    """Nor does it make one as good as the other that takes twice the time."""
    means = {"base": 1e-3, "ours": ours, "slow": 9e-3}
    judgement = judgement_of(tmp_path, means, seconds=with_outliers("ours", means), judged=["ours"])
    for case in judgement.cases:
        comparison = case.result("ours").comparison
        assert comparison is not None
        assert comparison.verdict == "UNCLEAR"
        assert not comparison.interval.low <= 0 <= comparison.interval.high
    assert taken(judgement) == [("neither base nor ours ahead", f"ours against base {OPEN}", SETTLE)]


def test_nor_by_way_of_a_third(tmp_path: Path) -> None:
    """Ahead by interval of who is faster than the baseline, one would be ahead of that, too. The baseline, which
    somebody is faster than, is recommended for nothing."""
    means = {"base": 1e-3, "odd": 0.7e-3, "sure": 0.8e-3}
    judgement = judgement_of(tmp_path, means, seconds=with_outliers("odd", means))
    verdicts = {r.contender: r.comparison.verdict for c in judgement.cases for r in c.results if r.comparison}
    assert verdicts == {"odd": "UNCLEAR", "sure": "FASTER"}
    assert taken(judgement) == [("neither odd nor sure ahead", f"odd against base {OPEN}", SETTLE)]


@pytest.mark.parametrize(
    ("judged", "by"),
    [
        (["b", "c"], "by verdict"),
        (["b"], "by verdict or, without one, by interval"),
        (["c"], "by interval; there is no verdict"),
    ],
)
def test_it_says_where_only_intervals_tell_who_is_ahead(tmp_path: Path, judged: list[str], by: str) -> None:
    judgement = judgement_of(tmp_path, {"a": 2e-3, "b": 1e-3, "c": 3e-3}, judged=judged)
    assert taken(judgement) == [("b ahead", f"all others are slower, {by}", "use b there")]


def test_who_is_wrong_on_one_case_is_recommended_for_none(tmp_path: Path) -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "b" and case.startswith("b1-") else None

    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 0.5e-3, "c": 2e-3}, wrong)
    assert "PASSED" in {case.result("b").status for case in judgement.cases}
    mend, *others = recommendations(judgement)
    assert mend.seen.startswith("b is INCORRECT on ")
    assert (mend.cause, mend.try_) == ("far off", "fix it first")
    (take,) = (advice for advice in others if advice.seen.startswith("a ahead on all "))
    assert take.cause.endswith("; not counted, having failed on other cases: b"), "it is faster where it is right"


def test_a_baseline_that_is_wrong_somewhere_beats_nobody(tmp_path: Path) -> None:
    """All others are slower than it where it is right, and one of them is to be taken all the same."""

    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "ERROR", "reason": "no plan"} if contender == "base" and case.startswith("b1-") else None

    means = {"base": 1e-3, "b": 1.5e-3, "c": 2e-3, "unjudged": 9e-3}
    judgement = judgement_of(tmp_path, means, wrong, judged=["b", "c"])
    verdicts = {r.contender: r.comparison.verdict for r in judgement.cases[-1].results if r.comparison}
    assert (verdicts["b"], verdicts["c"]) == ("SLOWER", "SLOWER")
    mend, take, *_ = recommendations(judgement)
    assert mend.seen.startswith("base is ERROR on ")
    assert re.match(r"b ahead on all \d+ cases", take.seen)


@pytest.mark.parametrize("status", ["INCORRECT", "INVALID"])
def test_who_is_wrong_on_some_cases_is_praised_for_none(tmp_path: Path, status: str) -> None:
    """Not for its speed, nor for how near it is to a roof; what is wrong is said instead."""

    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        hit = status == "INCORRECT" and contender == "ours" and block is None and case.endswith("-s512")
        return {"status": "INCORRECT", "reason": "far off"} if hit else None

    def beyond_physics(contender: str, case: Any) -> float:
        return 1e3 if status == "INVALID" and contender == "ours" and case["S"] == 512 else 1.0

    rates = {"cudnn": 4e14, "ours": 6e14, "right": 5e14}
    wanted = {**LENGTHS, "judged": ["ours", "right"]}
    judgement = sweep_of(tmp_path, rates, wrong, rate=beyond_physics, processes=2, **wanted)
    verdicts = [c.verdict for case in judgement.cases if (c := case.result("ours").comparison)]
    assert verdicts == ["FASTER"] * 4, "so there is something to be tempted by"
    first, second, *others = interpretation(judgement)
    assert first.startswith(f"ours is {status} on 2 of 6 cases (")
    assert ("far off." if status == "INCORRECT" else "the work cannot have been done.") in first
    assert second == "The speed of ours on the other cases is not given here, because it is wrong on some."
    assert any("right is faster than cudnn on 6 of 6 cases" in said for said in others)
    assert not any("ours" in said for said in others)
    assert sum("ours" in advice.seen for advice in recommendations(judgement)) == 1, "mend it"


def test_what_is_unclear_comes_with_what_would_settle_it(tmp_path: Path) -> None:
    generator = random.Random(7)
    offset = {"a": 1.02, "b": 1.0}

    def noisy(contender: str, case: str, block: int) -> float:
        if block == 0:
            offset["now"] = generator.lognormvariate(0, 0.02)
        return (
            1e-3
            / (offset[contender] * (offset["now"] if contender == "a" else 1.0))
            * generator.lognormvariate(0, 0.002)
        )

    judgement = judgement_of(tmp_path, {"b": 1e-3, "a": 1e-3}, seconds=noisy, judged=["a"])
    needed = [c.needed for case in judgement.cases for r in case.results if (c := r.comparison)]
    assert all(n is None or n > 4 for n in needed)
    settled = [n for n in needed if n is not None]
    assert settled
    assert any(f"--processes {max(settled)} for all of them" in advice.try_ for advice in recommendations(judgement))
    assert any(" is unclear on " in said and "would settle it" in said for said in interpretation(judgement))


def test_whoever_is_wrong_is_to_be_mended_and_nobody_else_is_named(tmp_path: Path) -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "b" else None

    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 1e-3}, wrong)
    assert recommendations(judgement)[0].seen.startswith("b is INCORRECT on 2 cases (")
    (said,) = interpretation(judgement)
    assert re.fullmatch(r"b is INCORRECT on 2 of 2 cases \(b.+, b.+\): far off\.", said)


def test_from_a_baseline_alone_nothing_follows(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, {"a": 1e-3})
    assert recommendations(judgement) == []
    assert f"## Recommendations\n\n{NOTHING}\n" in markdown.to_markdown(judgement, IDENTITY)


def test_of_one_process_nobody_is_recommended(tmp_path: Path) -> None:
    judgement = judgement_of(tmp_path, {"a": 1e-3, "b": 2e-3}, processes=1)
    assert interpretation(judgement) == []
    assert [advice.try_ for advice in recommendations(judgement)] == ["measure in several, as every preset does"]
