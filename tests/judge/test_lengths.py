"""B5: memory over the length, from what the outcomes tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import models
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
        full = contender == "naive" and case == "b2-s128"
        return {"status": "OOM", "reason": "out of memory"} if full else None

    (one,) = memory_by_length(judge(models.run(tmp_path, fault=hungry)))
    naive = one.growths[0]
    assert (list(naive.bytes), naive.statuses) == ([32, 64], {128: "OOM"})
    assert naive.growing == "quadratic"


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
