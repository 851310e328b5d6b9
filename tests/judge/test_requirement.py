"""`--require`: verdicts into yes, no or not decided; thin evidence is never a yes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import noisy
from groundspeed.errors import BadInput
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result, judge
from groundspeed.judge.requirement import REQUIREMENTS, Answer, Requirement, parse, requirement
from groundspeed.judge.statistics import t_interval
from groundspeed.judge.verdict import Comparison, Verdict
from records import comparison, run

BOTH = {"faster", "not-slower"}


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    """Two cases, on which `ours` is judged against `base`."""
    return judge(run())


def verdict(word: Verdict | None, *thetas: float) -> Comparison:
    return replace(comparison(*thetas or (0.1, 0.2)), verdict=word)


def changed(judgement: Judgement, *results: dict[str, object]) -> Judgement:
    """The judgement with something else about `ours`, case by case."""

    def case(before: CaseJudgement, changes: dict[str, object]) -> CaseJudgement:
        def result(r: Result) -> Result:
            return replace(r, **changes) if r.contender == "ours" else r  # type: ignore[arg-type]

        return replace(before, results=tuple(result(r) for r in before.results))

    return replace(judgement, cases=tuple(map(case, judgement.cases, results)))


def met(judgement: Judgement) -> set[str]:
    return {wanted for wanted in REQUIREMENTS if requirement(judgement, wanted).word == "met"}


@pytest.mark.parametrize(("word", "by"), [("FASTER", BOTH), ("SAME", {"not-slower"}), ("SLOWER", set())])
def test_a_verdict_meets_it_or_not(judgement: Judgement, word: Verdict, by: set[str]) -> None:
    faster = {"comparison": verdict("FASTER")}
    found = changed(judgement, faster, {"comparison": verdict(word)})
    assert met(found) == by
    where = f"{found.cases[1].facts.name}, ours"
    for wanted in REQUIREMENTS:
        answer = requirement(found, wanted)
        assert (answer.word, answer.why) == (("met", "") if wanted in by else ("not met", f"{where}: {word}"))


def test_a_no_counts_before_what_is_not_decided(judgement: Judgement) -> None:
    unclear, slower = {"comparison": verdict("UNCLEAR", -0.5, 0.5)}, {"comparison": verdict("SLOWER")}
    answer = requirement(changed(judgement, unclear, slower), "not-slower")
    assert answer.word == "not met"
    assert answer.why.endswith("ours: SLOWER")


class TestUnclear:
    def test_it_is_never_faster(self, judgement: Judgement) -> None:
        unclear = {"comparison": verdict("UNCLEAR", 0.30, 0.31)}
        answer = requirement(changed(judgement, unclear, unclear), "faster")
        assert answer.word == "not decided"
        assert answer.why.endswith("ours: UNCLEAR, and 1 more")

    @pytest.mark.parametrize(
        ("low", "plain", "word"),
        [
            (-0.0099, -0.0099, "met"),
            (-0.0101, -0.0099, "not decided"),
            (-0.0099, -0.0101, "not decided"),
            (-0.0101, -0.0101, "not decided"),
        ],
    )
    def test_it_is_not_slower_where_both_whole_intervals_are_above_the_floor(
        self, judgement: Judgement, low: float, plain: float, word: str
    ) -> None:
        """The floor for work of a millisecond is 1%. The interval is that of trimmed means, and that of plain ones."""
        around = t_interval([0.0, 0.1])
        unclear = replace(verdict("UNCLEAR"), interval=replace(around, low=low), plain=replace(around, low=plain))
        found = changed(judgement, {"comparison": unclear}, {"comparison": verdict("FASTER")})
        assert requirement(found, "not-slower").word == word

    def test_an_interval_that_is_not_believed_is_no_evidence_that_it_is_not_slower(self, judgement: Judgement) -> None:
        """As after a calibration's alarm, or where two timers disagree."""
        above = t_interval([0.1, 0.11])
        unclear = replace(verdict("UNCLEAR"), interval=above, plain=above)
        one, other = {"comparison": unclear}, {"comparison": replace(unclear, believed=False)}
        assert requirement(changed(judgement, one, one), "not-slower").word == "met"
        assert requirement(changed(judgement, one, other), "not-slower").word == "not decided"

    def test_nor_is_one_that_slow_processes_seen_beside_it_could_lower(self, judgement: Judgement) -> None:
        unclear = replace(verdict("UNCLEAR"), interval=(level := t_interval([0.0, 0.0001])), plain=level)
        for missed, word in ((0.0, "met"), (0.2, "not decided")):
            one = {"comparison": replace(unclear, missed=missed)}
            assert requirement(changed(judgement, one, one), "not-slower").word == word

    def test_outliers_that_make_the_plain_mean_slower_leave_it_open(self) -> None:
        """A tenth of the calls takes three times as long. The trimmed mean does not see them, whoever waits does."""
        usual = noisy({"base": 1e-3, "ours": 0.99e-3}, 0.002)

        def stumbling(contender: str, case: str, block: int) -> float:
            return usual(contender, case, block) * (3 if contender == "ours" and block % 10 == 4 else 1)

        found = judge(run(stumbling, ["base", "ours"]))
        for case in found.cases:
            made = case.result("ours").comparison
            assert made is not None
            assert made.verdict == "UNCLEAR"
            assert "outliers decide" in made.reason
            assert made.interval.low > 0.0
            assert made.plain.high < -5 * made.floor.value
        why = f"{found.cases[0].facts.name}, ours: UNCLEAR, and 1 more"
        assert requirement(found, "not-slower") == Answer("not decided", why)
        assert requirement(found, "faster").word == "not decided"
        steady = judge(run(usual, ["base", "ours"]))
        assert requirement(steady, "not-slower").word == "met"


