"""B6, B7 and B9 in the report of a run: what `groundspeed grade` says of it, in the page and in Markdown."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from judgements import IDENTITY, judgement_of, markdown_tables, renamed
from test_report_html import Parsed

from groundspeed.judge.grading.grade import Graded, grade
from groundspeed.judge.grading.specification import packaged
from groundspeed.judge.grading.traits import Evidence
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.lengths import SPEC_BYTES
from groundspeed.report import grade_json, grade_markdown, markdown
from groundspeed.report.grade import NOT_HELD, beyond
from groundspeed.report.html import to_html
from groundspeed.suites.registry import suite_module
from links import anchors, links

WRONG = "wrong|<b>"


@pytest.fixture(scope="module")
def ref_64(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """The reference shape on a GPU that has targets; the fastest is wrong, and has a name that is no text."""

    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if contender == WRONG else None

    means = {"sdpa-math": 5e-3, "mine": 3e-3, WRONG: 1e-3}
    return judgement_of(
        tmp_path_factory.mktemp("ref"), means, wrong, case="ref-64-full-fp16", gpu="NVIDIA H200", judged=["mine", WRONG]
    )


def by_the_command(judgement: Judgement) -> dict[str, Graded]:
    """As `groundspeed grade … --suite attention` has it."""
    found = grade([Evidence(IDENTITY, judgement)], packaged(), suites=["attention"])
    return {one.contender: one for one in found.contenders}


def test_letter_and_gates_are_those_of_the_command(ref_64: Judgement) -> None:
    told = markdown_tables(markdown.to_markdown(ref_64, IDENTITY))["Grade"]
    mine, wrong = by_the_command(ref_64).values()
    assert [(row["gate"], row["answer"]) for row in told if row["contender"] == "mine"] == [
        ("letter", "A"),
        ("attention numerical", "passed"),
        ("attention performance", "passed"),
    ]
    assert told[0]["why"] == mine.letter.why.replace("the worst of attention", mine.letters["attention"].why)
    of_wrong = [row for row in told if row["contender"] != "mine"]
    assert (
        [row["answer"] for row in of_wrong]
        == ["F", "failed", "failed"]
        == [*wrong.letters["attention"].letters] + [ruling.answer for ruling in wrong.rulings]
    )
    assert all("INCORRECT: far off" in row["why"] for row in of_wrong)


def test_the_page_says_the_same(ref_64: Judgement) -> None:
    content = to_html(ref_64, IDENTITY)
    said = Parsed(content).sections["grade"]
    for row in markdown_tables(markdown.to_markdown(ref_64, IDENTITY))["Grade"]:
        why = re.sub(r"(?<!\\)\[(.*?)\]\(#[a-z-]+\)", r"\1", row["why"])  # the page has no links
        assert html.unescape(why).replace("\\", "") in said
    assert WRONG in said
    assert "<b>" not in content
    assert "A over 80%, B over 70%, C over 60%, D over 40%" in said
    assert "Goals that a specification sets for H100" in said
    assert "under 4.50 ms" in said
    assert "trivial" in said
    assert "Targets without a case in this run: ref-128 full fp16 (goal under 26.0 ms, possible)." in said
    assert IDENTITY[:12] not in said, "there is only one bundle"


def test_ticks_have_their_evidence_and_what_is_open_is_said_once(ref_64: Judgement) -> None:
    content = markdown.to_markdown(ref_64, IDENTITY)
    ticked = [item for item in by_the_command(ref_64)["mine"].checklist if item.tick != "not determined"]
    rows = [row for row in markdown_tables(content)["Checklist"] if row["contender"] == "mine"]
    assert [(row["item"], row["answer"]) for row in rows] == [(item.item, item.tick) for item in ticked]
    assert ticked
    assert all(row["evidence"] for row in rows)
    said = content.partition("\n## Checklist\n")[2].partition("\n## ")[0]
    assert said.count("shared memory without bank conflicts") == 1, "for both contenders"
    assert "sums in FP32: needs a case in 16 bits with 512 keys or more (wrong" in said, "mine was seen to"
    counts = [f"{sum(i.tick == t for i in by_the_command(ref_64)['mine'].checklist)} {t}" for t in ("yes", "no")]
    assert f"mine {', '.join(counts)}" in said


def test_what_a_grade_rests_on_leads_to_the_part_that_shows_it(ref_64: Judgement) -> None:
    """B6. Also where a case has a name that would lead elsewhere."""
    (case,) = ref_64.cases
    name = "x](https://example.org) | [y](#nowhere"
    content = markdown.to_markdown(renamed(ref_64, {case.facts.name: name}), IDENTITY)
    found, there = links(content), anchors(content)
    assert len(set(there)) == len(there), "each leads to one place"
    assert {link.to for link in found} <= set(there)
    assert {link.said for link in found} == {name}
    assert {"#correctness", "#speed-ups", "#results", "#every-process"} <= {link.to for link in found}
    rows = [row for row in markdown_tables(content)["Checklist"] if "calibrated" not in row["item"]]
    assert rows
    assert all(links(row["evidence"]) for row in rows)


def test_a_symptom_has_causes_and_what_to_try(ref_64: Judgement) -> None:
    rows = markdown_tables(markdown.to_markdown(ref_64, IDENTITY))["Diagnosis"]
    found = by_the_command(ref_64)["mine"].findings
    assert [row["symptom"] for row in rows] == [one.rule.symptom for one in found]
    assert found
    assert [row["what to try"] for row in rows] == ["; ".join(one.rule.tries) for one in found]


def test_a_suite_of_which_the_specification_asks_for_nothing_has_no_grade(ordinary: Judgement, tmp_path: Path) -> None:
    record = ordinary.record
    other = replace(ordinary, record=replace(record, run=replace(record.run, suite="mine")))
    content = markdown.to_markdown(other, IDENTITY)
    assert not {"Grade", "Checklist", "Diagnosis", "Targets"} & set(markdown_tables(content))
    assert "\n## Grade" not in content
    assert "grade" not in Parsed(to_html(other, IDENTITY)).sections


def test_a_grade_that_determines_nothing_comes_after_the_results(ref_64: Judgement, tmp_path: Path) -> None:
    """B6. The list of contents has it at the same place."""
    once = judgement_of(tmp_path, {"sdpa-math": 5e-3, "mine": 3e-3}, processes=1, looks=(6,), judged=["mine"])
    answers = [row["answer"] for row in markdown_tables(markdown.to_markdown(once, IDENTITY))["Grade"]]
    assert answers == ["not determined", "passed", "not determined"], "only the errors are known, of a single process"
    for judgement, before, after in ((ref_64, "recommendations", "speed-ups"), (once, "profile", "warnings")):
        content = to_html(judgement, IDENTITY)
        linked = re.findall(r'<a href="#([a-z-]+)">', content.partition("<main")[0])[1:]  # the first leads to the top
        for found in (list(Parsed(content).sections), linked):
            assert found[found.index("grade") - 1] == before
            assert found[found.index("grade") + 1] == after


def test_a_suite_without_gates_says_so_in_place_of_what_a_letter_is(ordinary: Judgement) -> None:
    record = ordinary.record
    other = replace(ordinary, record=replace(record, run=replace(record.run, suite="gemm")))
    for content in (markdown.to_markdown(other, IDENTITY), Parsed(to_html(other, IDENTITY)).sections["grade"]):
        assert "There are no gates and no letter for gemm in the specification." in content
        assert "The letter is that of the worst case" not in content
    assert {row["list"] for row in markdown_tables(markdown.to_markdown(other, IDENTITY))["Checklist"]} == {"system"}


def test_memory_is_not_held_against_targets_of_no_shape_and_every_format_says_so(ref_64: Judgement) -> None:
    """L3: it is measured, by cases of other heads than the specification's figures are of."""
    wanted = replace(packaged(), columns={"H100": ("H200",)})
    found = grade([Evidence(IDENTITY, ref_64)], wanted, measurable=["attention", "moe", "inference", "gemm"])
    assert found.beyond == ("memory",)
    shapes = [case.params for case in suite_module("inference").all_cases() if case.name.startswith("memory-")]
    assert {int(params["B"]) * int(params["H"]) for params in shapes} == {64}
    assert SPEC_BYTES[2048][0] == pytest.approx(256 * 2048**2 * 2, rel=0.03)
    assert (
        "256 heads over all sequences together, but the cases memory-* of inference, which measure memory, have 64"
        in NOT_HELD
    )
    assert NOT_HELD in beyond(found)
    assert "not measurable" not in beyond(found)
    assert "Memory is not compared with any target: " in grade_markdown.to_markdown(found)
    told = [one for one in json.loads(grade_json.to_json(found))["targets"] if one["suite"] == "memory"]
    assert {one["why"] for one in told} == {NOT_HELD}
    other = replace(found, beyond=("memory", "training"))
    assert beyond(other).startswith("not measurable yet: training; memory is not compared with any target")
