"""D7: a run in a few rows, over the whole grid and never of the best shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from judgements import judgement_of, sweep_of

from groundspeed.judge.judgement import Judgement
from groundspeed.report import words
from groundspeed.report.overview import overview, standing

RATES = {"sdpa-cudnn": 400e12, "sdpa-flash": 200e12, "ours": 300e12}


@pytest.fixture
def sweep(tmp_path: Path) -> Judgement:
    return sweep_of(tmp_path, RATES, judged=["ours"])


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_each_contender_has_the_geometric_mean_of_its_speed_ups(sweep: Judgement) -> None:
    head, rule, row = overview([("sweep", sweep)])
    assert cells(head) == [
        "speed vs sdpa-cudnn on NVIDIA H200, geometric mean",
        "sdpa-cudnn",
        "sdpa-flash",
        "ours",
        "its cases",
    ]
    assert rule.count("|") == head.count("|")
    work, cudnn, flash, ours, tally = cells(row)
    assert work == "sweep, 16 bf16 cases, device time, cold L2"
    assert cudnn == "1"
    assert re.fullmatch(r"0\.(49|50)×", flash)
    assert re.fullmatch(r"0\.7[45]\d*× \(0\.7\d+–0\.7\d+\)", ours)
    assert tally == "16 slower"


def test_runs_stand_under_each_other(sweep: Judgement, tmp_path: Path) -> None:
    other = sweep_of(tmp_path / "other", {**RATES, "flex": 100e12}, judged=["ours"])
    head, _, first, second = overview([("one", sweep), ("one", other)])
    assert cells(head)[1:4] == ["sdpa-cudnn", "sdpa-flash", "flex"]
    assert cells(first)[3] == "–"
    assert cells(second)[3] == "0.25×"


def test_who_was_not_on_every_case_says_on_how_many(tmp_path: Path) -> None:
    def fault(contender: str, case: object, block: int | None) -> dict[str, str] | None:
        short = isinstance(case, dict) and case["S"] == 512
        return {"status": "OOM", "reason": "too big"} if contender == "sdpa-flash" and short else None

    _, _, row = overview([("sweep", sweep_of(tmp_path, RATES, fault, judged=["ours"]))])
    assert re.fullmatch(r"0\.(49|50)× on 12", cells(row)[2])


def test_a_mean_that_supports_no_claim_says_so(tmp_path: Path) -> None:
    _, _, row = overview([("x", judgement_of(tmp_path, {"base": 1e-3, "ours": 1e-3}, noise=0.2))])
    assert cells(row)[2].endswith("UNCLEAR")


def test_of_who_is_wrong_somewhere_there_is_no_claim(tmp_path: Path) -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "ours" and case.startswith("b1-") else None

    _, _, row = overview([("x", judgement_of(tmp_path, {"base": 1e-3, "ours": 0.5e-3}, wrong))])
    assert re.fullmatch(r"no claim \(2\.\d+×.* on 1\)", cells(row)[2])
    assert "1 INCORRECT" in cells(row)[3]


def test_whose_verdicts_there_are_is_told_where_not_everybody_has_one(tmp_path: Path) -> None:
    def told(*judged: str, skipped: str = "") -> list[str]:
        def skip(contender: str, case: str, block: int | None) -> dict[str, str] | None:
            return {"status": "SKIPPED", "reason": "no such work"} if contender == skipped else None

        folder = tmp_path / "".join([*judged, "-", skipped])
        judgement = judgement_of(folder, {"a": 1e-3, "b": 1e-3, "c": 1e-3}, skip, judged=judged)
        return [note.sentence for note in words.notes(judgement) if note.word == "judged"]

    assert told("b") == ["only b; use --judge to name other contenders"]
    assert told("b", "c") == []
    assert told("b", skipped="c") == [], "nothing of it is shown"


def test_where_nobody_is_judged_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(overview([("x", judgement_of(tmp_path, {"base": 1e-3}))])) == []


def test_names_stay_text(tmp_path: Path) -> None:
    lines = list(overview([("<b>", judgement_of(tmp_path, {"base": 1e-3, "x|<script>*": 1e-3}))]))
    assert not any("<script>" in line or "<b>" in line or "x|" in line for line in lines)


class TestStanding:
    def test_a_row_for_each_mean_that_is_asked_for(self, sweep: Judgement) -> None:
        head, rule, row = standing([("sweep", sweep, "ours", "default")])
        assert cells(head)[1:] == ["contender", "vs the baseline", "its cases", "vs the best rival"]
        assert rule.count("|") == head.count("|") == row.count("|")
        work, contender, baseline, tally, rival = cells(row)
        assert (work, contender, tally) == ("sweep, 16 bf16 cases", "ours", "16 slower")
        assert re.fullmatch(r"0\.7[45]\d*× \(0\.7\d+–0\.7\d+\) sdpa-cudnn", baseline)
        assert rival == baseline, "cuDNN is also the best rival"

    def test_the_best_rival_need_not_be_the_baseline(self, tmp_path: Path) -> None:
        fast = sweep_of(tmp_path, {**RATES, "sdpa-flash": 600e12}, judged=["ours"])
        row = cells(list(standing([("sweep", fast, "ours", "default")]))[2])
        assert re.fullmatch(r"0\.7\d*× \(.+\) sdpa-cudnn", row[2])
        assert re.fullmatch(r"0\.(49|50)\d*× \(.+\) sdpa-flash", row[4])

    def test_with_fewer_than_two_rivals_there_is_no_best_one(self, tmp_path: Path) -> None:
        alone = sweep_of(tmp_path, {"sdpa-cudnn": 400e12, "ours": 300e12}, judged=["ours"])
        assert cells(list(standing([("sweep", alone, "ours", "default")]))[2])[4] == "–"

    def test_of_what_is_unclear_it_says_so(self, tmp_path: Path) -> None:
        noisy = judgement_of(tmp_path, {"base": 1e-3, "ours": 1e-3}, noise=0.2)
        assert " UNCLEAR base" in list(standing([("x", noisy, "ours", "default")]))[2]