class TestRatio:
    """`ours` is at about 1.16 times the speed of `base`, with an interval of some percent."""

    def word(self, judgement: Judgement, ratio: float, **more: object) -> str:
        one = {"comparison": replace(verdict("FASTER", 0.14, 0.15, 0.16), **more)}  # type: ignore[arg-type]
        return requirement(changed(judgement, one, one), ratio).word

    @pytest.mark.parametrize(
        ("ratio", "word"), [(0.5, "met"), (1.1, "met"), (1.16, "not decided"), (1.3, "not met"), (2.0, "not met")]
    )
    def test_it_is_met_if_the_whole_interval_lies_above_it(self, judgement: Judgement, ratio: float, word: str) -> None:
        assert self.word(judgement, ratio) == word

    def test_the_sentence_has_the_interval(self, judgement: Judgement) -> None:
        one = {"comparison": verdict("FASTER", 0.14, 0.15, 0.16)}
        why = f"{judgement.cases[0].facts.name}, ours: 1.16× (1.13–1.19) is under 1.3×, and 1 more"
        assert requirement(changed(judgement, one, one), 1.3) == Answer("not met", why)

    def test_what_is_within_the_floor_of_it_is_not_decided(self, judgement: Judgement) -> None:
        """The floor for work of a millisecond is 1%."""
        narrow = {"interval": (near := t_interval([0.1499, 0.15, 0.1501])), "plain": near}
        assert self.word(judgement, 1.13, **narrow) == "met"
        assert self.word(judgement, 1.157, **narrow) == "not decided"
        assert self.word(judgement, 1.167, **narrow) == "not decided"
        assert self.word(judgement, 1.19, **narrow) == "not met"

    def test_the_plain_means_are_held_against_it_too(self, judgement: Judgement) -> None:
        assert self.word(judgement, 1.1, plain=t_interval([0.0, 0.01, 0.02])) == "not decided"

    @pytest.mark.parametrize("ratio", [0.5, 2.0])
    def test_an_interval_that_is_not_believed_decides_nothing(self, judgement: Judgement, ratio: float) -> None:
        assert self.word(judgement, ratio, believed=False) == "not decided"

    def test_a_failed_contender_does_not_meet_it(self, judgement: Judgement) -> None:
        failed = {"status": "INCORRECT", "comparison": None}
        assert requirement(changed(judgement, failed, failed), 0.1).word == "not met"

    def test_no_of_one_case_in_many_allows_for_how_many_there_are(self, judgement: Judgement) -> None:
        """Of twenty ratios that are as asked, one lies under it by chance."""
        one = {"comparison": verdict("FASTER", 0.13, 0.15, 0.17)}
        many = replace(judgement, cases=judgement.cases * 20)
        few = requirement(changed(judgement, one, one), 1.25)
        assert few.word == "not met"
        assert requirement(changed(many, *[one] * 40), 1.25).word == "not decided"

    @pytest.mark.parametrize(("said", "found"), [("1.2", 1.2), (1, 1.0), (0.95, 0.95), ("faster", "faster")])
    def test_a_person_gives_a_word_or_a_number(self, said: object, found: Requirement) -> None:
        assert parse(said, "--require") == found

    @pytest.mark.parametrize("said", ["fastest", "1.2x", "nan", "inf", "0", "-1", True, None])
    def test_anything_else_is_refused_by_a_sentence(self, said: object) -> None:
        with pytest.raises(BadInput, match=r"unknown value of --require .* A number such as 1\.2 requires"):
            parse(said, "--require")


