"""The page with all lines of a history, and the report of each run beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groundspeed.judge.beside import Beside
from groundspeed.judge.history import Run
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.lines import Line
from groundspeed.report import text
from groundspeed.report.history import chart
from groundspeed.report.history.sparkline import sparkline
from groundspeed.report.history.views import (
    SPEED_UP,
    VIEWS,
    View,
    changed_on,
    last_change,
    latest,
    since_previous,
    when,
)
from groundspeed.report.html import to_html
from groundspeed.report.page import Column, Shared, Table, render, source

FEW = 60
"""Rows of a table that are shown before the reader asks for all; page.css has the same number."""
LIBRARY = "vega.js"
"""The library that draws the charts of the reports. They share one file, which would be most of the size of each."""


def to_report(judgement: Judgement, identity: str, profiles: Sequence[Beside] = ()) -> str:
    """Return the report of one bundle as a page in a folder of the site."""
    return to_html(judgement, identity, shared=Shared("../index.html", [f"../{LIBRARY}"]), profiles=profiles)


def to_page(runs: Sequence[Run], lines: Sequence[Line], refused: Mapping[str, str]) -> str:
    views = [(view, [line for line in lines if view.shows(line)]) for view in VIEWS]
    several = {
        "dtype": len({line.latest.dtype for line in lines}) > 1,
        "clock": len({line.latest.clock for line in lines}) > 1,
        "suite": len({line.suite for line in lines}) > 1,
        "device": len({line.device for line in lines}) > 1,
    }
    tables = [(view.name, view.meaning, _table(view, some, runs, several)) for view, some in views if some]
    drawn = {chart.key(view, line): chart.of_line(view, line) for view, some in views for line in some}
    return render(
        "history.html",
        scripts=[source("history.js")],
        styles=[source("history.css")],
        tables=tables,
        few=FEW,
        lead=_lead(runs, lines),
        runs=_runs_table(runs),
        refused=Table("Left out", (Column("bundle"), Column("why")), [*refused.items()]),
        content={"runs": [chart.of_run(run) for run in runs], "lines": drawn},
    )


def _lead(runs: Sequence[Run], lines: Sequence[Line]) -> str:
    results = sum(len(run.measured) for run in runs)
    days = sorted({run.started[:10] for run in runs})
    dates = f", {days[0]} to {days[-1]}" if len(days) > 1 else f", {days[0]}" if days else ""
    devices = sorted({run.device for run in runs})
    where = f" on {devices[0]}" if len(devices) == 1 else f" on {len(devices)} devices"
    times = sum(line.kind == "time" for line in lines)
    return (
        f"{text.plural(len(runs), 'run')} with {text.plural(results, 'result')}{where}{dates}: "
        f"{text.plural(times, 'line')}, each of one contender on one case. {_changed(runs, lines)}"
    )


def _changed(runs: Sequence[Run], lines: Sequence[Line]) -> str:
    """Say how many lines changed their level. Only speed-ups count, because changes of the machine do not move them."""
    changed = [line for line in lines if line.kind == "speed-up" and line.changes]
    if not changed:
        return "No speed-up changed its level."
    last = max(changed_on(line, runs) for line in changed)
    whose = "its" if len(changed) == 1 else "their"
    return f"{text.plural(len(changed), 'speed-up')} changed {whose} level, last on {last}."


def _table(view: View, lines: Sequence[Line], runs: Sequence[Run], several: Mapping[str, bool]) -> Table:
    columns = [
        Column("case"),
        Column("contender", choose=True),
        *([Column("baseline", choose=True)] if view is SPEED_UP else []),
        Column("latest", number=True),
        Column("since previous", number=True),
        Column("trend"),
        Column("last change", number=True),
        Column("runs", number=True),
        *(Column(name, choose=True) for name, more in several.items() if more),
    ]
    return Table(f"Lines by {view.name}", columns, [_row(view, line, runs, several) for line in lines])


def _row(view: View, line: Line, runs: Sequence[Run], several: Mapping[str, bool]) -> list[str]:
    from markupsafe import Markup

    about = {
        "dtype": line.latest.dtype,
        "clock": line.latest.clock,
        "suite": line.suite,
        "device": line.device,
    }
    link = Markup('<a class="line" href="#{}" title="{}">{}</a>').format(
        chart.key(view, line), text.safe(line.latest.work), text.safe(line.latest.case)
    )
    values = [view.of(line, figure) for _, figure in line.counted]
    marks = [change.at for change in line.changes]
    return [
        link,
        line.latest.contender,
        *([line.baseline] if view is SPEED_UP else []),
        latest(view, line),
        since_previous(view, line),
        sparkline([value for value, _, _ in values], marks, line.floor),
        last_change(view, line, runs),
        f"{len(line.points):,}",
        *(about[name] for name, more in several.items() if more),
    ]


def _runs_table(runs: Sequence[Run]) -> Table:
    """Return the table of runs, latest first. A column of CHOSEN is left out if all runs have the same value."""
    from markupsafe import Markup

    columns: dict[str, list[str]] = {
        "started (UTC)": [when(run) for run in runs],
        "suite": [run.suite for run in runs],
        "preset": [run.preset for run in runs],
        "device": [run.device for run in runs],
        "baseline": [run.baseline for run in runs],
        "processes": [_of(run.processes, run.declared) for run in runs],
        "results": [f"{len(run.measured):,}" for run in runs],
        **{name: [run.surroundings.get(name, text.NOTHING) for run in runs] for name in ("driver", "PyTorch")},
        "revision": [run.surroundings.get("revision", text.NOTHING) for run in runs],
        "groundspeed commit": [_short(run.surroundings.get("commit", text.NOTHING)) for run in runs],
        "report": [Markup('<a href="reports/{}.html">{}</a>').format(run.identity, run.identity[:12]) for run in runs],
    }
    shown = {name: cells for name, cells in columns.items() if name not in CHOSEN or len(set(cells)) > 1}
    headings = [Column(name, number=name in ("processes", "results"), choose=name in CHOSEN) for name in shown]
    return Table("Runs", headings, [*zip(*shown.values(), strict=True)][::-1])


CHOSEN = ("suite", "preset", "device", "baseline", "driver", "PyTorch", "revision")
"""The columns by which the table of runs can be filtered."""


def _of(done: int, declared: int) -> str:
    return f"{done}" if done == declared else f"{done} of {declared}"


def _short(commit: str) -> str:
    """Return twelve digits of a commit, with `+` if the working tree had changes."""
    return commit.partition("+")[0][:12] + ("+" if "+" in commit else "")
