"""A run at a glance: rows of cases, columns of contenders."""

from __future__ import annotations

from pathlib import Path

from judgements import judgement_of, sweep_of

from groundspeed.report.pivot import pivot

HOSTILE = "x|<script>*"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_row_for_each_case_and_a_column_for_each_contender(tmp_path: Path) -> None:
    judgement = sweep_of(tmp_path, {"sdpa-cudnn": 300e12, "sdpa-flash": 150e12, "ours": 250e12}, judged=["ours"])
    head, rule, *rows = pivot(judgement)
    assert cells(head) == ["case, TFLOP/s", "sdpa-cudnn", "sdpa-flash", "ours", "ours vs sdpa-cudnn"]
    assert rule.count("|") == head.count("|")
    assert len(rows) == len(judgement.cases)
    for row, case in zip(rows, judgement.cases, strict=True):
        name, cudnn, flash, ours, versus = cells(row)
        assert name == case.facts.name
        assert cudnn.startswith("**")
        assert cudnn.endswith("**")
        assert 290 < float(cudnn.strip("*")) < 310
        assert 145 < float(flash) < 155
        assert 242 < float(ours) < 258
        assert versus.startswith("0.8")
        assert versus.endswith("SLOWER")


def test_short_work_is_told_in_time(tmp_path: Path) -> None:
    head, _, *rows = pivot(judgement_of(tmp_path, {"base": 20e-6, "ours": 10e-6}))
    assert cells(head)[0] == "case, median time"
    assert all("µs" in cells(row)[1] for row in rows)
    assert all(cells(row)[2].startswith("**") for row in rows)


def test_what_failed_has_its_status(tmp_path: Path) -> None:
    def fault(contender: str, case: object, block: int | None) -> dict[str, str] | None:
        first = str(case).startswith("b1")
        return {"status": "INCORRECT", "reason": "wrong"} if contender == "ours" and first and block == 3 else None

    _, _, *rows = pivot(judgement_of(tmp_path, {"base": 1e-3, "ours": 0.5e-3}, fault))
    assert {cells(row)[2] for row in rows} >= {"INCORRECT"}
    assert {cells(row)[3] for row in rows} >= {"–"}


def test_alone_there_is_nothing_to_set_side_by_side(tmp_path: Path) -> None:
    assert list(pivot(judgement_of(tmp_path, {"base": 1e-3}))) == []


def test_names_stay_text(tmp_path: Path) -> None:
    head, *_ = pivot(judgement_of(tmp_path, {"base": 1e-3, HOSTILE: 1e-3}))
    assert "<script>" not in head
    assert "x|" not in head
