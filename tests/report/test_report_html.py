"""The report as one HTML file (A10): every part is there, it says what the judge says, and it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judgements import IDENTITY, enlarged, judgement_of, sweep_of

from groundspeed.errors import GroundspeedError
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.report import page
from groundspeed.report.html import figure, library, to_html

FEW = {"processes": 2, "looks": (6,), "half_width": 1.0}
RATES = {"sdpa-math": 2e13, "sdpa-cudnn": 5e14, "flash": 4.8e14, "ours-hopper": 5.5e14}


class Parsed(HTMLParser):
    """Elements with their attributes, the texts of scripts, and the text that a reader sees, by section."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.sections: dict[str, str] = {"": ""}
        self._section, self._script = "", False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        self._script = tag in ("script", "style")
        if tag == "script":
            self.scripts.append((found, ""))
        if tag == "section":
            self._section = str(found["id"])
            self.sections[self._section] = ""

    def handle_endtag(self, tag: str) -> None:
        self._script = False if tag in ("script", "style") else self._script
        self._section = "" if tag == "section" else self._section

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.sections[self._section] += data
        elif self.scripts:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)

    def island(self, name: str) -> Any:
        (content,) = (said for attributes, said in self.scripts if attributes.get("id") == name)
        return json.loads(content)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    options: dict[str, Any] = {
        "lengths": (512, 1024, 2048),
        "dims": [64],
        "judged": ["ours-hopper"],
        "noise": 0.003,
        **FEW,
    }
    return sweep_of(tmp_path_factory.mktemp("swept"), RATES, baseline="sdpa-cudnn", **options)


@pytest.fixture(scope="module")
def parsed(swept: Judgement) -> Parsed:
    return Parsed(to_html(swept, IDENTITY, 3.99))


def test_every_part_of_a_report_is_there(parsed: Parsed) -> None:
    """A10, in the order in which somebody reads who was not in the room."""
    assert list(parsed.sections) == [
        "",
        "interpretation",
        "recommendations",
        "grade",
        "speed-ups",
        "curves",
        "roofline",
        "memory",
        "samples",
        "figures",
        "matrix",
        "contenders",
        "correctness",
        "profile",
        "warnings",
        "attempts",
        "protocol",
        "calibration",
        "environment",
        "cost",
        "words",
        "reproduce",
    ]
    links = {str(a["href"])[1:] for tag, a in parsed.elements if tag == "a"}
    assert links == {*parsed.sections, "top"} - {""}
    assert re.search(r"ours-hopper is faster: 1\.10\d?× \(95% CI", parsed.sections[""])
    assert "B=32 H=32 S=512 D=64 bf16 full, device time, cold L2" in parsed.sections["matrix"], "the shape of a case"
    assert "otherwise investigate" in parsed.sections["words"]
    assert "docs/log.md" in parsed.sections["attempts"]
    assert " at 3.99 per hour" in parsed.sections["cost"]
    assert IDENTITY in parsed.sections["reproduce"]
    assert f"groundspeed run --reproduce {IDENTITY[:12]}" in parsed.sections["reproduce"]


def test_a_run_without_sweep_pair_or_gpu_has_what_it_can_have(tmp_path: Path) -> None:
    alone = Parsed(to_html(judgement_of(tmp_path / "alone", {"sdpa-math": 1e-3}, **FEW), IDENTITY))
    assert not {"speed-ups", "curves", "memory", "kernels"} & set(alone.sections)
    assert "only the baseline was measured" in alone.sections[""]
    assert " ".join(alone.sections["grade"].split()) == "Grade No grade: no contender that was measured is judged."
    assert "No roof of this device is known" in alone.sections["roofline"]
    assert "reported no clock, temperature or throttling" in alone.sections["samples"]

    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"}

    failed = Parsed(to_html(judgement_of(tmp_path / "failed", {"a": 1e-3, "b": 1e-3}, wrong, **FEW), IDENTITY))
    assert not {"speed-ups", "roofline", "samples"} & set(failed.sections)
    assert "a is INCORRECT on 2 cases" in failed.sections["recommendations"]


