"""The chart: every contender that passed is in it, names stay text, and the file needs no other."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judgements import IDENTITY, judgement_of, sweep_of
from test_report_hostile import HOSTILE, NAMES

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.judge.judgement import Judgement
from groundspeed.lab import check
from groundspeed.report import charts
from groundspeed.report.charts import frame, labels, speedups, sweep

ROOT = Path(__file__).parent.parent.parent
EVIDENCE = next((Path(__file__).parents[1] / "evidence" / "schema-1").iterdir())

RATES = {"sdpa-math": 2e13, "sdpa-flash": 4e14, "sdpa-cudnn": 5e14, "broken": 3e14, "ours-portable": 4.5e14}
TRICKY = [*NAMES, "__proto__", "constructor", "datum.role", "');alert(1);('", "\\", "ours-<b>", "]]>", "<!--"]
FEW = {"processes": 2, "looks": (4,), "half_width": 1.0}
"""Little evidence, quickly: enough where only the drawing matters."""

ELEMENTS = {"svg", "title", "g", "path", "line", "rect", "text", "tspan", "defs", "clipPath"}
ATTRIBUTES = {
    *("version", "width", "height", "viewBox", "transform", "d", "x", "y", "x2", "y2", "dy", "id", "clip-path"),
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-miterlimit", "stroke-linejoin", "opacity"),
    *("font-family", "font-size", "font-weight", "text-anchor"),
}


def faults(contender: str, case: str, block: int | None) -> dict[str, str] | None:
    if block is not None:
        return None
    if contender == "broken":
        return {"status": "ERROR", "reason": "it is"}
    above = int(case.rpartition("-s")[2]) > 1024
    return {"status": "SKIPPED", "reason": "too slow"} if contender == "sdpa-math" and above else None


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """A sweep with one contender that fails everywhere and one that is left out of the longer cases."""
    return sweep_of(tmp_path_factory.mktemp("sweep"), RATES, faults, baseline="sdpa-cudnn", judged=["ours-portable"])


@pytest.fixture(scope="module")
def tricky(tmp_path_factory: pytest.TempPathFactory) -> tuple[Judgement, Judgement]:
    """Contenders with tricky names, in a sweep and in a run that is none."""
    folder = tmp_path_factory.mktemp("tricky")
    rates = {"base": 5e14, **{name: (4 - i / 10) * 1e14 for i, name in enumerate(TRICKY)}}
    means = {"base": 1e-3, **dict.fromkeys(TRICKY, 0.9e-3)}
    lengths = (512, 1024, 2048)
    return (
        sweep_of(folder / "sweep", rates, lengths=lengths, dims=[64], **FEW),
        judgement_of(folder / "named", means, shapes=["B=1,S=64,causal=0"], **FEW),
    )


def parsed(content: str) -> ElementTree.Element:
    """The SVG, of which nothing can run, load or lead elsewhere."""
    root = ElementTree.fromstring(content)
    for element in root.iter():
        space, _, tag = element.tag.partition("}")
        assert space == "{http://www.w3.org/2000/svg"
        assert tag in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES
        assert "url(" not in " ".join(v for k, v in element.attrib.items() if k != "clip-path")
        assert re.fullmatch(r"url\(#clip\d+\)", element.get("clip-path", "url(#clip0)"))
    return root


def texts(content: str) -> list[str]:
    """Every line of text in the picture."""
    lines = (e for e in parsed(content).iter() if e.tag.endswith(("}text", "}tspan")) and not len(e))
    return [line.text or "" for line in lines]


def attributes(content: str, name: str) -> Counter[str]:
    return Counter(value for element in parsed(content).iter() if (value := element.get(name)))


def test_a_sweep_draws_every_contender_that_passed(swept: Judgement) -> None:
    content = charts.to_svg(swept, IDENTITY)
    said = texts(content)
    colours = {style.contender: style.colour for style in frame.styles(swept, frame.LIGHT)}
    points, lines = attributes(content, "fill"), attributes(content, "stroke")
    for name in ("ours-portable", "sdpa-cudnn", "sdpa-flash", "sdpa-math"):
        assert name in said
        assert lines[colours[name]] >= 4, "a line in each of the panels"
    assert points[colours["sdpa-flash"]] == 16 + 1, "a point for each case, and the legend's"
    assert points[colours["sdpa-math"]] == 8 + 1, "only where it was measured"
    assert "broken" not in said, "it has no time"
    assert points[colours["broken"]] == lines[colours["broken"]] == 0


def test_a_sweep_says_what_was_measured_and_what_is_missing(swept: Judgement) -> None:
    said = texts(charts.to_svg(swept, IDENTITY))
    assert "attention on NVIDIA H200, bf16" in said
    assert {"512", "1k", "2k", "4k", "D = 64", "D = 128", "full mask", "causal mask", "TFLOP/s"} <= set(said)
    (what,) = (line for line in said if "95% interval" in line)
    assert what.startswith("TFLOP/s by sequence length S at B·S = 16384, H·D = 2048;")
    assert what.endswith("over 4 processes")
    (whence,) = (line for line in said if IDENTITY[:12] in line)
    assert "baseline, sdpa-cudnn" in whence
    assert "sdpa-math: left out above S = 1024; broken: failed on every case" in said


def test_ours_stands_out_and_has_its_name_in_every_panel(swept: Judgement) -> None:
    content = charts.to_svg(swept, IDENTITY)
    theirs, ours = (
        {e.get("stroke-width") for e in parsed(content).iter() if e.get("stroke") == colour and e.tag.endswith("}path")}
        for colour in (frame.LIGHT.rivals[1], frame.LIGHT.ours[0])
    )
    assert max(map(float, filter(None, ours))) > max(map(float, filter(None, theirs)))
    assert Counter(texts(content))["ours-portable"] == 1 + 2 * 4, "the legend, and a label with what is around it"
    order = [style.contender for style in frame.styles(swept, frame.LIGHT)]
    assert order == ["ours-portable", "sdpa-cudnn", "sdpa-flash", "sdpa-math", "broken"]


def test_the_figures_are_those_of_the_judgement(swept: Judgement) -> None:
    rows = [row for row in charts.spec(swept, IDENTITY)["data"]["values"] if row["role"] != "label"]
    results = {(c.facts.params["S"], c.facts.params["D"], c.facts.params["causal"]): c for c in swept.cases}
    assert len(rows) == 16 * 4
    for row in rows:
        case = results[row["S"], row["column_order"], row["row"] == "causal mask"]
        result = case.result(row["contender"])
        if result.latency is None:
            assert row["rate"] is None
            continue
        latency = result.latency
        expected = [case.facts.flops / s / 1e12 for s in (latency.high, latency.median, latency.low)]
        assert [row["low"], row["rate"], row["high"]] == pytest.approx(expected)


def test_other_cases_beside_a_sweep_are_told_not_drawn(tmp_path: Path) -> None:
    rates = {"sdpa-cudnn": 5e14, "sdpa-flash": 4e14}
    found = sweep_of(tmp_path, rates, others=["B=1,H=4,S=512", "B=1,H=4,S=64"], dtypes=["bf16", "fp16"], **FEW)
    said = texts(charts.to_svg(found, IDENTITY))
    assert "8 other cases of the run: not drawn" in said
    assert {"bf16, full mask", "bf16, causal mask", "fp16, full mask", "fp16, causal mask"} <= set(said)
    assert "attention on NVIDIA H200" in said


@pytest.mark.parametrize(
    ("shapes", "drawn"),
    [
        (["S=64", "S=128", "S=256"], 6),
        (["S=64,causal=0", "S=128,causal=0", "S=256,causal=0"], 3),
        (["S=64", "S=128"], None),
        (["S=64", "S=128", "S=256", "B=2,S=100"], None),
        (["B=4,S=64", "B=2,S=128", "B=1,S=256", "B=2,S=100"], 6),
        (["H=1,S=64", "H=2,S=128", "H=4,S=256"], None),
    ],
    ids=["of S alone", "of one mask", "of two lengths", "and another case", "at the same tokens", "of H as well"],
)
def test_what_a_sweep_is(tmp_path: Path, shapes: list[str], drawn: int | None) -> None:
    judgement = judgement_of(tmp_path, {"a": 1e-3}, shapes=shapes, **FEW)
    found = sweep.find(judgement.cases)
    assert (found and len(found)) == drawn


def test_named_cases_show_the_speed_up_of_each() -> None:
    found, replay = check.verify(EVIDENCE)
    judgement = replay.judgement
    said = texts(charts.to_svg(judgement, found.identity))
    for case in judgement.cases:
        assert case.facts.name in said
    assert {"sdpa-flash", "2.45×", "3.02×", "1×", "2×"} <= set(said)
    assert f"evidence: bundle {found.identity[:12]}" in said, "every case has a verdict: nothing is hollow"
    assert any("baseline sdpa-math (above 1 is faster)" in line for line in said)


def test_named_cases_without_a_verdict_are_hollow_and_failures_are_told(tmp_path: Path) -> None:
    def fails(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "OOM", "reason": "x"} if (contender, case, block) == ("b", "b1-s64", None) else None

    means = {"base": 1e-3, "a": 0.5e-3, "b": 0.7e-3}
    judgement = judgement_of(tmp_path, means, fails, processes=1)
    content = charts.to_svg(judgement, IDENTITY)
    said = texts(content)
    assert f"evidence: bundle {IDENTITY[:12]}; hollow: UNCLEAR, or not judged" in said
    assert "b: out of memory on 1 of 2 cases" in said
    assert attributes(content, "fill")[frame.LIGHT.page] == 3


def test_who_is_not_judged_and_far_away_does_not_stretch_the_axis(tmp_path: Path) -> None:
    means = {"base": 1e-3, "ours-a": 0.9e-3, "near": 1.2e-3, "far": 40e-3, "further": 1e-5}
    drawn = charts.spec(judgement_of(tmp_path, means, judged=["ours-a"], **FEW), IDENTITY)
    assert {(v["contender"], v["beyond"]) for v in drawn["data"]["values"]} == {
        ("ours-a", None),
        ("near", None),
        ("far", "below"),
        ("further", "above"),
    }
    said = texts(charts.to_svg(judgement_of(tmp_path / "again", means, judged=["ours-a"], **FEW), IDENTITY))
    assert "triangles: beyond the axis, which fits the judged contenders (further, far)" in said
    assert any(line.startswith("0.02") for line in said), "its figure is there all the same"
    judged = charts.spec(judgement_of(tmp_path / "judged", means, judged=["ours-a", "far"], **FEW), IDENTITY)
    assert {v["contender"] for v in judged["data"]["values"] if v["beyond"]} == {"further"}


def ends(element: ElementTree.Element, x: float = 0.0) -> Iterator[tuple[str, float]]:
    """Texts that end at a place, and how far that is from the left edge."""
    moved = re.match(r"translate\((-?[\d.]+)", element.get("transform", ""))
    x += float(moved[1]) if moved else 0.0
    if element.get("text-anchor") == "end":
        yield element.text or "", x
    for child in element:
        yield from ends(child, x)


def test_names_of_cases_fit_in_a_wider_font() -> None:
    """DejaVu Sans, where neither Liberation nor Arial is: its letters of 12 pixels are 7 wide."""
    found, replay = check.verify(EVIDENCE)
    names = {case.facts.name for case in replay.judgement.cases}
    places = {said: x for said, x in ends(parsed(charts.to_svg(replay.judgement, found.identity))) if said in names}
    assert places.keys() == names
    assert all(x >= 7 * len(name) for name, x in places.items())


def test_where_nothing_was_compared_there_is_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to draw"):
        charts.spec(judgement_of(tmp_path / "alone", {"base": 1e-3}), IDENTITY)

    def fails(contender: str, case: str, block: int | None) -> dict[str, str] | None:
        return {"status": "ERROR", "reason": "x"} if block is None else None

    with pytest.raises(BadInput, match="nothing to draw"):
        charts.spec(sweep_of(tmp_path / "failed", {"base": 5e14}, fails, **FEW), IDENTITY)


@pytest.mark.parametrize("form", [0, 1], ids=["sweep", "named"])
def test_tricky_names_stay_text(tricky: tuple[Judgement, Judgement], form: int) -> None:
    said = texts(charts.to_svg(tricky[form], IDENTITY))
    for name in TRICKY:
        whole = [line for line in said if line.strip() == name.strip()]
        cut = [line for line in said if line.endswith("…") and len(line) > 10 and name.startswith(line[:-1])]
        assert whole or cut or not name.strip(), name


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_device_or_suite_stays_text(swept: Judgement, text: str) -> None:
    run = replace(swept.record.run, suite=text)
    changed = replace(swept, device_name=text, record=replace(swept.record, run=run))
    content = charts.to_svg(changed, IDENTITY)
    parsed(content)
    assert all(c.isprintable() or c == "\n" for c in content)


def programs(spec: Any, key: str = "") -> Iterator[str]:
    """What Vega runs as an expression or takes for the name of a field."""
    if isinstance(spec, dict):
        for name, part in spec.items():
            yield from programs(part, name) if name != "values" else ()
    elif isinstance(spec, list):
        for part in spec:
            yield from programs(part, key)
    elif key in ("filter", "expr", "labelExpr", "calculate", "test", "signal", "field", "as", "groupby", "name"):
        yield str(spec)


def test_no_name_gets_into_an_expression(tricky: tuple[Judgement, Judgement], swept: Judgement) -> None:
    found, replay = check.verify(EVIDENCE)
    plain = {p for judgement in (swept, replay.judgement) for p in programs(charts.spec(judgement, found.identity))}
    assert "datum.role == 'ours'" in plain
    assert {p for judgement in tricky for p in programs(charts.spec(judgement, IDENTITY))} <= plain


def test_a_dark_page_gets_the_same_chart_in_other_colours(swept: Judgement) -> None:
    light, dark = (charts.to_svg(swept, IDENTITY, dark=dark) for dark in (False, True))
    colour = re.compile(r"#[0-9a-f]{6}")
    assert light != dark
    assert colour.sub("#", light) == colour.sub("#", dark)


def test_all_colours_of_a_theme_are_different() -> None:
    for theme in (frame.LIGHT, frame.DARK):
        assert len({theme.ink, *theme.ours, *theme.rivals}) == 1 + len(theme.ours) + len(theme.rivals)


def test_the_same_bundle_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    found, replay = check.verify(EVIDENCE)
    for seed in ("1", "2"):
        call = [sys.executable, "-c", "from groundspeed.cli import main; main()", "report", str(EVIDENCE)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*call, "--svg", f"{seed}.svg"], cwd=tmp_path, env=environment, check=True, capture_output=True)
        for dark in (False, True):
            written = (tmp_path / f"{seed}{'-dark' if dark else ''}.svg").read_text(encoding="utf-8")
            assert written == charts.to_svg(replay.judgement, found.identity, dark=dark)


def test_the_sweep_of_a_readme_fits_it(tmp_path: Path) -> None:
    """Eight contenders on the whole sweep of the suite: as wide as GitHub's page, and not over 150 KB."""
    rates = {f"contender-number-{i}": (3 + i / 3) * 1e14 for i in range(8)}
    lengths = (512, 1024, 2048, 4096, 8192, 16384)
    content = charts.to_svg(sweep_of(tmp_path, rates, lengths=lengths, dims=(64, 128, 256), **FEW), IDENTITY)
    assert len(content.encode()) < 150_000
    assert 800 < float(parsed(content).get("width", 0)) < 900


