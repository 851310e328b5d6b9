"""The page in a real browser (A10): it is quiet, it draws, sorts and filters, and names out of a bundle stay text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Opened

HOSTILE = "<script>alert(1)</script>"
CASES = 6
MARKS = "el => el.querySelectorAll('.mark-symbol path, .mark-rule line, .mark-line path, .mark-rect path').length"


def at(width: int, scheme: str = "light") -> dict[str, object]:
    return {"width": width, "scheme": scheme}


def cells(opened: Opened, table: str, column: int) -> list[str]:
    """Of the rows that are shown."""
    script = """([table, column]) => [...document.querySelectorAll(`${table} tbody tr`)]
        .filter(row => row.checkVisibility()).map(row => row.cells[column].textContent)"""
    found: list[str] = opened(script, [table, column])
    return found


OUTSIDE = """(canvas) => { const frame = canvas.querySelector('svg').getBoundingClientRect();
    return [...canvas.querySelectorAll('svg text')].filter((one) => {
        const box = one.getBoundingClientRect();
        return box.top < frame.top - 1 || box.bottom > frame.bottom + 1 }).map((one) => one.textContent) }"""


def test_every_chart_is_drawn_and_nothing_is_complained_of_or_loaded(opened: Opened) -> None:
    opened.drawn()
    canvases = opened.page.locator(".canvas")
    assert canvases.count() == 1 + 3 * 2 + 1 + 4, "speed-ups, curves and memory full and causal, roofline, samples"
    for canvas in canvases.all():
        assert canvas.get_attribute("data-drawn") == "yes"
        assert canvas.evaluate(MARKS) > 0
        assert canvas.evaluate(OUTSIDE) == [], "no title is cut off"
    assert opened.complaints == []
    assert len(opened.asked) == 1, "the file itself, and nothing else"


def test_nothing_that_a_bundle_says_is_more_than_text(opened: Opened) -> None:
    opened.drawn()
    assert opened.complaints == []
    assert opened("document.querySelectorAll('script:not([type])').length") == 3, "the library, the charts, the frame"
    assert HOSTILE in opened.page.locator(".legend").first.inner_text()
    assert HOSTILE in cells(opened, "#matrix table", 0)
    assert HOSTILE in opened("[...document.getElementById('sample-case').options].map(o => o.text)")
    axis = opened.page.locator("[data-figure=speed-ups] .role-axis-label text").all_text_contents()
    assert HOSTILE in axis
    opened.page.locator("[data-figure=speed-ups] select").select_option(HOSTILE)
    opened.expect("[data-figure=speed-ups] .mark-symbol path").to_be_attached()
    assert opened.complaints == []


def test_no_code_can_be_added_to_the_page(opened: Opened) -> None:
    """The policy that the page carries forbids eval and scripts that are not its own."""
    opened(
        """() => { const script = document.createElement('script'); script.textContent = 'window.added = 1';
        document.body.append(script); setTimeout(() => { try { Function('window.added = 2')() }
        catch (error) { document.body.dataset.refused = error.name } }) }"""
    )
    opened.expect("body").to_have_attribute("data-refused", "EvalError")
    assert opened("window.added") is None


def test_tables_sort_by_value(opened: Opened) -> None:
    opened.drawn()  # a chart that is drawn above moves what is clicked at
    heading = opened.page.locator("#figures [data-tab=Results] th", has_text="median").locator("button")
    heading.click()
    table = "#figures [data-tab=Results] table"
    seconds = {"µs": 1e-6, "ms": 1e-3}
    values = [float(cell.split()[0].replace(",", "")) * seconds[cell.split()[1]] for cell in cells(opened, table, 4)]
    assert len(values) == 3 * CASES
    assert values == sorted(values, reverse=True)
    assert len({cell.split()[1] for cell in cells(opened, table, 4)}) > 1, "over units"
    heading.click()
    assert cells(opened, table, 4)[0] == min(
        cells(opened, table, 4), key=lambda c: float(c.split()[0]) * seconds[c.split()[1]]
    )
    opened.page.locator(f"{table} th", has_text="contender").locator("button").click()
    names = cells(opened, table, 1)
    assert names == sorted(names, key=str.lower)
    assert opened.complaints == []


def test_tables_filter_together(opened: Opened) -> None:
    opened.drawn()
    results, speed_ups = ("#figures [data-tab=Results] table", "#figures [data-tab='Speed-ups'] table")
    opened.page.locator("#figures select[aria-label=contender]").select_option("ours-hopper")
    assert set(cells(opened, results, 1)) == {"ours-hopper"}
    opened.page.locator("#figures input").fill("s1024 CAUSAL")
    opened.expect("#figures output").to_have_text("1 of 18 rows")
    assert len(cells(opened, results, 0)) == 1
    opened.page.get_by_role("tab", name="Speed-ups").click()
    assert cells(opened, results, 0) == []
    assert len(cells(opened, speed_ups, 0)) == 1
    assert opened.page.locator("#figures output").inner_text() == "1 of 12 rows"


def test_a_list_is_only_there_for_tables_that_obey_it(opened: Opened) -> None:
    opened.drawn()
    verdicts = "#figures select[aria-label=verdict]"
    opened.page.locator(verdicts).select_option("baseline")
    opened.expect("#figures output").to_have_text("6 of 18 rows")
    opened.page.get_by_role("tab", name="Distribution").click()
    opened.expect(verdicts).to_be_hidden()
    opened.expect("#figures select[aria-label=contender]").to_be_visible()
    assert opened.page.locator("#figures output").inner_text() == ""
    opened.page.get_by_role("tab", name="Results").click()
    opened.expect(verdicts).to_be_visible()
    opened.expect("#figures output").to_have_text("6 of 18 rows")


def test_the_contents_follow_in_both_directions(opened: Opened) -> None:
    opened.drawn()
    opened("document.documentElement.style.scrollBehavior = 'auto'")
    for top, here in ((300, "#figures"), (144, "#matrix"), (184, "#figures")):  # of 800, a tenth and a fifth count
        opened("top => scrollBy(0, document.getElementById('matrix').getBoundingClientRect().top - top)", top)
        opened.expect(".contents a.here").to_have_attribute("href", here)


def test_a_case_and_a_contender_can_be_chosen(opened: Opened) -> None:
    opened.drawn()
    labels = "[data-samples=samples-spread] .role-axis-label text"
    before = opened.page.locator(labels).all_text_contents()
    opened.page.locator("#sample-case").select_option(index=4)  # far longer: causal at twice the length is as long
    opened.expect(labels, -1).not_to_have_text(before[-1])
    assert "In this case:" in opened.page.locator("#held").inner_text()
    opened.page.locator("[data-figure=speed-ups] .layer_3_marks path").first.hover()
    assert "×" in opened.page.locator(".tip").inner_text()


@pytest.mark.parametrize("opened", [at(1000, "dark")], indirect=True)
def test_dark_where_the_reader_wants_it(opened: Opened) -> None:
    opened.drawn()
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('.canvas .role-axis-label text')).fill"
    dark = opened(ground), opened(label)
    opened.page.locator("#theme").click()
    light = opened(ground), opened(label)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1], "a chart follows without being drawn again"
    opened.page.reload()
    assert opened(ground) == light[0], "the choice is kept"
    opened.page.locator("#theme").click()
    opened.page.emulate_media(media="print")
    assert opened(ground) == "rgb(255, 255, 255)", "paper is light"


@pytest.mark.parametrize("opened", [at(360), at(1600)], indirect=True, ids=["phone", "wide"])
def test_the_page_never_scrolls_sideways(opened: Opened) -> None:
    opened.drawn()
    assert opened("document.documentElement.scrollWidth <= innerWidth")
    beyond = """() => [...document.querySelectorAll('main *')]
        .filter(el => !el.closest('.wide, pre, svg, .canvas, .log table')
        && el.checkVisibility() && el.getBoundingClientRect().right > innerWidth + 1)
        .map(el => el.outerHTML.slice(0, 80))"""
    assert opened(beyond) == []
    between = """() => { const found = [...document.querySelectorAll('[data-figure=speed-ups] .role-axis-label text')]
        .filter(el => el.textContent.endsWith('×') && el.getAttribute('opacity') !== '0')
        .map(el => el.getBoundingClientRect()).sort((a, b) => a.left - b.left);
        return found.slice(1).map((box, i) => box.left - found[i].right) }"""
    assert min(opened(between)) >= 7.5, "labels of the axis stand apart"
    assert opened.complaints == []


@pytest.mark.parametrize("opened", [at(360), at(1280)], indirect=True, ids=["phone", "desktop"])
def test_the_verdict_is_in_sight_and_the_case_stays_there(opened: Opened) -> None:
    where = """selector => { const box = document.querySelector('#figures .wide').getBoundingClientRect();
        const cell = document.querySelector(`#figures tbody ${selector}`).getBoundingClientRect();
        return cell.left >= box.left - 1 && cell.right <= box.right + 1 }"""
    assert opened(where, "tr td[data-word]")
    opened("document.querySelector('#figures .wide').scrollLeft = 1e6")
    assert opened(where, "tr td:last-child")
    assert opened(where, "tr td:first-child")
    if opened("innerWidth > 1000"):
        opened("document.querySelector('#figures .wide').scrollLeft = 60")
        apart = """() => { const [a, b] = document.querySelector('#figures tbody tr').cells;
            return b.getBoundingClientRect().left - a.getBoundingClientRect().right }"""
        assert opened("document.querySelector('#figures .wide').scrollLeft") > 0
        assert abs(opened(apart)) < 2, "the contender stays beside its case"
        opened.expect("#figures .wide.scrolled").to_be_visible()


HINT = "getComputedStyle(document.querySelector('#figures .wide'), '::before').content"


@pytest.mark.parametrize("opened", [at(390)], indirect=True)
def test_a_table_says_that_there_is_more_to_scroll_to(opened: Opened) -> None:
    opened.expect("#figures .wide.wider:not(.ended)").to_be_visible()
    assert "more columns" in opened(HINT)
    opened("document.querySelector('#figures .wide').scrollLeft = 1e6")
    opened.expect("#figures .wide.wider.ended").to_be_visible()
    assert "scroll back" in opened(HINT)
    opened.page.set_viewport_size({"width": 1600, "height": 800})
    opened.expect("#figures .wide:not(.wider)").to_be_visible()
    assert opened(HINT) == "none"
    assert opened.complaints == [], "no observer runs in circles"


@pytest.mark.parametrize("opened", [at(390)], indirect=True)
def test_a_table_scrolls_by_keys(opened: Opened) -> None:
    opened.page.locator("#figures .wide").first.focus()
    opened.page.keyboard.press("ArrowRight")
    opened.expect("#figures .wide.scrolled").to_be_visible()


@pytest.mark.parametrize("opened", [at(1024), at(1280)], indirect=True, ids=["1024", "1280"])
def test_tables_of_words_fit_a_small_window(opened: Opened) -> None:
    fits = "id => { const box = document.querySelector(`#${id} .wide`); return box.scrollWidth <= box.clientWidth + 1 }"
    assert all(opened(fits, one) for one in ("recommendations", "grade", "contenders", "correctness"))


def test_it_prints_with_every_chart(opened: Opened) -> None:
    opened.drawn()
    opened.page.emulate_media(media="print")
    assert not opened.page.locator(".contents").is_visible()
    assert not opened.page.locator("#figures form").is_visible()
    assert opened.page.get_by_role("columnheader", name="geometric mean").locator("button").is_visible()
    assert all(canvas.locator("svg").is_visible() for canvas in opened.page.locator(".canvas").all())
    assert opened.page.pdf().startswith(b"%PDF")


def test_on_paper_every_table_is_there_and_none_is_cut_off(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 794, "height": 1123})  # A4
    opened.page.emulate_media(media="print")
    panels = opened.page.locator("#figures [data-tab]").all()
    assert len(panels) > 2
    assert all(panel.locator("table").is_visible() for panel in panels)
    assert opened("document.documentElement.scrollWidth") <= 794
    assert opened("[...document.querySelectorAll('table')].filter((one) => one.scrollWidth > 794).length") == 0


def test_on_paper_what_is_folded_is_open(opened: Opened) -> None:
    folded = "[...document.querySelectorAll('details')].map((one) => one.open)"
    before = opened(folded)
    assert len(before) > 1
    assert not all(before)
    opened("addEventListener('beforeprint', () => { window.onPaper = FOLDED })".replace("FOLDED", folded))
    opened.page.pdf()
    assert all(opened("window.onPaper"))
    assert opened(folded) == before


def test_what_was_tried_is_text_under_its_own_heading(opened: Opened) -> None:
    opened.drawn()
    assert opened.page.locator("#attempts h3").inner_text() == f"Tries {HOSTILE}"
    assert opened("document.querySelectorAll('h1').length") == 1
    assert opened("document.querySelectorAll('.log a, .log img, .log script').length") == 0
    assert opened.complaints == []
