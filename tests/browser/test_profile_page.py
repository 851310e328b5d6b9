"""A8: the page of a profile in a real browser: drawn, quiet, and what a bundle says stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from judgements import judgement_of

from groundspeed.judge.beside import beside
from groundspeed.judge.judgement import judge
from groundspeed.judge.profile import picture
from groundspeed.report.html import to_html as report
from groundspeed.report.profile import to_html
from profiles import CASE, gpu_profile

if TYPE_CHECKING:
    from conftest import Visit

HOSTILE = "<script>alert(1)</script>"


def test_timeline_and_roofline_are_drawn_and_names_are_text(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "profile.html"
    path.write_text(to_html(picture(gpu_profile(HOSTILE, HOSTILE)), "0" * 64), encoding="utf-8")
    opened = visit(path.as_uri(), width=400).drawn()
    canvases = opened.page.locator(".canvas")
    assert [canvas.get_attribute("data-drawn") for canvas in canvases.all()] == ["yes", "yes"]
    assert opened.page.locator("[data-figure=timeline-0] .mark-rect path").count() == 3
    assert opened.page.locator("[data-figure=roofline] .mark-symbol path").count() == 1
    assert HOSTILE in opened.page.locator("main").inner_text()
    assert opened("document.documentElement.scrollWidth") <= 400, "on a phone"
    assert opened.complaints == []
    assert len(opened.asked) == 1, "the file itself, and nothing else"


def test_a_profile_in_the_report_of_its_run_fits_a_phone_and_is_text(visit: Visit, tmp_path: Path) -> None:
    """A10: in the section of the report, whose tables scroll by themselves."""
    profile = gpu_profile(HOSTILE, HOSTILE)
    run = judgement_of(tmp_path / "run", dict.fromkeys((HOSTILE, "mine"), 1e-3), gpu="NVIDIA H200", case=CASE)
    judgement = judge(replace(run.record, contenders=profile.contenders[:2]))
    path = tmp_path / "report.html"
    one = beside(judgement.record, "0" * 64, picture(profile))
    path.write_text(report(judgement, "1" * 64, profiles=[one]), encoding="utf-8")
    opened = visit(path.as_uri(), width=390, scheme="dark").drawn()
    told = opened.page.locator("#profile")
    assert "waits for wgmma (gmma)" in told.inner_text()
    assert told.locator("td", has_text=HOSTILE).count() >= 3, "calls, counters and kernels"
    assert told.locator("[role=region]").count() == 3, "and no other table"
    assert opened("document.documentElement.scrollWidth") <= 390
    assert opened.complaints == []
