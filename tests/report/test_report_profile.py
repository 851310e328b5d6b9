"""A8: a profile on the screen, in Markdown, on a page and as JSON; which picture it is; and that text stays text."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from groundspeed.judge.profile import picture
from groundspeed.report.profile import counted, show, to_html, to_json, to_markdown, views
from profiles import KERNEL, gpu_profile

IDENTITY = "0123456789ab" + "c" * 52
HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m"


def on_screen(found: views.Picture, width: int = 200) -> str:
    screen = io.StringIO()
    show(Console(file=screen, width=width, highlight=False, markup=False), found, Path("x"), "0123456789ab")
    return screen.getvalue()


def test_counters_and_timeline_say_what_they_are() -> None:
    said = on_screen(picture(gpu_profile()))
    first = next(line for line in said.splitlines() if line.startswith("picture"))
    assert "Hardware counters by Nsight Compute 2025.3.1.0 (one call of sdpa-cudnn, each kernel from a cold" in first
    assert "timeline of kernels, copies and gaps by PyTorch's profiler; roofline computed" in " ".join(said.split())
    assert "No hardware counters" not in said
    assert "132·1·1 × 384·1·1" in said
    assert "INCORRECT mine: max_abs error 1 is over the tolerance" in " ".join(said.split())
    assert "ABSENT    xformers (is not installed)" in said
    assert "no speed in it is a claim" in said


def test_counters_can_be_read_without_a_manual() -> None:
    """The contenders side by side; and what a warp does with its time, which adds up."""
    found = picture(gpu_profile())
    table = counted.side_by_side(found)
    assert [column.title for column in table.columns] == ["counter", "sdpa-cudnn"]
    rows = {row[0]: row[1] for row in table.rows}
    assert (
        rows
        | {
            "tensor pipe": "68.5%",
            "DRAM": "12.5%, 600 GB/s",
            "L2 hits": "84.8%",
            "shared memory per block": "195 KiB",
            "blocks per SM": "1, limited by registers and shared memory",
            "warps per SM": "12 of 12 that fit",
            "occupancy": "18.2%, 18.8% possible",
            "waves": "1",
            "a warp issues": "22.5%",
            "waits for wgmma (gmma)": "48.0%",
            "waits at a barrier of its block (barrier)": "20.3%",
            "waits for global or local memory (long scoreboard)": "9.2%",
        }
        == rows
    )
    assert counted.kernels(found.looks[0]).rows == [], "its only kernel is there already"
    said = on_screen(found)
    for row in table.rows:
        assert row[0] in said
        assert row[1] in said
    page, text = to_html(found, IDENTITY), to_markdown(found, IDENTITY)
    for said in (page, text):
        assert "1, limited by registers and shared memory" in said
        assert "flash_fprop_wgmma(Params" in said.replace("&lt;", "<").replace("\\", ""), "its name in full"


def test_each_of_several_kernels_is_there() -> None:
    profile = gpu_profile()
    (one,) = profile.counted
    half = {name: value / 2 for name, value in one.metrics.items()}
    found = picture(replace(profile, counted=(type(one)(one.contender, "small", half), one)))
    assert [column.title for column in counted.kernels(found.looks[0]).columns][2:] == ["small"], "the longest first"
    table = counted.side_by_side(found)
    assert table.note.endswith("The longest kernel of each contender is shown: sdpa-cudnn has 2 kernels.")
    assert "Counters of sdpa-cudnn" in to_markdown(found, IDENTITY)


def test_without_counters_it_says_plainly_why_and_what_to_do() -> None:
    found = picture(gpu_profile(counted=False))
    for said in (on_screen(found), to_markdown(found, IDENTITY), to_html(found, IDENTITY)):
        assert "No hardware counters: the driver lets only administrators read its performance counters" in said
        assert "NVreg" in said
        assert "Hardware counters by" not in said
    assert json.loads(to_json(found, IDENTITY))["counters_by"] is None


def test_what_is_not_known_is_a_dash_and_null() -> None:
    profile = gpu_profile()
    bare = [type(one)(one.contender, one.kernel, {}) for one in profile.counted]
    found = picture(replace(profile, counted=tuple(bare)))
    (kernel, launches, *others) = counted.side_by_side(found).rows
    assert (kernel[0], launches) == ("kernel", ["launches", "1"])
    assert {row[1] for row in others} == {"–"}
    only = {name: value for name, value in profile.counted[0].metrics.items() if "limit_registers" not in name}
    (reading,) = picture(replace(profile, counted=(replace(profile.counted[0], metrics=only),))).looks[0].readings
    assert reading.blocks is None, "the limit that is not told might be the least"
    (reading,) = json.loads(to_json(found, IDENTITY))["contenders"][0]["readings"]
    assert reading["tensor"] is None


def test_the_json_has_all_of_it_and_no_claim() -> None:
    facts = json.loads(to_json(picture(gpu_profile()), IDENTITY))
    assert (facts["bundle"], facts["kind"], facts["claim"]) == (IDENTITY, "profile", None)
    first, wrong = facts["contenders"]
    assert first["tops"][0]["name"] == KERNEL
    assert first["tops"][0]["registers"] == 168
    assert first["span_s"] == pytest.approx(216e-6)
    assert first["gaps"]["number"] == 2
    assert first["readings"][0]["tensor"] == pytest.approx(0.685)
    assert (wrong["status"], wrong["tops"], wrong["point"]) == ("INCORRECT", [], None)


def test_names_out_of_a_bundle_stay_text() -> None:
    found = picture(gpu_profile(HOSTILE[:-5], HOSTILE))
    page, text = to_html(found, IDENTITY), to_markdown(found, IDENTITY)
    for said in (page, text, on_screen(found), to_json(found, IDENTITY)):
        assert "\x1b" not in said
    for said in (page, text):
        assert "<script>alert" not in said
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1, "no cell makes another"


def test_a_narrow_terminal_loses_nothing() -> None:
    profile = gpu_profile()
    wide, narrow = (on_screen(picture(profile), width=width) for width in (400, 60))
    assert max(len(line) for line in narrow.splitlines() if not line.startswith("report")) <= 60
    lost = {*re.split(r"[\s;]+", wide)} - {*re.split(r"[\s;]+", narrow)}
    assert {word for word in lost if word.strip("─")} <= {"contender"}, "a heading that lines do without"
