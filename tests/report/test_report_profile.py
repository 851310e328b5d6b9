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
from groundspeed.report.profile import show, to_html, to_json, to_markdown, views
from profiles import KERNEL, gpu_profile

IDENTITY = "0123456789ab" + "c" * 52
HOSTILE = "<script>alert(1)</script>|`x`\x1b[31m"


def on_screen(found: views.Picture, width: int = 200) -> str:
    screen = io.StringIO()
    show(Console(file=screen, width=width, highlight=False, markup=False), found, Path("x"), "0123456789ab")
    return screen.getvalue()


def test_counters_and_timeline_say_what_they_are() -> None:
    said = on_screen(picture(gpu_profile()))
    assert "Hardware counters by Nsight Compute 2025.3.1.0, of sdpa-cudnn: one call" in said
    assert "Timeline of kernels, copies and gaps by PyTorch's profiler; the roofline is computed" in said
    assert "No hardware counters" not in said
    for cell in (
        "68.5%",
        "84.8%",
        "18.2%",
        "gmma 2.1, barrier 0.90, long scoreboard 0.41",
        "195 KiB",
        "132·1·1 × 384·1·1",
    ):
        assert cell in said
    assert "INCORRECT mine: max_abs error 1 is over the tolerance" in " ".join(said.split())
    assert "ABSENT    xformers (is not installed)" in said
    assert "no speed in it is a claim" in said


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
    assert [row[1:] for row in views.counters(found.looks[0]).rows] == [["1"], *[["–"]] * 12]
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
