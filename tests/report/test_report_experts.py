"""B2: every report tells how experts were used; a profile beside the run, what the router takes."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace

import pytest
from judgements import IDENTITY

import experts
from experts import CASE, SKEWED
from groundspeed.evidence.usage import Usage
from groundspeed.judge.beside import Beside, beside
from groundspeed.judge.experts import ROUTER
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.profile import picture
from groundspeed.report import export, markdown
from groundspeed.report.html import to_html


@pytest.fixture(scope="module")
def judgement(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    return judge(experts.on_gpu(experts.run(tmp_path_factory.mktemp("experts"), SKEWED)))


@pytest.fixture(scope="module")
def profile(judgement: Judgement) -> Beside:
    record = judgement.record
    seen = experts.routed_profile(record.cases[0], (ROUTER[0], 4.0), ("moe_up_kernel", 95.0))
    return beside(record, "1" * 64, picture(seen))


def row(content: str) -> list[str]:
    """The cells of the case, of a page or of Markdown."""
    if "<section" in content:
        section = content.partition('<section id="experts">')[2].partition("</table>")[0]
        (found,) = [one for one in section.split("<tr>") if CASE in one]
        return [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in re.split(r"<t[hd]", found)[1:]]
    section = content.partition("\n## Experts\n")[2].partition("\n## ")[0]
    (found,) = [line for line in section.splitlines() if line.startswith(f"| {CASE}")]
    return [cell.strip().replace("\\", "") for cell in found.strip("|").split("|")]


@pytest.mark.parametrize("told", [False, True])
def test_a_page_and_markdown_have_a_table(judgement: Judgement, profile: Beside, told: bool) -> None:
    profiles = [profile] if told else []
    share = "4.0% (ours-portable)" if told else "not determined"
    for write in (to_html, markdown.to_markdown):
        cells = [re.sub(r"^[^>]*>", "", cell) for cell in row(write(judgement, IDENTITY, profiles=profiles))]
        assert cells == [CASE, "93.5%", "0.500", share, "10", "0", "█▄▂·"]


def test_markdown_links_the_checklist_to_it(judgement: Judgement) -> None:
    skewed = judge(replace(judgement.record, usage=(Usage(CASE, (16, 0, 0, 0), 4.0),)))
    assert f"[{CASE}](#experts): variation of expert usage 173.2%" in markdown.to_markdown(skewed, IDENTITY)


def test_json_has_the_tokens_of_each(judgement: Judgement, profile: Beside) -> None:
    (one,) = json.loads(export.to_json(judgement, IDENTITY, profiles=[profile]))["experts"]
    assert one == {
        "case": CASE,
        "tokens": [10, 4, 2, 0],
        "experts": 4,
        "expert_tokens_most": 10,
        "expert_tokens_least": 0,
        "expert_variation": pytest.approx(0.9354, abs=1e-4),
        "balance_loss": 1.5,
        "balance_loss_over_ideal": 0.5,
        "router_share": {"ours-portable": pytest.approx(0.04)},
    }


def test_csv_has_columns_where_a_case_has_experts(judgement: Judgement) -> None:
    (first, *_) = csv.DictReader(export.to_csv(judgement, IDENTITY).splitlines())
    assert (first["experts"], first["expert_tokens_most"], first["balance_loss_over_ideal"]) == ("4", "10", "0.5")
    without = judge(replace(judgement.record, usage=()))
    assert "experts" not in export.to_csv(without, IDENTITY).splitlines()[0].split(",")
    assert "## Experts" not in markdown.to_markdown(without, IDENTITY)
    assert 'id="experts"' not in to_html(without, IDENTITY)


@pytest.mark.parametrize("tokens", [(1,) * 65, (2**53 - 3, 1, 1, 1), (1,)])
def test_whatever_a_bundle_may_say_is_told(judgement: Judgement, tokens: tuple[int, ...]) -> None:
    strange = judge(replace(judgement.record, usage=(Usage(CASE, tokens, 0.0),)))
    cells = row(markdown.to_markdown(strange, IDENTITY))
    assert cells[4] == f"{max(tokens):,}"
    assert cells[2] == "-1.000"
    assert len(cells[-1]) <= 64
