"""A memory profile for people: the table, the picture and the page say what the facts say, and names stay text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_report_hostile import HOSTILE
from test_report_html import Parsed

from groundspeed.evidence.memory import Allocation, MemoryUse, Phase, Span, read
from groundspeed.report.memory import to_html, to_json, to_svg, to_text
from groundspeed.report.memory.chart import on_page

MIB = 1 << 20
NAMES = [name[:200] for name in HOSTILE.values() if not any("\ud800" <= c <= "\udfff" for c in name)]
HEAD = "phase times peak added kept"


def use_of(names: list[str], points: int = 4) -> MemoryUse:
    made = [Allocation(MIB, (2, i), name[:40], name, f"{name}:{i}") for i, name in enumerate(names)]
    return MemoryUse(
        schema=1,
        device="cuda",
        device_name=names[0],
        before_bytes=MIB,
        after_bytes=2 * MIB,
        peak_bytes=4 * MIB,
        reserved_bytes=6 * MIB,
        resident_bytes=None,
        phases=tuple(Phase(name, 2, 4 * MIB, 3 * MIB, -MIB, tuple(made)) for name in names),
        spans=tuple(Span(name, 0.1 * i, 0.1 * i + 0.05) for i, name in enumerate(names)),
        times_s=tuple(i / points for i in range(points)),
        levels_bytes=tuple(4 * MIB if i == points // 2 else MIB for i in range(points)),
        largest=(Allocation(MIB, None, None, None, None), Allocation(4, (), "float32", "aten.sum", "x" * 90), *made),
        notes=tuple(names),
    )


def test_the_text_says_it_in_tables() -> None:
    said = to_text(use_of(["prefill", "decode"])).splitlines()
    assert said[0] == "memory of prefill: peak 4.00 MiB"
    assert said[1] == (
        "1.00 MiB when it began, +3.00 MiB at the peak, 2.00 MiB left at the end; PyTorch held 6.00 MiB of the GPU, in "
        "use or"
    )
    assert [" ".join(line.split()) for line in said[4:6]] == [HEAD, "prefill 2 4.00 MiB +3.00 MiB −1.00 MiB"]
    assert said[9].split() == ["1.00", "MiB", "–", "–", "–", "–"]
    assert said[10].split()[:5] == ["4", "B", "scalar", "float32", "aten.sum"]
    assert said[10].endswith("…" + "x" * 59)


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_has_the_phases_and_the_peak(dark: bool) -> None:
    drawn = to_svg(use_of(["prefill", "decode"], points=9000), dark=dark)
    texts = [node.text for node in ElementTree.fromstring(drawn).iter() if node.text]
    assert {"prefill", "decode", "peak 4.00 MiB"} <= set(texts)
    assert len(drawn) < 200_000


def test_levels_at_one_time_are_not_added_up() -> None:
    area = next(layer for layer in on_page(use_of(["a"])).spec["layer"] if layer["mark"]["type"] == "area")
    assert area["encoding"]["y"]["stack"] is None


def test_nothing_at_all_can_be_drawn_and_said() -> None:
    empty = MemoryUse(1, "cpu", "the host", 0, 0, 0, None, None, (), (), (), (), (), ())
    assert to_text(empty).startswith("memory of the host: peak 0 B")
    ElementTree.fromstring(to_svg(empty))
    Parsed(to_html(empty))


def test_hostile_names_stay_text() -> None:
    use = use_of(NAMES)
    said = to_text(use)
    assert said.replace("\n", "").isprintable()
    drawn = to_svg(use)
    root = ElementTree.fromstring(drawn)
    kinds = {node.tag.partition("}")[2] for node in root.iter()}
    assert kinds <= {"svg", "title", "g", "path", "text", "tspan", "clipPath", "rect", "line", "defs"}
    assert not [name for node in root.iter() for name in node.attrib if name.startswith("on") or "href" in name]
    page = to_html(use)
    assert "<script>alert" not in page
    charts = Parsed(page).island("charts")
    assert set(re.findall(r'"(?:expr|calculate|signal|url)"', json.dumps(charts))) == set()
    assert page.count("<script") == 4  # an island, the library and the page's own two


def test_json_is_what_was_told(tmp_path: Path) -> None:
    use = use_of(NAMES)
    (tmp_path / "memory.json").write_text(to_json(use), encoding="utf-8")
    assert read(tmp_path / "memory.json") == use


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peak_bytes": 1}, "a peak is lower"),
        ({"levels_bytes": [1]}, "as many times as levels"),
        ({"levels_bytes": [-1, 1, 1, 1]}, "fewer than 0 bytes are alive"),
        ({"spans": [{"name": "x", "begin_s": 2, "end_s": 1}]}, "ends after it begins"),
        ({"largest": [{"bytes": -1, "shape": None, "dtype": None, "op": None, "where": None}]}, "fewer than 0 bytes"),
        ({"device": "tpu"}, "is not one of cpu, cuda"),
    ],
)
def test_facts_that_cannot_be_are_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text(json.dumps(json.loads(to_json(use_of(["a"]))) | change))
    with pytest.raises(Exception, match=said):
        read(tmp_path / "memory.json")
    phase = {"name": "a", "times": 0, "peak_bytes": 1, "added_bytes": 0, "kept_bytes": 0, "largest": []}
    (tmp_path / "memory.json").write_text(json.dumps(json.loads(to_json(use_of(["a"]))) | {"phases": [phase]}))
    with pytest.raises(Exception, match="a phase needs a name, was open"):
        read(tmp_path / "memory.json")