def test_times_of_tritons_interpreter_decide_nothing(judgement: Judgement) -> None:
    environment = {**judgement.record.environment, "variables": {"TRITON_INTERPRET": "1"}}
    found = replace(judgement, record=replace(judgement.record, environment=environment))
    for wanted in (*REQUIREMENTS, 0.1, 10.0):
        assert requirement(found, wanted).word == "not decided"


@pytest.mark.parametrize("wanted", REQUIREMENTS)
class TestWithoutVerdict:
    @pytest.mark.parametrize("status", ["INCORRECT", "ERROR", "OOM", "TIMEOUT", "INVALID"])
    def test_a_contender_that_failed_does_not_meet_it(
        self, judgement: Judgement, wanted: Requirement, status: str
    ) -> None:
        failed = {"status": status, "comparison": None}
        answer = requirement(changed(judgement, failed, {"comparison": verdict("FASTER")}), wanted)
        assert (answer.word, answer.why) == ("not met", f"{judgement.cases[0].facts.name}, ours: {status}")

    def test_one_that_was_not_tried_leaves_it_open(self, judgement: Judgement, wanted: Requirement) -> None:
        skipped = {"status": "SKIPPED", "comparison": None}
        answer = requirement(changed(judgement, skipped, {"comparison": verdict("FASTER")}), wanted)
        assert (answer.word, answer.why) == ("not decided", f"{judgement.cases[0].facts.name}, ours: SKIPPED")

    @pytest.mark.parametrize("nothing", [None, verdict(None)])
    def test_so_does_one_that_could_not_be_compared(
        self, judgement: Judgement, wanted: Requirement, nothing: Comparison | None
    ) -> None:
        """The baseline failed, or there was one process."""
        alone = {"comparison": nothing}
        answer = requirement(changed(judgement, alone, alone), wanted)
        assert (answer.word, answer.why) == (
            "not decided",
            f"{judgement.cases[0].facts.name}, ours: no verdict, and 1 more",
        )

    def test_so_does_one_that_was_not_measured(self, judgement: Judgement, wanted: Requirement) -> None:
        record = judgement.record
        absent = replace(judgement, record=replace(record, run=replace(record.run, judged=("absent",))))
        answer = requirement(absent, wanted)
        assert (answer.word, answer.why) == ("not decided", "absent was not measured, and 1 more")

    def test_so_does_a_run_in_which_nothing_was_judged(self, judgement: Judgement, wanted: Requirement) -> None:
        record = judgement.record
        nothing = replace(judgement, record=replace(record, run=replace(record.run, judged=())))
        answer = requirement(nothing, wanted)
        assert (answer.word, answer.why) == ("not decided", "nothing was judged")
