"""A real browser, headless, and the pages that it opens."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from judgements import IDENTITY, renamed, sweep_of

from groundspeed.judge.judgement import judge
from groundspeed.report.html import to_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, LocatorAssertions, Page

REQUIRED = os.environ.get("GROUNDSPEED_REQUIRE_BROWSER") == "1"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "<script>alert(1)</script>"
LOG = f"""Tries {HOSTILE}
=====
[link](javascript:alert(2)) and <img src=x onerror=alert(3)>, with `{"code " * 60}` and {"x" * 300}

|{"a column |" * 12}
|{"---|" * 12}
|{"some words here |" * 12}
"""


def missing(reason: str) -> None:
    """Loudly: CI must have one."""
    (pytest.fail if REQUIRED else pytest.skip)(f"NO BROWSER, NO TEST OF THE PAGES: {reason}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("pip install -e '.[dev]'")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        missing("apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])  # root has no sandbox
        yield launched
        launched.close()


class Opened:
    """A page that is open, and all that it complained of or asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))

    def drawn(self) -> Opened:
        """When every chart is."""
        self.page.wait_for_selector("html[data-drawn=all]", state="attached")
        return self

    def expect(self, selector: str, place: int = 0) -> LocatorAssertions:
        """Of what is found, the one at `place`: what is asserted of it may take a while to come true."""
        from playwright.sync_api import expect

        return expect(self.page.locator(selector).nth(place))

    def __call__(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a sweep on a GPU, with telemetry; a case and a contender of it have a hostile name."""
    folder = tmp_path_factory.mktemp("page")
    rates = {"sdpa-cudnn": 5e14, HOSTILE: 4e14, "ours-hopper": 5.5e14}
    plain = sweep_of(
        folder / "run", rates, lengths=(512, 1024, 16384), dims=[64], processes=2, looks=(6,), half_width=1.0
    )
    first = plain.record.cases[0].name
    record = renamed(plain, {first: HOSTILE}).record
    samples = dict(record.samples)
    count = len(samples["case"])
    samples["sm_clock_mhz"] = np.linspace(1700, 1980, count, dtype=np.float32)
    samples["temperature_c"] = np.full(count, 40, np.float32)
    samples["throttle"] = np.where(np.arange(count) % 5 == 0, 4, 0).astype(np.int64)
    path = folder / "report.html"
    path.write_text(to_html(judge(replace(record, samples=samples)), IDENTITY, log=LOG), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, report: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """The report; a test may ask for `width` and `scheme` by a parameter."""
    wanted = getattr(request, "param", {})
    context = browser.new_context(
        viewport={"width": wanted.get("width", 1000), "height": 800}, color_scheme=wanted.get("scheme", "light")
    )
    page = Opened(context.new_page())
    page.page.goto(report.as_uri())
    yield page
    context.close()


Visit = Callable[..., Opened]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a page at an address, `width` pixels wide and `scheme` light or dark."""
    contexts = []

    def open_at(address: str, width: int = 1000, scheme: Literal["light", "dark"] = "light") -> Opened:
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme))
        page = Opened(contexts[-1].new_page())
        page.page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
