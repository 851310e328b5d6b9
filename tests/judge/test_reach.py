"""What a run leaves open: a harder baseline beside the declared one, and lengths that no case has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import Fault, noisy
from groundspeed.judge.claims import headline
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.reach import harder_baseline, whole_lengths
from groundspeed.report.words import notes
from records import run

MEANS = {"base": 1e-3, "ours": 0.8e-3, "flash": 0.5e-3, "slower": 2e-3}


def of(means: dict[str, float], *judged: str, noise: float = 0.005, files: tuple[str, ...] = ()) -> Judgement:
    record = run(noisy(means, noise), list(means), judged=judged)
    return judge(replace(record, run=replace(record.run, with_files=files)))


def said(judgement: Judgement, word: str) -> list[str]:
    return [note.sentence for note in notes(judgement) if note.word == word]


class TestHarderBaseline:
    def test_who_is_faster_than_the_baseline_and_not_judged_is_named(self) -> None:
        found = of(MEANS, "ours")
        assert harder_baseline(found) == ("flash", 2)
        assert said(found, "baseline") == [
            "flash is faster than base on 2 of 2 cases; use --baseline flash to compare with it"
        ]

    def test_who_is_judged_has_a_verdict(self) -> None:
        assert harder_baseline(of(MEANS, "ours", "flash")) is None

    def test_nobody_where_all_others_are_slower_or_not_told_apart(self) -> None:
        assert harder_baseline(of({"base": 1e-3, "ours": 5e-4, "slower": 2e-3, "same": 1e-3}, "ours")) is None
        assert harder_baseline(of({"base": 1e-3, "ours": 5e-4, "noisy": 0.97e-3}, "ours", noise=0.4)) is None
        assert said(of({"base": 1e-3, "ours": 5e-4}, "ours"), "baseline") == []


class TestLengths:
    def test_whole_tiles_alone_are_said_of_somebodys_own_contenders(self) -> None:
        found = of(MEANS, "ours", files=("mine.py",))
        assert whole_lengths(found) == [64]
        (line,) = said(found, "lengths")
        assert line.startswith("only 64; a kernel wrong at others passes: also run --shape S=777,D=96")

    def test_not_of_ours(self) -> None:
        assert said(of(MEANS, "ours"), "lengths") == []

    @pytest.mark.parametrize(
        ("shapes", "lengths"),
        [
            (("B=1,S=64,causal=0", "B=1,S=777,causal=0"), []),
            (("B=1,S=64,N=65,causal=0",), []),
            (("B=1,S=32,causal=0", "B=1,S=1024,N=2048,causal=0"), [32, 1024, 2048]),
        ],
    )
    def test_one_other_length_is_enough(self, shapes: tuple[str, ...], lengths: list[int]) -> None:
        record = run(noisy(MEANS, 0.01), list(MEANS), shapes=shapes)
        assert whole_lengths(judge(replace(record, run=replace(record.run, with_files=("mine.py",))))) == lengths


@pytest.mark.parametrize("processes", [1, 4])
def test_why_there_is_no_claim_is_what_went_wrong_first(processes: int) -> None:
    """Not that a single process proves nothing, and not that other cases were left out because of it."""
    reasons = {"b1-s64": ("SKIPPED", "too slow on another case"), "b2-s64": ("TIMEOUT", "no result in 30 s")}

    def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        status, reason = reasons[case]
        return {"status": status, "reason": reason} if contender == "ours" and block is None else None

    hangs: Fault = fault
    found = judge(run({"base": 1e-3, "ours": 1e-3}, fault=hangs, processes=processes))
    (grid,) = found.grids
    assert headline(found, grid) == (False, "No claim about ours: ours was TIMEOUT (no result in 30 s).")
