"""The site of a history in a real browser (C2): overview, chart and reports, from files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groundspeed.lab import history
from histories import MEANS, bundle_of

if TYPE_CHECKING:
    from conftest import Opened, Visit

HOSTILE = "</script><script>alert(1)</script>"
DAYS, STEP = 9, 5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contender with a hostile name became slower on a day, with another PyTorch; on another day it failed."""
    folder = tmp_path_factory.mktemp("history")
    for day in range(DAYS):
        slower = {**MEANS, "sdpa-flash": MEANS["sdpa-flash"] * (1.2 if day >= STEP else 1)}

        def fault(contender: str, case: str, block: int | None, day: int = day) -> dict[str, str] | None:
            return {"status": "INCORRECT", "reason": "wrong"} if (contender, day) == (HOSTILE, 1) else None

        bundle_of(
            folder / "runs",
            day,
            slower,
            fault,
            names={"sdpa-flash": HOSTILE},
            environment={"packages": {"torch": "2.13.0" if day >= STEP else "2.11.0"}},
        )
    history.build(folder / "runs", folder / "site")
    return folder / "site"


def rows(opened: Opened) -> list[str]:
    script = """[...document.querySelectorAll('#lines tbody tr')].filter(row => row.checkVisibility())
        .map(row => row.innerText)"""
    found: list[str] = opened(script)
    return found


def test_the_overview_stands_alone_and_is_quiet(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri())
    (flash,) = rows(opened)  # by speed-up, which the baseline has none of
    assert opened.page.locator("#chart").is_hidden()
    assert HOSTILE in flash
    assert "-17% (lower), 2026-01-06" in flash
    opened.page.get_by_role("tab", name="time").click()
    assert len(rows(opened)) == 2
    assert "+20% (slower), 2026-01-06" in next(row for row in rows(opened) if HOSTILE in row)
    assert opened("document.querySelectorAll('script:not([type])').length") == 2
    assert len(opened.asked) == 1, "the file itself, and nothing else"
    assert opened.complaints == []


def test_a_line_is_chosen_filtered_and_looked_at_in_another_view(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri())
    opened.page.get_by_role("tab", name="time").click()
    opened.page.locator("#lines select[aria-label=contender]").select_option(HOSTILE)
    assert len(rows(opened)) == 1
    opened.page.locator("#lines a.line:visible").click()
    opened.expect("#chart").to_be_visible()
    assert opened.page.locator("#chart .plot circle").count() == DAYS - 1
    assert opened.page.locator("#chart .plot .failed").count() == 1
    assert opened.page.locator("#chart .plot .setting").count() == 1, "another PyTorch"
    said = opened.page.locator("#chart .changes").inner_text()
    assert said.startswith("+20% (slower)")
    assert "PyTorch 2.11.0 → 2.13.0" in said
    assert HOSTILE in opened.page.locator("#chart h3").inner_text()
    opened.page.get_by_role("tab", name="speed-up").click()
    opened.expect("#chart h3").to_contain_text("against sdpa-math: speed-up")
    opened.expect("#chart .changes").to_contain_text("-17% (lower)")
    opened.page.reload()
    opened.expect("#chart h3").to_contain_text("against sdpa-math: speed-up")
    assert opened.page.get_by_role("tab", name="speed-up").get_attribute("aria-selected") == "true"
    opened.page.locator("#chart .close").click()
    opened.expect("#chart").to_be_hidden()
    assert opened.complaints == []


def test_a_point_leads_to_its_report_which_draws_and_leads_back(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri())
    address = opened.page.locator("#lines a.line").first.get_attribute("href")
    opened = visit((site / "index.html").as_uri() + str(address))
    opened.expect("#chart").to_be_visible()
    opened.page.locator("#chart .plot a").nth(2).hover()
    opened.expect("#chart .readout").to_contain_text("2026-01-03 09:00: ")
    opened.page.locator("#chart .plot a").nth(2).click()
    opened.drawn()
    assert {Path(url).name for url in opened.asked} == {
        Path(opened.page.url).name,
        "index.html",
        "vega.js",
        *hashes(opened),
    }
    opened.page.locator(".brand").click()
    opened.expect("h1").to_have_text("History")
    assert opened.complaints == []


def hashes(opened: Opened) -> set[str]:
    """The page with its line, as the browser asked for it."""
    return {Path(url).name for url in opened.asked if "index.html#" in url}


def test_a_view_that_the_line_is_not_in_has_no_chart(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri())
    opened.page.get_by_role("tab", name="time").click()
    opened.page.locator("#lines tr:visible", has_text="sdpa-math").locator("a.line").click()
    opened.expect("#chart h3").to_contain_text("sdpa-math on")
    opened.page.get_by_role("tab", name="speed-up").click()
    opened.expect("#chart").to_be_hidden()


def test_filters_say_what_is_shown_after_the_way_back(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri())
    opened.page.get_by_role("tab", name="time").click()
    opened.page.locator("#lines select[aria-label=contender]").select_option(HOSTILE)
    opened.page.goto("about:blank")
    opened.page.go_back()
    opened.page.get_by_role("tab", name="time").click()
    chosen = opened.page.locator("#lines select[aria-label=contender]").input_value()
    assert len(rows(opened)) == (1 if chosen else 2)
    opened("document.querySelector('#lines select[aria-label=contender]').selectedIndex = 1")  # as a browser does
    opened("dispatchEvent(new PageTransitionEvent('pageshow'))")
    assert len(rows(opened)) == 1


@pytest.mark.parametrize("address", ["#nosuch", "#__proto__", "#constructor", "#%3Cimg%20src=x%20onerror=alert(1)%3E"])
def test_an_address_that_names_no_line_shows_the_overview(site: Path, visit: Visit, address: str) -> None:
    opened = visit((site / "index.html").as_uri() + address)
    assert len(rows(opened)) == 1
    assert opened.page.locator("#chart").is_hidden()
    assert opened.complaints == []


def test_on_a_narrow_dark_screen_nothing_hangs_over_the_edge(site: Path, visit: Visit) -> None:
    opened = visit((site / "index.html").as_uri(), width=360, scheme="dark")
    opened.page.locator("#lines a.line:visible").first.click()
    opened.expect("#chart").to_be_visible()
    assert opened("document.documentElement.scrollWidth <= innerWidth")
    assert opened("[...document.querySelectorAll('#lines td, #runs td')].every(td => td.scrollWidth <= td.clientWidth)")
    assert opened("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    assert opened.complaints == []
