"""D3: a repetition says of every claim whether new evidence agrees, disagrees or is too weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import fake_run, noisy
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.reproduction import is_elsewhere, is_repetition, overall, repeated, with_repetitions
from groundspeed.report import words
from groundspeed.report.reproduction import differences, lines


def run(folder: Path, ours: float, noise: float = 0.003, seed: int = 7) -> Judgement:
    """What was measured first has the first seed, and what has a later one was measured later."""
    record = fake_run(folder, noisy({"base": 1e-3, "ours": ours}, noise), ["base", "ours"], seed=seed)
    dates = {"started": f"20{seed:02}-01-01T00:00:00+00:00", "finished": f"20{seed:02}-01-01T00:01:00+00:00"}
    return judge(replace(record, run=replace(record.run, **dates)))


@pytest.fixture
def then(tmp_path: Path) -> Judgement:
    return run(tmp_path / "then", 0.8e-3)


@pytest.mark.parametrize(
    ("ours", "noise", "answer", "last"),
    [
        (0.8e-3, 0.003, "agrees", "reproduced: 3 agree"),
        (0.9e-3, 0.003, "agrees", "reproduced: 3 agree"),
        (1.2e-3, 0.003, "disagrees", "not reproduced: 3 disagree"),
        (1e-3, 0.003, "disagrees", "not reproduced: 3 disagree"),
        (0.8e-3, 2.0, "too weak", "not decided: 3 too weak"),
    ],
)
def test_each_claim_has_its_answer(
    then: Judgement, tmp_path: Path, ours: float, noise: float, answer: str, last: str
) -> None:
    claims = repeated(then, run(tmp_path / "now", ours, noise, seed=8))
    assert next(claim.what for claim in claims) == "all 2 cases"
    assert len(claims) == 3
    assert {claim.answer for claim in claims} == {answer}
    assert overall(claims) == last.partition(":")[0]
    assert list(lines(claims))[-1] == last


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


def test_who_failed_on_a_case_made_no_claim_over_all_of_them(tmp_path: Path) -> None:
    def fault(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        wrong = contender == "ours" and case.startswith("b2-")
        return {"status": "INCORRECT", "reason": "off by 3"} if wrong else None

    runs = [
        judge(fake_run(tmp_path / str(seed), noisy({"base": 1e-3, "ours": 0.8e-3}), ["base", "ours"], fault, seed=seed))
        for seed in (7, 8)
    ]
    assert [grid.failed for grid in runs[0].grids if grid.contender == "ours"] == [{"INCORRECT": 1}]
    assert [(claim.what, claim.answer) for claim in repeated(*runs)] == [("b1-h8-s64-d64-full-fp32", "agrees")]


def test_other_hardware_is_said(then: Judgement, tmp_path: Path) -> None:
    now = replace(run(tmp_path / "now", 0.8e-3), device_name="Another CPU")
    assert list(differences(then, then)) == []
    assert list(differences(then, now)) == ["other hardware: Test CPU (1 thread) then, Another CPU now"]


def test_where_the_size_is_another_that_is_said(then: Judgement, tmp_path: Path) -> None:
    same, other = (run(tmp_path / str(ours), ours, seed=8) for ours in (0.8e-3, 0.9e-3))
    assert not any("do not overlap" in line for line in lines(repeated(then, same)))
    assert [line.endswith("; the intervals do not overlap") for line in lines(repeated(then, other))] == [True] * 3 + [
        False
    ]


@pytest.mark.parametrize("name", ["base", "ours"])
def test_a_file_that_has_changed_repeats_nothing(then: Judgement, tmp_path: Path, name: str) -> None:
    now = run(tmp_path / "now", 0.8e-3, seed=8)
    changed = tuple(replace(c, source_sha256="ab" * 32) if c.name == name else c for c in now.record.contenders)
    now = replace(now, record=replace(now.record, contenders=changed))
    claims = repeated(then, now)
    assert {(claim.answer, claim.why) for claim in claims} == {("not measured", "its file has changed")}
    assert overall(claims) == "not decided"
    assert list(differences(then, now)) == [f"{name}: its file has changed; what is measured now is another contender"]


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

    def moved(self, judgement: Judgement, **cpu: Any) -> Judgement:
        environment = {**judgement.record.environment, "cpu": {"name": "Test CPU", "cores": 2, **cpu}}
        return replace(judgement, record=replace(judgement.record, environment=environment))

    @pytest.mark.parametrize("cpu", [{"name": "Another CPU"}, {"cores": 64}])
    def test_other_hardware_is_elsewhere(self, then: Judgement, tmp_path: Path, cpu: dict[str, Any]) -> None:
        here = run(tmp_path / "here", 0.8e-3, seed=8)
        there = self.moved(run(tmp_path / "there", 0.8e-3, seed=9), **cpu)
        assert self.levels(with_repetitions(then, [here, there])) == {"cooperative, reproduced elsewhere"}

    @pytest.mark.parametrize(
        ("before", "after", "far"),
        [("a", "b", True), ("a", "a", False), ("ab", "b", False), (None, "b", False), ("a", None, False)],
    )
    def test_so_is_another_gpu_of_the_same_model_where_both_are_known(
        self, then: Judgement, tmp_path: Path, before: str | None, after: str | None, far: bool
    ) -> None:
        def on(judgement: Judgement, gpus: str | None) -> Judgement:
            names = [None] * 4 if gpus is None else [gpus[i % len(gpus)] for i in range(4)]
            processes = tuple(replace(p, gpu=g) for p, g in zip(judgement.record.processes, names, strict=True))
            run = replace(judgement.record.run, device="cuda")
            return replace(judgement, record=replace(judgement.record, run=run, processes=processes))

        there = run(tmp_path / "there", 0.8e-3, seed=9)
        assert is_elsewhere(on(then, before).record, on(there, after).record) == far

    def test_where_only_the_verdict_is_the_same_the_size_is_not(self, then: Judgement, tmp_path: Path) -> None:
        again = run(tmp_path / "now", 0.9e-3, seed=8)
        assert self.levels(with_repetitions(then, [again])) == {"cooperative, verdict reproduced, size not"}

    def test_another_contender_of_the_same_name_repeats_nothing(self, then: Judgement, tmp_path: Path) -> None:
        again = run(tmp_path / "now", 0.8e-3, seed=8)
        for change in ({"version": "2"}, {"source_sha256": "ab" * 32}):
            for name in ("base", "ours"):
                changed = tuple(replace(c, **change) if c.name == name else c for c in again.record.contenders)
                other = replace(again, record=replace(again.record, contenders=changed))
                assert self.levels(with_repetitions(then, [other])) == {"cooperative"}

    def test_nor_does_the_same_run_or_one_before_it(self, then: Judgement, tmp_path: Path) -> None:
        again = run(tmp_path / "now", 0.8e-3, seed=8).record
        assert is_repetition(then.record, again)
        earlier = replace(again.run, started="2001-01-01T00:00:00+00:00")
        params = tuple(replace(case, params={**case.params, "B": 9}) for case in again.cases)
        for other in (
            then.record,
            replace(again, protocol=replace(again.protocol, seed=then.record.protocol.seed)),
            replace(again, run=earlier),
            replace(again, run=replace(again.run, baseline="ours")),
            replace(again, run=replace(again.run, suite="calibration")),
            replace(again, cases=params),
        ):
            assert not is_repetition(then.record, other)

    def test_one_that_disagrees_outweighs_those_that_agree(self, then: Judgement, tmp_path: Path) -> None:
        others = [run(tmp_path / str(ours), ours, seed=8) for ours in (0.8e-3, 1.2e-3)]
        assert self.levels(with_repetitions(then, others)) == {"cooperative, not reproduced"}
