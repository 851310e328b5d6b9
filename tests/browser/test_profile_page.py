"""A8: the page of a profile in a real browser: drawn, quiet, and what a bundle says stays text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from groundspeed.judge.profile import picture
from groundspeed.report.profile import to_html
from profiles import gpu_profile

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
