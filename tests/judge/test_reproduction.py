"""D3: a repetition says of every claim whether new evidence agrees, disagrees or is too weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import fake_run, noisy
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.reproduction import overall, repeated, with_repetitions
from groundspeed.report import words
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
    now = replace(run(tmp_path / "now", 0.8e-3), device_name="Another CPU")
    assert list(differences(then, then)) == []
    assert list(differences(then, now)) == ["other hardware: Test CPU (1 thread) then, Another CPU now"]


def test_where_the_size_is_another_that_is_said(then: Judgement, tmp_path: Path) -> None:
    same, other = (run(tmp_path / str(ours), ours, seed=8) for ours in (0.8e-3, 0.9e-3))
    assert not any("do not meet" in line for line in lines(repeated(then, same)))
    assert [line.endswith("; the intervals do not meet") for line in lines(repeated(then, other))] == [True] * 3 + [
        False
    ]


class TestTrust:
    """D6: each claim says how far it can be trusted."""

    def levels(self, judgement: Judgement) -> set[str]:
        claims = [sentence for _, sentence in words.claim_lines(judgement)] + list(words.case_claims(judgement))
        assert len(claims) == 3
        return {claim.rpartition("; trust: ")[2] for claim in claims}

    def test_who_shares_a_process_must_cooperate(self, then: Judgement) -> None:
        assert self.levels(then) == {"cooperative"}

    def test_who_has_one_of_his_own_is_isolated(self, then: Judgement) -> None:
        record = replace(then.record, protocol=replace(then.record.protocol, isolated=True))
        assert self.levels(replace(then, record=record)) == {"isolated"}

    @pytest.mark.parametrize(
        ("ours", "noise", "level"),
        [
            (0.8e-3, 0.003, "cooperative, reproduced"),
            (1.2e-3, 0.003, "cooperative, not reproduced"),
            (0.8e-3, 2.0, "cooperative"),
        ],
    )
    def test_a_repetition_counts_where_it_is_decided(
        self, then: Judgement, tmp_path: Path, ours: float, noise: float, level: str
    ) -> None:
        again = run(tmp_path / "now", ours, noise, seed=8)
        assert self.levels(with_repetitions(then, [again])) == {level}

    def test_other_hardware_is_elsewhere(self, then: Judgement, tmp_path: Path) -> None:
        here = run(tmp_path / "here", 0.8e-3, seed=8)
        there = replace(run(tmp_path / "there", 0.8e-3, seed=9), device_name="Another CPU")
        assert self.levels(with_repetitions(then, [here, there])) == {"cooperative, reproduced elsewhere"}

    def test_so_is_another_gpu_of_the_same_model(self, then: Judgement, tmp_path: Path) -> None:
        there = run(tmp_path / "there", 0.8e-3, seed=9)
        processes = tuple(replace(process, gpu="0123") for process in there.record.processes)
        there = replace(there, record=replace(there.record, processes=processes))
        assert self.levels(with_repetitions(then, [there])) == {"cooperative, reproduced elsewhere"}

    def test_one_that_disagrees_outweighs_those_that_agree(self, then: Judgement, tmp_path: Path) -> None:
        others = [run(tmp_path / str(ours), ours, seed=8) for ours in (0.8e-3, 1.2e-3)]
        assert self.levels(with_repetitions(then, others)) == {"cooperative, not reproduced"}