def test_a_contender_that_is_wrong_on_some_cases_has_no_number(tmp_path: Path) -> None:
    def wrong(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "INCORRECT", "reason": "far off"} if (contender, case) == ("b", "b1-s64") else None

    content = to_html(judgement_of(tmp_path, {"a": 1e-3, "b": 0.5e-3}, wrong, **FEW), IDENTITY)
    (card,) = re.findall(r'<article class="card">(.*?)</article>', content, re.DOTALL)
    assert "no claim: INCORRECT on 1 of 2 cases" in card
    assert "×" not in card
    assert "b: incorrect on 1 of 2 cases." in Parsed(content).sections["speed-ups"]


def test_no_level_of_headings_is_left_out(parsed: Parsed) -> None:
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


def test_what_scrolls_can_be_reached_with_the_keyboard(parsed: Parsed) -> None:
    boxes = [attributes for tag, attributes in parsed.elements if tag == "div" and attributes.get("class") == "wide"]
    assert len(boxes) > 5
    assert all(box["tabindex"] == "0" and box["role"] == "region" and box["aria-label"] for box in boxes)


def test_warnings_are_counted_where_the_reader_begins(swept: Judgement, parsed: Parsed) -> None:
    assert swept.warnings
    assert f"{len(swept.warnings)} warning" in parsed.sections[""]
    quiet = Parsed(to_html(replace(swept, warnings=()), IDENTITY))
    assert "warning" not in quiet.sections[""].lower().replace("warnings and notes", "")


