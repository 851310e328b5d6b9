"""Make the pictures of docs/gallery.md: the page of the committed BF16 sweep, as a browser shows it.

    python tools/gallery.py

Needs Chromium and what `pip install -e '.[dev]'` installs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from groundspeed.lab import check
from groundspeed.report.html import to_html

ROOT = Path(__file__).parent.parent
SHOTS = {
    "top": (1200, 800, "top"),
    "curves": (1200, 860, "curves"),
    "samples": (1200, 900, "samples"),
    "phone": (390, 800, "roofline"),
}
"""Name → width, height and the section that is shown."""


def main() -> None:
    (bundle,) = (ROOT / "evidence" / "nvidia-h200").glob("attention-standard-20261116T223405-*")
    found, replay = check.verify(bundle)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        page.write_text(to_html(replay.judgement, found.identity), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height, section) in SHOTS.items():
            for scheme in ("light", "dark"):
                shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                shown.goto(page.as_uri())
                shown.wait_for_selector("html[data-drawn=all]", state="attached")
                shown.evaluate("id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", section)
                if section == "top":
                    shown.evaluate("scrollTo({top: 0, behavior: 'instant'})")
                shown.wait_for_timeout(200)
                dark = "-dark" if scheme == "dark" else ""
                shown.screenshot(path=ROOT / "docs" / f"report-{name}{dark}.png")
                shown.close()
        browser.close()


if __name__ == "__main__":
    main()
