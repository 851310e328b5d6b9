"""D3: a repetition says of every claim whether new evidence agrees, disagrees or is too weak."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import fake_run, noisy
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.reproduction import overall, repeated
from groundspeed.report.reproduction import differences, lines


def run(folder: Path, ours: float, noise: float = 0.003, seed: int = 7) -> Judgement:
    return judge(fake_run(folder, noisy({"base": 1e-3, "ours": ours}, noise), ["base", "ours"], seed=seed))


@pytest.fixture
def then(tmp_path: Path) -> Judgement:
    return run(tmp_path / "then", 0.8e-3)


@pytest.mark.parametrize(
    ("ours", "noise", "answer", "word"),
    [
        (0.8e-3, 0.003, "agrees", "reproduced"),
        (0.9e-3, 0.003, "agrees", "reproduced"),
        (1.2e-3, 0.003, "disagrees", "not reproduced"),
        (1e-3, 0.003, "disagrees", "not reproduced"),
        (0.8e-3, 2.0, "too weak", "not decided"),
    ],
)
def test_each_claim_has_its_answer(
    then: Judgement, tmp_path: Path, ours: float, noise: float, answer: str, word: str
) -> None:
    claims = repeated(then, run(tmp_path / "now", ours, noise, seed=8))
    assert next(claim.what for claim in claims) == "all 2 cases"
    assert len(claims) == 3
    assert {claim.answer for claim in claims} == {answer}
    assert overall(claims) == word
    assert list(lines(claims))[-1] == f"{word}: 3 {answer}"


def test_who_is_missing_is_not_measured(then: Judgement, tmp_path: Path) -> None:
    now = judge(fake_run(tmp_path / "now", noisy({"base": 1e-3, "other": 1e-3}), ["base", "other"]))
    claims = repeated(then, now)
    assert {claim.answer for claim in claims} == {"not measured"}
    assert overall(claims) == "not decided"
    assert "it was not measured here" in next(iter(lines(claims)))


def test_where_there_was_no_claim_there_is_nothing_to_reproduce(tmp_path: Path) -> None:
    unclear = run(tmp_path / "then", 0.99e-3, 0.5)
    assert repeated(unclear, unclear) == []
    assert list(lines([])) == ["not decided: the earlier run made no claim"]


def test_other_hardware_is_said(then: Judgement, tmp_path: Path) -> None:
    from dataclasses import replace

    now = replace(run(tmp_path / "now", 0.8e-3), device_name="Another CPU")
    assert list(differences(then, then)) == []
    assert list(differences(then, now)) == ["other hardware: Test CPU (1 thread) then, Another CPU now"]