def test_without_its_package_a_chart_is_one_sentence(swept: Judgement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(GroundspeedError, match=r"pip install 'groundspeed\[report\]'") as raised:
        charts.to_svg(swept, IDENTITY)
    assert raised.value.exit_code == 4


def test_the_package_is_imported_late() -> None:
    source = "import sys, groundspeed.cli, groundspeed.report.charts; print('vl_convert' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


ratio = st.floats(min_value=1e-4, max_value=1e4)


@given(st.lists(st.tuples(ratio, st.floats(min_value=1, max_value=1e20)), min_size=1))
def test_the_axis_of_speed_ups_holds_1_and_every_point(found: list[tuple[float, float]]) -> None:
    low, high = speedups.limits([{"ratio": r, "low": r / width, "high": r * width} for r, width in found])
    assert low < min(1.0, *(r for r, _ in found))
    assert high > max(1.0, *(r for r, _ in found))
    assert high / low < 1e4 * 1e4 * 4 * 100, "no interval stretches it without end"
    shown = speedups.ticks(low, high, 150)
    assert 1.0 in shown
    assert all(low <= tick <= high for tick in shown)
    assert len(shown) <= 7


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_the_axis_of_rates_ends_over_the_largest_on_a_grid_line(largest: float) -> None:
    step, top = sweep.scale(largest)
    assert largest < top <= largest * 1.5
    assert top / step == pytest.approx(round(top / step))
    assert 3 <= round(top / step) <= 8


@given(st.lists(st.floats(min_value=1, max_value=800), min_size=1, max_size=30))
def test_a_legend_fits_with_as_few_rows_as_can_be(widths: list[float]) -> None:
    columns = frame.columns_for(widths, 800)
    assert sum(max(widths[i::columns]) for i in range(columns)) <= 800
    if sum(widths) <= 800:
        assert columns == len(widths)


def test_a_label_is_in_its_panel_and_off_the_lines() -> None:
    panel = labels.Panel(250, 190, 9.0, 14.0, 600.0)
    shared: dict[str, Any] = {"row": "full mask", "column": "D = 64"}
    rows = [
        {**shared, "contender": name, "role": role, "S": 2**k, "rate": rate + 10 * k}
        for (name, role, rate), k in itertools.product(
            [("ours-a", "ours", 250), ("ours-b", "ours", 150), ("x", "rival", 200)], range(9, 15)
        )
    ]
    found = list(labels.labels(rows, panel))
    assert [row["contender"] for row in found] == ["ours-a", "ours-b"]
    for label in found:
        x, y = panel.place(label)
        assert 0 < x < panel.width
        assert 0 < y < panel.height
        for row in rows:
            a, b = panel.place(row)
            assert abs(a - x) > 15 or abs(b - y) > 5
