"""Where a reader meets the best rival: below the headlines of every report."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from judgements import IDENTITY, Shown, judgement_of

from groundspeed.judge.judgement import Judgement
from groundspeed.report.export import to_json
from groundspeed.report.html.document import to_html
from groundspeed.report.interpretation import interpretation
from groundspeed.report.markdown import to_markdown
from groundspeed.report.rivals import lines

MEANS = {"sdpa-math": 1e-3, "sdpa-flash": 0.9e-3, "ours-portable": 0.8e-3}
SAID = "ours-portable against the best rival, sdpa-flash: 1.1"


@pytest.fixture(scope="module")
def two_rivals(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    return judgement_of(tmp_path_factory.mktemp("rivals"), MEANS, judged=["ours-portable"])


def test_show_prints_it_below_the_headlines(two_rivals: Judgement, shown: Shown) -> None:
    printed = [line.strip() for line in shown(two_rivals).splitlines()]
    (line,) = lines(two_rivals)
    assert line.startswith(SAID)
    at = printed.index(line)
    assert printed[at - 1].startswith("ours-portable is faster: 1.2")


def test_every_report_has_it(two_rivals: Judgement) -> None:
    (line,) = lines(two_rivals)
    assert line in html.unescape(to_html(two_rivals, IDENTITY))
    above, _, _ = to_markdown(two_rivals, IDENTITY).partition("Evidence: bundle")
    assert line in above.replace("\\", "")
    (row,) = json.loads(to_json(two_rivals, IDENTITY))["best_rivals"]
    assert (row["contender"], row["rival"], row["rivals"], row["cases"]) == ("ours-portable", "sdpa-flash", 2, 2)


def test_none_with_a_single_rival(tmp_path: Path, shown: Shown) -> None:
    one = judgement_of(tmp_path, {"sdpa-math": 1e-3, "ours-portable": 0.8e-3}, judged=["ours-portable"])
    assert "best rival" not in shown(one)
    assert json.loads(to_json(one, IDENTITY))["best_rivals"] == []


def test_what_would_have_been_noticed_is_said_of_ties_and_of_means(tmp_path: Path) -> None:
    means = {"sdpa-math": 1e-3, "tie": 1e-3, "loud": 0.9e-3}
    tie = judgement_of(tmp_path, means, judged=["tie", "loud"], noise=0.001)
    (sentence,) = (said for said in interpretation(tie) if "the same as" in said)
    assert sentence.endswith("; a difference of 1.01× or more would have been noticed.")
    same, faster = json.loads(to_json(tie, IDENTITY))["grid"]
    assert same["detectable"] == pytest.approx(1.01, abs=0.001)
    assert faster["detectable"] is None
