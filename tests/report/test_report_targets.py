"""B9 in the reports: a target is a goal with a label, and stands apart from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judgements import IDENTITY, judgement_of, markdown_tables

from groundspeed.judge.judgement import Judgement
from groundspeed.report import export, markdown

MEANS = {"sdpa-math": 5e-3, "sdpa-flash": 4e-3, "mine": 3e-3, "wrong": 1e-3}


def ref_64(folder: Path, gpu: str | None) -> Judgement:
    """The reference shape, on which one contender is wrong."""

    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == "wrong" else None

    return judgement_of(folder, MEANS, wrong, case="ref-64-full-fp16", gpu=gpu)


@pytest.fixture(scope="module")
def on_h100(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """The specification has 4.5 ms as target, 3.8 ms as excellent and 3.2 ms for the reference."""
    return ref_64(tmp_path_factory.mktemp("h100"), "NVIDIA H100 80GB HBM3")


def told(judgement: Judgement) -> list[dict[str, str]]:
    return markdown_tables(markdown.to_markdown(judgement, IDENTITY))["Targets"]


def in_json(judgement: Judgement) -> list[dict[str, Any]]:
    targets: list[dict[str, Any]] = json.loads(export.to_json(judgement, IDENTITY))["targets"]
    return targets


def test_each_goal_has_its_label_and_who_reached_it(on_h100: Judgement) -> None:
    rows = told(on_h100)
    assert [(row["goal"], row["time"], row["label"], row["limit"]) for row in rows] == [
        ("target", "under 4.50 ms", "trivial", "278 µs"),
        ("excellent", "under 3.80 ms", "trivial", "278 µs"),
        ("reference", "under 3.20 ms", "trivial", "278 µs"),
    ]
    assert [(row["reached by"], row["not reached by"], row["not decided"]) for row in rows] == [
        ("sdpa-flash, mine", "sdpa-math, wrong (INCORRECT)", "–"),
        ("mine", "sdpa-math, sdpa-flash, wrong (INCORRECT)", "–"),
        ("mine", "sdpa-math, sdpa-flash, wrong (INCORRECT)", "–"),
    ]


def test_it_is_said_that_they_are_goals(on_h100: Judgement) -> None:
    content = markdown.to_markdown(on_h100, IDENTITY)
    before, _, after = content.partition("\n## Targets\n")
    part, _, rest = after.partition("\n## ")
    assert "Goals that a specification sets for H100: not measurements" in part
    assert "4.50 ms" not in before + rest


def test_json_has_them_apart_from_the_rows(on_h100: Judgement) -> None:
    targets = in_json(on_h100)
    assert [(t["goal"], t["seconds"], t["label"]) for t in targets] == [
        ("target", 4.5e-3, "trivial"),
        ("excellent", 3.8e-3, "trivial"),
        ("reference", 3.2e-3, "trivial"),
    ]
    assert targets[0]["reached_by"] == ["sdpa-flash", "mine"]
    assert targets[0]["not_reached_by"] == ["sdpa-math", "wrong"]
    assert targets[0]["not_decided"] == []


def test_a_device_without_a_limit_has_goals_without_a_label(tmp_path: Path) -> None:
    assert {(row["label"], row["limit"]) for row in told(ref_64(tmp_path, "NVIDIA H100 of a new kind"))} == {
        ("–", "unknown")
    }


def test_a_device_that_takes_the_column_of_another_says_so(tmp_path: Path) -> None:
    content = markdown.to_markdown(ref_64(tmp_path, "NVIDIA H200"), IDENTITY)
    assert "sets for H100, the column that NVIDIA H200 uses: not measurements" in content


@pytest.mark.parametrize("gpu", [None, "NVIDIA B200"])
def test_there_is_no_such_part_where_no_case_has_one(tmp_path: Path, gpu: str | None) -> None:
    judgement = ref_64(tmp_path, gpu)
    assert "## Targets" not in markdown.to_markdown(judgement, IDENTITY)
    assert in_json(judgement) == []
