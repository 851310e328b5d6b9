"""C2: the figures of a line in words, in each of its views."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from groundspeed.judge.history import Figure, Run
from groundspeed.judge.lines import Line, lines
from groundspeed.report.history import chart, to_page
from groundspeed.report.history.sparkline import HEIGHT, MOST, sparkline
from groundspeed.report.history.views import (
    RATE,
    SPEED_UP,
    TIME,
    View,
    latest,
    percent,
    shifted,
    since_previous,
)
from histories import MEANS, history_run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """On the fourth day of eight the contender became half as fast."""
    return [history_run(d, {**MEANS, "sdpa-flash": MEANS["sdpa-flash"] * (2 if d >= 4 else 1)}) for d in range(8)]


@pytest.fixture(scope="module")
def flash(runs: list[Run]) -> dict[str, Line]:
    return {line.kind: line for line in lines(runs) if line.latest.contender == "sdpa-flash"}


def with_latest(line: Line, figure: Figure | None, status: str = "PASSED") -> Line:
    return replace(line, points=(*line.points[:-1], replace(line.points[-1], figure=figure, status=status)))


def test_the_latest_figure_has_its_interval_in_its_unit(flash: dict[str, Line]) -> None:
    time = with_latest(flash["time"], Figure(1.234e-3, 1.2e-3, 1.3e-3, 0.01))
    assert latest(TIME, time) == "1.23 ms (1.20–1.30)"
    flops = time.latest.flops
    low, high = (f"{flops / end / 1e9:.2f}" for end in (1.3e-3, 1.2e-3))
    assert latest(RATE, time) == f"{flops / 1.234e-3 / 1e9:.2f} GFLOP/s ({low}–{high})"
    assert latest(TIME, with_latest(time, Figure(5e-6, None, None, None))) == "5.00 µs"
    ratio = flash["speed-up"]
    assert latest(SPEED_UP, with_latest(ratio, Figure(1.1588, 1.1578, 1.1598, 1e-4))) == "1.159× (1.158–1.160)"
    assert latest(SPEED_UP, with_latest(ratio, Figure(1.5, None, None, None))) == "1.50×"


def test_a_contender_that_failed_shows_its_status(flash: dict[str, Line]) -> None:
    assert ">INCORRECT<" in latest(TIME, with_latest(flash["time"], None, "INCORRECT"))
    assert ">no pair<" in latest(SPEED_UP, with_latest(flash["speed-up"], None))


@pytest.mark.parametrize(
    ("shift", "said"), [(0.0, "+0.0%"), (-0.0123, "-1.2%"), (0.2, "+22%"), (math.log(50), "×50.0"), (900, "×")]
)
def test_shifts_are_percent_of_the_level_before(shift: float, said: str) -> None:
    assert percent(shift).startswith(said)


def test_slower_is_slower_in_every_view(flash: dict[str, Line]) -> None:
    assert shifted(TIME, math.log(2)).striptags() == "+100% (slower)"
    assert shifted(RATE, math.log(2)).striptags() == "-50% (slower)"
    assert shifted(SPEED_UP, -math.log(2)).striptags() == "-50% (lower)"
    assert all('class="bad"' in shifted(v, s) for v, s in ((TIME, 1.0), (RATE, 1.0), (SPEED_UP, -1.0)))
    assert all('class="good"' in shifted(v, s) for v, s in ((TIME, -1.0), (RATE, -1.0), (SPEED_UP, 1.0)))
    assert "(" not in since_previous(TIME, flash["time"])


def test_nothing_is_coloured_before_it_is_known_how_runs_scatter(runs: list[Run]) -> None:
    """On the fifth day it became half as fast, or the machine did."""
    few = {line.kind: line for line in lines(runs[:5]) if line.latest.contender == "sdpa-flash"}
    for view in (TIME, RATE, SPEED_UP):
        said = since_previous(view, few[view.kind])
        assert said.striptags().endswith("% (too few runs to tell)")  # type: ignore[attr-defined]
        assert 'class="bad"' not in said
    page = to_page(runs[:5], lines(runs[:5]), {})
    assert re.findall(r'data-tab="([^"]+)"', page) == ["speed-up", "time", "FLOP/s"]


@pytest.mark.parametrize(("view", "factor"), [(TIME, 2.0), (RATE, 0.5), (SPEED_UP, 0.5)])
def test_a_chart_has_every_run_and_both_levels_in_its_unit(flash: dict[str, Line], view: View, factor: float) -> None:
    drawn = chart.of_line(view, flash[view.kind])
    before, after = drawn["levels"]
    assert after / before == pytest.approx(factor, rel=0.02)
    assert [change["at"] for change in drawn["changes"]] == [4]
    assert not drawn["changes"][0]["good"]
    assert len(drawn["points"]) == 8
    for _, value, low, high, status, version in drawn["points"]:
        assert low < value < high
        assert value == pytest.approx(before, rel=0.02) or value == pytest.approx(after, rel=0.02)
        assert (status, drawn["versions"][version]) == ("PASSED", "1")


def test_a_line_has_the_same_address_in_every_site(runs: list[Run]) -> None:
    some = {chart.key(TIME, line) for line in lines(runs[:3]) if line.kind == "time"}
    assert some == {chart.key(TIME, line) for line in lines(runs) if line.kind == "time"}
    assert len(some) == 2


def test_the_page_says_what_changed_and_leads_to_every_report(runs: list[Run]) -> None:
    page = to_page(runs, lines(runs), {})
    assert "1 speed-up changed its level, last on 2026-01-05" in page
    assert set(re.findall(r"reports/([0-9a-f]{64})\.html\"", page)) == {run.identity for run in runs}
    assert "Left out" not in page
    assert "No speed-up changed its level" in to_page(runs[:2], lines(runs[:2]), {})


def test_runs_tell_whose_commit_it_is(runs: list[Run]) -> None:
    told = [replace(run, surroundings={**run.surroundings, "commit": "c" * 40}) for run in runs]
    assert "revision" not in headings(to_page(told, lines(told), {}))
    told[-1] = replace(told[-1], surroundings={**told[-1].surroundings, "revision": "d" * 12})
    page = to_page(told, lines(told), {})
    assert {"groundspeed commit", "revision"} <= headings(page)
    assert "commit" not in headings(page)
    assert f"<td>{'d' * 12}" in page


def headings(page: str) -> set[str]:
    return {heading.strip() for heading in re.findall(r"<th[^>]*>([^<]*)", page)}


def heights(svg: str) -> list[float]:
    path = re.search(r'class="run" d="M([^"]+)"', svg)
    assert path
    return [float(place.split()[1]) for place in path[1].split("L")]


def test_noise_under_the_floor_looks_flat_in_a_sparkline() -> None:
    noise = heights(sparkline([1.0, 1.004, 0.998, 1.002], [], 0.01))
    step = heights(sparkline([1.0, 1.0, 1.5, 1.5], [2], 0.01))
    assert max(noise) - min(noise) < HEIGHT / 4
    assert max(step) - min(step) > HEIGHT / 2
    assert step[0] > step[-1], "more is further up"


def test_a_sparkline_of_many_runs_shows_all_of_them_in_few_points() -> None:
    svg = sparkline([1.0] * 500 + [2.0] * 500, [500], 0.01)
    places = heights(svg)
    assert len(places) <= MOST
    assert places[0] != places[-1]
    mark = re.search(r'class="mark" d="M([\d.]+) 0', svg)
    assert mark
    assert float(mark[1]) == pytest.approx(60, abs=3)
    assert heights(sparkline([3.0], [], 0.01)) == [HEIGHT / 2]
    assert sparkline([], [], 0.01) == ""
