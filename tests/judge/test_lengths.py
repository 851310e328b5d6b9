"""B5: memory over the length, from what the outcomes tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import models
from groundspeed.evidence.record import Outcome
from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.judgement import judge
from groundspeed.judge.lengths import SPEC_BYTES, Growth, memory_by_length


def test_standard_first_then_flash(tmp_path: Path) -> None:
    (one,) = memory_by_length(judge(models.run(tmp_path)))
    assert list(one.cases) == [32, 64, 128]
    assert [growth.contender for growth in one.growths] == ["naive", "sdpa", "ours", "sdpa-compiled"]
    assert one.growths[0].bytes == {length: models.scores("naive", length) for length in one.cases}
    assert {growth.contender: growth.growing for growth in one.growths} == {
        "naive": "quadratic",
        "sdpa": "linear",
        "ours": "linear",
        "sdpa-compiled": "linear",
    }
    assert one.growths[1].power == pytest.approx(1.0)


def test_out_of_memory_is_an_answer(tmp_path: Path) -> None:
    def hungry(contender: str, case: Any, block: int | None) -> Any:
        full = contender == "naive" and case == "b8-s128"
        return {"status": "OOM", "reason": "out of memory"} if full else None

    (one,) = memory_by_length(judge(models.run(tmp_path, fault=hungry)))
    naive = one.growths[0]
    assert (list(naive.bytes), naive.statuses) == ([32, 64], {128: "OOM"})
    assert naive.growing == "quadratic"


@pytest.mark.parametrize(("status", "told"), [("SKIPPED", True), ("TIMEOUT", True), ("INCORRECT", False)])
def test_memory_counts_where_the_gate_passed_and_time_was_short(tmp_path: Path, status: Any, told: bool) -> None:
    """In the first process, as of a call that is too slow for a preset; in others it is not tried again."""
    record = models.run(tmp_path)
    longest = record.cases[2].name

    def untimed(o: Outcome) -> Outcome:
        if (o.case, o.contender) != (longest, "naive"):
            return o
        if o.process:
            return Outcome(o.process, o.attempt, o.case, o.contender, "SKIPPED", "not tried again", None)
        return replace(o, status=status, reason="a call takes 9 s", max_abs=0.0)

    judgement = judge(replace(record, outcomes=tuple(map(untimed, record.outcomes))))
    naive = memory_by_length(judgement)[0].growths[0]
    assert naive.statuses == {128: status}
    assert naive.bytes.get(128) == (models.scores("naive", 128) if told else None)


@pytest.mark.parametrize(
    ("amounts", "growing"),
    [
        ({}, None),
        ({32: 5}, None),
        ({32: 0, 64: 0}, None),
        ({32: 0, 64: 7}, None),
        ({32: 10, 64: 20}, "linear"),
        ({32: 10, 64: 40}, "quadratic"),
        ({32: 10, 64: 28}, "between"),
        ({32: 1, 64: 2**60}, "quadratic"),
        ({32: 10, 64: 5}, "linear"),
    ],
)
def test_growth(amounts: dict[int, int], growing: str | None) -> None:
    assert Growth("x", amounts, {}).growing == growing


def test_two_lengths_and_untold_memory_say_nothing(tmp_path: Path) -> None:
    assert memory_by_length(judge(models.run(tmp_path / "two", models.SHAPES[:2]))) == ()
    (one,) = memory_by_length(judge(models.run(tmp_path / "untold", memory=lambda contender, length: None)))
    assert all(growth.power is None and not growth.bytes for growth in one.growths)


def test_the_specification_says_the_same_elsewhere() -> None:
    told = {target.case: target.goals["target"] for target in packaged().targets if target.suite == "memory"}
    assert told == {f"s{length}": flash for length, (_, flash) in SPEC_BYTES.items()}
