"""Claims in words: generated from evidence, never typed (A11)."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from fakes import noisy
from groundspeed.evidence.record import Record
from groundspeed.judge.claims import case_claim, category_of, conditions, headline, ratio_text, with_interval
from groundspeed.judge.judgement import Judgement, against, judge
from groundspeed.judge.statistics import Interval
from records import MEANS, biased, comparison, constant, on_gpu, run


def interval(ratio: float, low: float, high: float) -> Interval:
    return Interval(math.log(ratio), math.log(low), math.log(high), sd=0.01, p=0.01, n=4)


ONE_CASE = ("B=1,S=64,causal=0",)


def said(judgement: Judgement) -> tuple[bool, str]:
    return headline(judgement, judgement.grids[0])


@pytest.fixture(scope="module")
def record() -> Record:
    return run()


class TestText:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.0, "0.00"),
            (0.00000123, "1.2e-06"),
            (0.0041, "0.0041"),
            (0.04, "0.040"),
            (0.094, "0.094"),
            (0.0951, "0.10"),
            (0.984, "0.98"),
            (1.0, "1.00"),
            (1.724, "1.72"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.94, "99.9"),
            (99.96, "100"),
            (140.4, "140"),
        ],
    )
    def test_a_ratio_has_two_or_three_figures(self, value: float, text: str) -> None:
        assert ratio_text(value) == text

    def test_the_demonstrated_form(self) -> None:
        assert with_interval(interval(1.72, 1.6, 1.84), "95% CI ") == "1.72× (95% CI 1.60–1.84)"

    @pytest.mark.parametrize(
        ("low", "high", "text"),
        [
            (0.7481, 0.7502, "0.749× (0.748–0.750)"),
            (0.74895, 0.74915, "0.7490× (0.7490–0.7491)"),
            (0.749, 0.749, "0.7490× (0.7490–0.7490)"),
            (0.74, 0.76, "0.75× (0.74–0.76)"),
        ],
    )
    def test_the_ends_of_an_interval_can_be_told_apart(self, low: float, high: float, text: str) -> None:
        assert with_interval(interval(0.74903, low, high)) == text

    def test_of_one_process_there_is_no_interval(self) -> None:
        assert with_interval(replace(interval(1.72, 1.6, 1.84), n=1)) == "1.72×"

    def test_conditions_are_the_parameters_of_the_case(self, record: Record) -> None:
        assert conditions(record.cases[0]) == "B=1 H=8 S=64 D=64 fp32 full"
        causal = replace(record.cases[0], params={"S": 7, "dtype": "bf16", "causal": True, "direction": "backward"})
        assert conditions(causal) == "S=7 bf16 causal backward"


class TestCase:
    def test_a_claim_about_a_case(self, record: Record) -> None:
        """A11: ratio, 95% interval, conditions and device, from the samples."""
        judgement = judge(record)
        case = judgement.cases[0]
        claim = case_claim(judgement, case, case.result("ours"))
        assert claim is not None
        found = re.fullmatch(
            r"ours is faster: (\d\.\d\d)× \(95% CI (\d\.\d\d)–(\d\.\d\d)\) vs base, B=1 H=8 S=64 D=64 fp32 full, "
            r"Test CPU \(1 thread\); trust: cooperative",
            claim,
        )
        assert found
        ratio, low, high = map(float, found.groups())
        assert low <= ratio <= high
        assert ratio == pytest.approx(1.25, abs=0.02)

    @pytest.mark.parametrize(
        ("mean", "word"),
        [
            (1.3e-3, r"slower: 0\.7[67]\d*×"),
            (
                1e-3,
                r"the same within 1% \(a difference of 1\.0\d× or more would have been noticed\): (0\.99|1\.00)\d*×",
            ),
            (5e-4, r"faster: (1\.99|2\.00)\d*×"),
        ],
    )
    def test_its_word_is_the_verdict(self, mean: float, word: str) -> None:
        judgement = judge(run(noisy({"base": 1e-3, "ours": mean}, 0.002), ["base", "ours"]))
        case = judgement.cases[0]
        assert re.match(f"ours is {word}", str(case_claim(judgement, case, case.result("ours"))))

    def test_no_claim_for_the_baseline_or_without_a_verdict(self, record: Record) -> None:
        judgement = judge(record)
        case = judgement.cases[0]
        assert case_claim(judgement, case, case.result("base")) is None
        single = judge(run(processes=1))
        assert case_claim(single, single.cases[0], single.cases[0].result("ours")) is None

    def test_no_claim_where_it_is_unclear(self) -> None:
        judgement = judge(run(constant(MEANS), list(MEANS)))
        case = judgement.cases[0]
        assert case_claim(judgement, case, case.result("ours")) is None

    def test_no_claim_for_a_contender_outside_the_family(self) -> None:
        judgement = judge(run({**MEANS, "other": 0.5e-3}, judged=["ours"]))
        case = judgement.cases[0]
        assert case.result("other").comparison is not None
        assert case_claim(judgement, case, case.result("other")) is None

    def test_the_device_is_named_as_it_calls_itself(self, record: Record) -> None:
        assert judge(on_gpu(record, "NVIDIA H200 NVL")).device_name == "NVIDIA H200 NVL"
        nameless = replace(record, environment={"cpu": {"name": ""}})
        assert judge(nameless).device_name == "unknown cpu (1 thread)"
        threads = replace(record, protocol=replace(record.protocol, threads=3))
        assert judge(threads).device_name == "Test CPU (3 threads)"


class TestHeadline:
    def test_over_the_whole_grid(self, record: Record) -> None:
        """D7: the geometric mean with wins, ties and losses, not the best shape."""
        supported, sentence = said(judge(record))
        assert supported
        assert re.fullmatch(
            r"ours is faster: 1\.2\d+× \(95% CI 1\.2\d+–1\.2\d+\) vs base, geometric mean over 2 fp32 cases of "
            r"attention \(2 faster, 0 same, 0 slower, 0 unclear\), Test CPU \(1 thread\); trust: cooperative",
            sentence,
        )

    def test_slower(self) -> None:
        supported, sentence = said(judge(run({"base": 1e-3, "ours": 2e-3})))
        assert supported
        assert re.match(r"ours is slower: 0\.(49|50)\d*×", sentence)

    def test_a_case_that_failed_is_counted_in_the_sentence(self) -> None:
        shapes = ("B=1,S=64,causal=0", "B=2,S=64,causal=0", "B=3,S=64,causal=0")

        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "OOM", "reason": "too big"} if (contender, case) == ("ours", "b3-s64") else None

        supported, sentence = said(judge(run(fault=fault, shapes=shapes)))
        assert supported
        assert "geometric mean over only 2 of 3 fp32 cases" in sentence
        assert "0 unclear, 1 OOM" in sentence

    def test_one_case_is_claimed_with_its_conditions(self) -> None:
        supported, sentence = said(judge(run(shapes=ONE_CASE)))
        assert supported
        assert "B=1 H=8 S=64 D=64 fp32 full" in sentence

    def test_one_unclear_case_says_why(self) -> None:
        supported, sentence = said(judge(run(constant(MEANS), list(MEANS), shapes=ONE_CASE)))
        assert not supported
        assert re.fullmatch(r"No claim about ours: .*clock is too coarse.*; without a spread .* noticed\.", sentence)

    def test_none_by_chance(self) -> None:
        supported, sentence = said(judge(run(noisy({"base": 1e-3, "ours": 1e-3}, 0.1), list(MEANS))))
        assert not supported
        assert "the geometric mean over 2 cases is" in sentence
        assert re.search(r"\); only a difference of 1\.\d\d× or more would have been noticed; 0 faster", sentence)
        assert "floor" not in sentence

    def test_none_under_the_floor(self) -> None:
        """D2."""
        supported, sentence = said(judge(run(noisy({"base": 1.02e-5, "ours": 1e-5}, 0.001), list(MEANS))))
        assert not supported
        assert "below the default floor of 3.0%; only a difference of 1.03× or more would have been noticed" in sentence
        assert sentence.endswith("; 0 faster, 0 same, 0 slower, 2 unclear.")

    def test_none_in_doubt_however_large_the_mean_is(self) -> None:
        supported, sentence = said(judge(biased(run())))
        assert not supported
        assert re.search(r"raised its alarm.*; a difference of \d\.\d\d× or more would otherwise have been", sentence)

    def test_none_from_a_mean_that_no_case_shows(self, record: Record) -> None:
        judgement = judge(record)
        none = replace(judgement.grids[0], verdicts={"FASTER": 0, "SAME": 0, "SLOWER": 0, "UNCLEAR": 2})
        supported, sentence = headline(judgement, none)
        assert not supported
        assert re.search(r"\), but no case by itself shows it; a difference of .* would otherwise have been", sentence)

    def test_the_same_as_a_baseline_that_was_chosen_afterwards(self) -> None:
        """As every claim about such a baseline."""
        means = {"base": 1e-3, "ours": 0.5e-3, "like-ours": 0.5e-3}
        found = judge(against(run(noisy(means, 0.001), list(means), judged=["ours"]), "like-ours"))
        assert re.match(r"ours is the same within 1% \(.*\): .* vs like-ours \(chosen afterwards\), ", said(found)[1])

    def test_none_from_a_coarse_clock(self) -> None:
        supported, sentence = said(judge(run(constant(MEANS), list(MEANS))))
        assert not supported
        assert "over 2 cases, all processes agree to the last digit" in sentence
        assert "2 unclear" in sentence

    def test_none_from_an_interrupted_run(self) -> None:
        supported, sentence = said(judge(run(finished=2)))
        assert not supported
        assert "2 of 4 declared processes were measured; finish it with --resume" in sentence
        assert re.search(r"; a difference of \d\.\d\d× or more would otherwise have been noticed\.$", sentence)
        assert said(judge(run(finished=1)))[1].endswith("finish it with --resume.")

    def test_none_from_one_process(self) -> None:
        """statistics.md 14."""
        supported, sentence = said(judge(run(processes=1)))
        assert not supported
        assert "this ratio comes from a single process (1.2" in sentence
        assert sentence.endswith("no verdict.")

    def test_none_from_one_process_that_failed(self) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "INCORRECT", "reason": "wrong"} if contender == "ours" else None

        assert said(judge(run(processes=1, fault=fault)))[1] == "No claim about ours: ours was INCORRECT (wrong)."

    @pytest.mark.parametrize("culprit", ["ours", "base"])
    def test_none_where_there_is_no_pair(self, culprit: str) -> None:
        def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "INCORRECT", "reason": "off by 3"} if contender == culprit else None

        supported, sentence = said(judge(run(fault=fault)))
        assert not supported
        assert sentence == f"No claim about ours: {culprit} was INCORRECT (off by 3)."

    def test_none_without_a_case(self, record: Record) -> None:
        empty = replace(
            record,
            cases=(),
            outcomes=(),
            stops=(),
            samples={name: column[:0] for name, column in record.samples.items()},
        )
        assert said(judge(empty)) == (False, "No claim about ours: there is no pair to compare.")


def test_a_category_is_given_only_with_an_interval() -> None:
    """C1."""
    assert category_of(comparison(0.5, 0.51, 0.52)) == "excellent"
    assert category_of(comparison(0.05, 0.5, 0.3)) == "investigate to excellent"
    assert category_of(comparison(0.5)) is None