def test_the_file_needs_no_other_and_allows_no_other(parsed: Parsed) -> None:
    (policy,) = (a["content"] for tag, a in parsed.elements if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for attributes, script in parsed.scripts:
        if "type" not in attributes:
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
        else:
            assert attributes["type"] == "application/json"
    for tag, attributes in parsed.elements:
        assert tag not in ("link", "iframe", "object", "img", "base")
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset")}
        assert str(attributes.get("href", "#")).startswith("#")


def test_the_charts_show_what_the_judge_says(swept: Judgement, parsed: Parsed) -> None:
    charts = parsed.island("charts")
    drawn = unpacked(charts["speed-ups"]["panels"][0])
    compared = [c for case in swept.cases for r in case.results if (c := r.comparison)]
    assert [row["contender"] for row in drawn] == [c.contender for c in compared]
    for row, c in zip(drawn, compared, strict=True):
        assert (row["ratio"], row["low"], row["high"]) == pytest.approx((c.ratio, c.low, c.high), rel=1e-4)
        assert row["verdict"] == (c.verdict or "not judged")
    points = unpacked(charts["roofline"]["panels"][0])
    assert len(points) == sum(r.rates is not None for case in swept.cases for r in case.results)
    case, result = swept.cases[0], swept.cases[0].results[0]
    assert result.rates is not None
    assert points[0]["y"] == pytest.approx(result.rates.flops / 1e12, rel=1e-4)
    assert points[0]["x"] == pytest.approx(case.facts.flops / case.facts.bytes, rel=1e-4)
    (roofs,) = (layer["data"]["values"] for layer in charts["roofline"]["spec"]["layer"] if "data" in layer)
    assert max(row["y"] for row in roofs) == pytest.approx(989.4)
    assert {row["origin"] for row in roofs} == {"datasheet"}, "the run has no calibration"


def test_memory_stands_beside_what_all_scores_would_take(swept: Judgement, parsed: Parsed) -> None:
    """B5: at the same number of tokens they grow with S, and O(N) stays level."""
    for panel in parsed.island("charts")["memory"]["panels"]:
        computed = {row["x"]: row["y"] for row in unpacked(panel) if row["role"] == "computed"}
        assert computed == pytest.approx({S: 16384 // S * 32 * S * S * 2 for S in (512, 1024, 2048)}, rel=1e-4)


def test_the_samples_are_those_of_the_record(swept: Judgement, parsed: Parsed) -> None:
    kept = parsed.island("sample-data")
    assert len(kept["cases"]) == len(swept.cases)
    for case, one in zip(swept.cases, kept["cases"], strict=True):
        for who, offs in zip(one["who"], one["off"], strict=True):
            latency = case.result(who).latency
            assert latency is not None
            times = [t for p in (0, 1) for t in swept.record.seconds[p, case.facts.name, who].values()]
            assert [latency.median * (1 + off / 1e4) for off in offs] == pytest.approx(times, rel=1e-4)


def test_a_page_of_200_cases_and_8_contenders_is_under_3_mb_and_says_what_it_left_out(tmp_path: Path) -> None:
    rates = {f"contender-{i}": (5 - i / 10) * 1e14 for i in range(8)}
    small = sweep_of(tmp_path, rates, lengths=(512, 1024), dims=[64], processes=2, looks=(6,), half_width=1.0)
    large = enlarged(small, 50, 10)
    assert (len(large.cases), len(large.record.measured)) == (200, 8)
    content = to_html(large, IDENTITY)
    assert len(content.encode()) < 3_000_000
    (every,) = re.findall(r"only one block in every (\d+)", content)
    (samples,) = re.findall(r'id="sample-data">(.*?)</script>', content, re.DOTALL)
    assert [sum(case["blocks"]) for case in json.loads(samples)["cases"]] == [2 * -(-60 // int(every))] * 200
    assert content.count("<tr") > 4 * 1400, "every row of every table"


@pytest.mark.parametrize("package", ["jinja2", "vl_convert"])
def test_without_its_packages_the_page_is_one_sentence(
    swept: Judgement, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "jinja2":
        page._environment.cache_clear()
    else:
        monkeypatch.setattr(library, "javascript", library.javascript.__wrapped__)
    with pytest.raises(GroundspeedError, match=r"need two more packages: pip install 'groundspeed\[report\]'"):
        to_html(swept, IDENTITY)


def test_telemetry_is_under_the_samples(swept: Judgement) -> None:
    record = swept.record
    telemetry = {"sm_clock_mhz": 1980.0, "temperature_c": 40.0, "throttle": 4}
    changes = {name: np.full_like(record.samples[name], value) for name, value in telemetry.items()}
    told = judge(replace(record, samples={**record.samples, **changes}))
    parsed = Parsed(to_html(told, IDENTITY))
    one = parsed.island("sample-data")["cases"][0]
    assert (one["clock"], one["temperature"]) == ([1980], [40])
    assert one["held"] == list(range(sum(one["blocks"])))


def unpacked(panel: dict[str, Any]) -> list[dict[str, Any]]:
    columns = panel["columns"]
    cell = {
        key: (lambda i, c=column: c["texts"][c["at"][i]] if isinstance(c, dict) else c[i])
        for key, column in columns.items()
    }
    return [{key: at(i) for key, at in cell.items()} for i in range(panel["length"])]


def test_values_survive_packing() -> None:
    values = [{"a": "x", "n": 1.5}, {"a": None, "n": None}, {"a": "x", "n": 3, "only": True}]
    filled = [{"a": None, "n": None, "only": None, **value} for value in values]
    assert unpacked(figure.packed(values)) == filled


def test_names_are_short_where_all_share_a_part() -> None:
    long = ["sweep-d64-s512-full-bf16", "sweep-d64-s1024-causal-bf16"]
    assert list(figure.short_names(long).values()) == ["s512-full", "s1024-causal"]
    assert figure.short_names(["one-case"]) == {"one-case": "one-case"}
    assert list(figure.short_names(["a-b", "a-b-b"]).values()) == ["b", "b-b"]
