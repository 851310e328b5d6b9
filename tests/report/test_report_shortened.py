"""A9, A10: the Markdown of a large run stays readable and says what it left out: never what is wrong or slower."""

from __future__ import annotations

import re
from pathlib import Path

from judgements import IDENTITY, enlarged, markdown_tables, sweep_of

from groundspeed.report import markdown

RATES = {f"contender-{i}": (5 - i / 10) * 1e14 for i in range(8)}
JUDGED = ["contender-6", "contender-7"]
CUT = ("Results", "Speed-ups", "Correctness", "Distribution", "Every process")


def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
    hit = contender == "contender-3" and "s512" in case and block is None
    return {"status": "INCORRECT", "reason": "far off"} if hit else None


def test_a_report_of_200_cases_and_8_contenders_is_under_300_kb(tmp_path: Path) -> None:
    small = sweep_of(tmp_path / "a", RATES, wrong, lengths=(512, 1024), dims=[64], judged=JUDGED, processes=4)
    large = enlarged(small, 50, 1)
    assert (len(large.cases), len(large.record.measured)) == (200, 8)
    content, whole = (markdown.to_markdown(judgement, IDENTITY) for judgement in (large, small))
    assert len(content.encode()) < 300_000
    headings = [re.findall(r"^## (.+)$", text, re.MULTILINE) for text in (content, whole)]
    assert headings[0] == headings[1], "no part of the report is lost"
    tables = markdown_tables(content)
    assert {name: len(tables[name]) for name in CUT} == dict.fromkeys(CUT, 240)
    assert len(tables["Side by side"]) == 200
    statuses = [row["status"] for row in tables["Correctness"]]
    assert statuses.count("INCORRECT") == 100, "what failed stays"
    kept = {row["contender"] for row in tables["Speed-ups"]}
    assert kept == set(JUDGED), "who is judged, before the others"
    said = "writes all of them"
    for name in CUT:
        part = content.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        form = "json" if name == "Every process" else "csv"
        assert re.search(rf"\n240 of [\d,]+ rows: .*`groundspeed report 0123456789ab --{form} FILE` {said}", part)
    assert "rows: what failed" not in whole
