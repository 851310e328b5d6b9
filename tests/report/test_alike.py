"""Doubts with the same reason stand together, whatever its numbers are: a line for each contender and reason."""

from __future__ import annotations

import random
import re

import pytest
from judgements import judgement_of

from groundspeed.judge.claims import why
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.regression import Change
from groundspeed.report import words
from groundspeed.report.alike import together, without_numbers
from groundspeed.report.interpretation import interpretation
from groundspeed.report.regression import reasons

SHAPES = [f"B={b},S={64 * b},causal=0" for b in (1, 2, 3, 4)]


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """Two contenders a little faster than the baseline, which itself is another one in every process."""
    generator = random.Random(11)
    mood: dict[str, float] = {}

    def seconds(contender: str, case: str, block: int) -> float:
        if block == 0:
            mood[contender] = generator.lognormvariate(0, 0.02)
        ahead = 1.0 if contender == "a" else 1.02
        return 1e-3 / ahead * mood[contender] * generator.lognormvariate(0, 0.002)

    means = dict.fromkeys("abc", 0.001)
    return judgement_of(
        tmp_path_factory.mktemp("doubtful"), means, seconds=seconds, judged=["b", "c"], shapes=SHAPES, looks=(10,)
    )


def unclear(judgement: Judgement) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case in judgement.cases:
        for result in case.results:
            if result.comparison and result.comparison.verdict == "UNCLEAR":
                found.setdefault(result.contender, []).append(why(result.comparison))
    return found


def test_a_run_has_a_line_for_each_contender_and_reason(doubtful: Judgement) -> None:
    every = unclear(doubtful)
    assert all(len(set(said)) > 1 for said in every.values()), "each has its own numbers"
    notes = [note.sentence for note in words.notes(doubtful) if note.word == "UNCLEAR"]
    kinds = {(who, without_numbers(said)) for who, some in every.items() for said in some}
    assert len(notes) == len(kinds) < sum(map(len, every.values()))
    told = sum(1 + int((re.findall(r"and (\d+) more case", note) or ["0"])[0]) for note in notes)
    assert told == sum(map(len, every.values())), "every case is counted"
    needed = [int(n) for said in every["b"] for n in re.findall(r"--processes (\d+)", said)]
    assert any(f", b: --processes {min(needed)} to {max(needed)} would settle it" in note for note in notes)
    assert sum(" is unclear on " in said for said in interpretation(doubtful)) == len(kinds)


def test_so_has_a_comparison() -> None:
    changes = [
        Change("one", "mine", "UNCLEAR", "the difference of -1.2% is under the default floor of 3.0%", lowest=-0.02),
        Change("two", "mine", "UNCLEAR", "the difference of +0.4% is under the default floor of 3.0%", lowest=-0.01),
        Change("two", "theirs", "UNCLEAR", "the difference of +0.4% is under the default floor of 3.0%", lowest=0.001),
        Change("six", "mine", "REGRESSED", "p = 0.01 after Holm over 4"),
        Change("ten", "mine", "REGRESSED", "p = 3e-05 after Holm over 4"),
    ]
    assert [said for _, said in reasons(changes)] == [
        "one and 1 more case, mine: the difference of -1.2 to +0.4% is under the default floor of 3.0%; the evidence "
        "leaves room for a slow-down of 2.0%",
        "two, theirs: the difference of +0.4% is under the default floor of 3.0%; the evidence leaves no room for a "
        "slow-down",
        "six and 1 more case, mine: p = 3e-05 to 0.01 after Holm over 4",
    ]


def test_digits_of_a_name_are_no_number() -> None:
    one, two = "flash-attn-2 on s4096 failed in 3 calls", "flash-attn-3 on s4096 failed in 3 calls"
    assert without_numbers(one) != without_numbers(two)
    assert together([one, one.replace("3", "1,024")]) == "flash-attn-2 on s4096 failed in 3 to 1,024 calls"
