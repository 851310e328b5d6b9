"""B4, B5: every report of whole models tells launching, copying, fusing and memory by length, or why it does not."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from judgements import IDENTITY

import models
from groundspeed.evidence.record import Record
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.report import export, markdown
from groundspeed.report.html import to_html

LONG = tuple(f"L=1,d=64,H=4,B=2,S={S}" for S in (2048, 4096, 8192))
HOSTILE = "<script>alert(1)</script>|[x](https://example.org)"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return models.watched(models.run(tmp_path_factory.mktemp("models")), models.SEEN)


@pytest.fixture(scope="module")
def judgement(record: Record) -> Judgement:
    return judge(record)


def section(judgement: Judgement, title: str) -> str:
    return markdown.to_markdown(judgement, IDENTITY).partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def page(judgement: Judgement) -> dict[str, str]:
    """The text of each section of the page, words one space apart."""
    found = re.findall(r'<section id="([^"]+)">(.*?)</section>', to_html(judgement, IDENTITY), re.DOTALL)
    return {name: " ".join(html.unescape(re.sub(r"<[^>]+>", " ", inside)).split()) for name, inside in found}


def told_of(judgement: Judgement) -> str:
    return markdown.to_markdown(judgement, IDENTITY)


def rows(content: str, part: str = "") -> list[list[str]]:
    """The cells of a table, of the section or of a part of it."""
    told = content.partition(f"### {part}\n")[2].partition("\n### ")[0] if part else content
    lines = [line for line in told.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_markdown_has_all_three(judgement: Judgement) -> None:
    told = section(judgement, "Overheads")
    launches = {row[1]: row for row in rows(told, "Launch overhead") if "8x32" in row[0]}
    assert re.fullmatch(r"(99|100|101)\.?\d* µs", launches["ours"][4])
    assert " to " in launches["ours"][5]
    assert re.fullmatch(r"33\.\d%", launches["ours"][6])
    assert launches["ours"][7] == "7"
    assert re.fullmatch(r"4[23]\.\d µs", launches["ours"][8])
    assert " to " in launches["ours"][9]
    assert launches["naive"][7:] == ["–", "–", "–"]
    assert "host time per launch, at most" in told
    assert "launch overhead" not in told
    copies = {row[1]: row[2:] for row in rows(told, "Copies")}
    assert copies == {
        "sdpa": ["7", "100 µs", "3", "10.0 µs", "10.0%"],
        "ours": ["7", "100 µs", "0", "–", "0.0%"],
    }
    fusion = rows(told, "Fusion")
    assert [row[:2] for row in fusion[3:4]] == [["geometric mean", "ours"]]
    assert re.fullmatch(r"1\.(199|20[01])×", fusion[3][2])
    assert fusion[3][4] == "yes"


def test_a_page_has_the_same_rows(judgement: Judgement) -> None:
    told = page(judgement)["overheads"]
    for part in ("Launch overhead", "Copies", "Fusion"):
        for row in rows(section(judgement, "Overheads"), part):
            assert " ".join(row) in told, part
    assert '<a href="#overheads">Overheads</a>' in to_html(judgement, IDENTITY)


def test_json_has_them_as_data(judgement: Judgement) -> None:
    told = json.loads(export.to_json(judgement, IDENTITY))
    launch = next(row for row in told["overheads"]["launches"] if row["contender"] == "ours")
    assert launch["taken_away_low_s"] < launch["taken_away_s"] < launch["taken_away_high_s"]
    assert launch["eager_s"] - launch["graph_s"] == pytest.approx(launch["taken_away_s"])
    assert launch["taken_away_share"] == pytest.approx(launch["taken_away_s"] / launch["eager_s"], rel=1e-3)
    assert launch["launch_at_most_s"] == pytest.approx(launch["eager_s"] / 7)
    assert launch["launch_at_most_low_s"] < launch["launch_at_most_s"] < launch["launch_at_most_high_s"]
    assert sorted({row["share"] for row in told["overheads"]["copies"]}) == pytest.approx([0, 0.1])
    assert {row["against"] for row in told["overheads"]["fusion"]} == {"sdpa"}
    assert told["overheads"]["fusion"][3]["case"] is None
    lengths = [row for row in told["memory_by_length"] if row["contender"] == "naive"]
    assert [row["extra_bytes"] for row in lengths] == [models.scores("naive", length) for length in (32, 64, 128)]
    assert {row["specification_bytes"] for row in lengths} == {None}


def test_the_checklist_leads_there(judgement: Judgement) -> None:
    told = section(judgement, "Checklist")
    share = r"share of time in copies 0\.0%"
    assert re.search(rf"copies under 1% of the time \| yes \| \[[^]]*\]\(#overheads\): {share}", told)
    assert re.search(r"fusion gains more than 10% \| yes \| \[[^]]*\]\(#overheads\): speed against sdpa", told)
    assert re.search(r"launch overhead under 50 µs \| yes \| \[[^]]*\]\(#overheads\): eager", told)


def test_b5_memory_by_length(judgement: Judgement) -> None:
    told = section(judgement, "Memory by length")
    found = {row[0]: row[1:] for row in rows(told)}
    assert found["naive"][0] == "640 KiB"
    assert found["naive"][-1] == "quadratic"
    assert found["sdpa"] == ["128 KiB", "256 KiB", "512 KiB", "2.00× 2.00×", "1.00", "linear"]
    assert "on the GPU" in told
    assert "L=1 d=64 H=4 B=8 bf16" in told
    assert "specification" not in told  # it says nothing of such lengths
    assert "quadratic" in page(judgement)["memory-by-length"]


def test_b5_the_specification_stands_beside_and_is_labelled(tmp_path: Path) -> None:
    judgement = judge(models.run(tmp_path, LONG, ()))
    told = section(judgement, "Memory by length")
    found = {row[0]: row[1:4] for row in rows(told)}
    assert found["standard by the specification, not measured"] == ["2.1 GB", "8.4 GB", "33.6 GB"]
    assert found["flash by the specification, not measured"] == ["0.6 GB", "1.2 GB", "2.4 GB"]
    assert "here are 8" in told
    data = json.loads(export.to_json(judgement, IDENTITY))["memory_by_length"]
    assert {(row["contender"], row["specification_bytes"]) for row in data if row["length"] == 8192} == {
        ("naive", 33.6e9),
        ("sdpa", 2.4e9),
        ("ours", 2.4e9),
        ("sdpa-compiled", None),
    }


def test_on_a_cpu_it_says_why(tmp_path: Path) -> None:
    judgement = judge(models.run(tmp_path, LONG, gpu=None, names=("naive", "sdpa")))
    told = section(judgement, "Overheads")
    assert "Nothing is launched on a CPU" in told
    assert "groundspeed profile" in told
    assert "CUDA graphs, which a CPU does not have" in told
    assert "on the host" in section(judgement, "Memory by length")
    assert "specification" not in section(judgement, "Memory by length")
    assert "Nothing is launched on a CPU" in page(judgement)["overheads"]
    assert "quadratic" in page(judgement)["memory-by-length"]


def test_an_older_record_lacks_what_it_could_not_say(record: Record) -> None:
    """As its upgrade leaves it: names without times."""
    older = tuple(replace(seen, moves=(), times=(), seconds=()) for seen in record.launched)
    judgement = judge(replace(record, launched=older))
    told = section(judgement, "Overheads")
    assert "no times of single kernels" in told
    assert {row[7] for row in rows(told, "Launch overhead")} == {"–"}
    assert re.search(
        r"launch overhead under 50 µs: its launches were not counted; [^:]+@eager: eager", told_of(judgement)
    )
    assert json.loads(export.to_json(judgement, IDENTITY))["overheads"]["copies"] == []


def test_without_clocks_it_says_what_would_tell(tmp_path: Path) -> None:
    told = section(judge(models.run(tmp_path, models.SHAPES[:1], ())), "Overheads")
    assert "--clock eager,graph" in told
    assert "No prompt of more than 16 tokens (128 in small models) was passed in a CUDA graph" in told


def test_by_eager_calls_alone_there_is_the_bound(tmp_path: Path) -> None:
    judgement = judge(models.watched(models.run(tmp_path, models.SHAPES[:1], ("eager",)), models.SEEN))
    (row,) = (row for row in rows(section(judgement, "Overheads"), "Launch overhead") if row[1] == "ours")
    assert row[3:7] == ["–"] * 4
    assert row[7] == "7"
    launch = json.loads(export.to_json(judgement, IDENTITY))["overheads"]["launches"][-1]
    assert launch["graph_s"] is launch["taken_away_share"] is None
    assert launch["launch_at_most_s"] > 0


def test_fusion_does_not_claim_what_is_not_so(judgement: Judgement) -> None:
    told = section(judgement, "Overheads").partition("### Fusion")[2]
    assert "not of fusion alone, because each side also has its own attention" in told
    assert "decoding steps do not" in told
    assert "cuBLAS" not in told


def test_b5_memory_of_what_was_not_timed_is_told_and_marked(record: Record) -> None:
    longest = record.cases[2].name
    outcomes = tuple(
        replace(o, status="SKIPPED", reason="too slow") if (o.case, o.contender) == (longest, "naive") else o
        for o in record.outcomes
    )
    judgement = judge(replace(record, outcomes=outcomes))
    told = section(judgement, "Memory by length")
    naive = next(row for row in rows(told) if row[0] == "naive")
    assert naive[3] == "8.50 MiB (not timed: SKIPPED)"
    assert naive[-1] == "quadratic"
    assert "its calls were correct" in told
    data = json.loads(export.to_json(judgement, IDENTITY))["memory_by_length"]
    last = next(row for row in data if (row["contender"], row["length"]) == ("naive", 128))
    assert (last["status"], last["extra_bytes"]) == ("SKIPPED", models.scores("naive", 128))


def test_other_suites_have_no_empty_section(ordinary: Judgement) -> None:
    content = markdown.to_markdown(ordinary, IDENTITY)
    assert "## Overheads" not in content
    assert "## Memory by length" not in content
    assert not {"overheads", "memory-by-length"} & set(page(ordinary))


def test_one_process_has_no_interval_anywhere(record: Record) -> None:
    judgement = judge(replace(record, processes=record.processes[:1]))
    told = section(judgement, "Overheads")
    assert {row[5] for row in rows(told, "Launch overhead")} == {"–"}
    assert {row[4] for row in rows(told, "Fusion")} == {"not determined"}
    data = json.loads(export.to_json(judgement, IDENTITY))["overheads"]
    assert {row["taken_away_low_s"] for row in data["launches"]} == {None}
    assert {row["launch_at_most_high_s"] for row in data["launches"]} == {None}
    assert {row["speed_up_high"] for row in data["fusion"]} == {None}


@pytest.mark.parametrize("write", [markdown.to_markdown, to_html, export.to_json])
def test_hostile_names_stay_text(record: Record, write: Callable[..., str]) -> None:
    cases = tuple(
        replace(case, name=f"{case.name}{HOSTILE}", params={**case.params, "dtype": HOSTILE}) for case in record.cases
    )
    names = {old.name: new.name for old, new in zip(record.cases, cases, strict=True)}
    entries = {
        part: tuple(replace(entry, case=names[entry.case]) for entry in getattr(record, part))
        for part in ("outcomes", "stops", "launched")
    }
    contenders = tuple(replace(c, name=HOSTILE) if c.name == "naive" else c for c in record.contenders)
    outcomes = tuple(replace(o, contender=HOSTILE) if o.contender == "naive" else o for o in entries.pop("outcomes"))
    run = replace(record.run, judged=tuple(HOSTILE if name == "naive" else name for name in record.run.judged))
    hostile = judge(replace(record, run=run, cases=cases, contenders=contenders, outcomes=outcomes, **entries))
    content = write(hostile, IDENTITY)
    if write is export.to_json:
        assert {row["contender"] for row in json.loads(content)["memory_by_length"]} == {HOSTILE, *models.NAMES} - {
            "naive"
        }
        return
    assert HOSTILE not in content
    assert "<script>alert" not in content


@pytest.mark.parametrize(
    "seen",
    [
        {"k" * 100_000: (2**31, 9e5)},
        {"Memcpy\x1b[31m": (1, 1e-9)},
        {"a": (1, 0.0)},
        {f"kernel_{i}": (1, 1e-6) for i in range(2000)},
    ],
)
def test_whatever_a_bundle_may_say_is_told(record: Record, seen: dict[str, tuple[int, float]]) -> None:
    judgement = judge(models.watched(record, {"ours": seen}))
    assert "\x1b" not in section(judgement, "Overheads")
    assert page(judgement)["overheads"]
    json.loads(export.to_json(judgement, IDENTITY))
