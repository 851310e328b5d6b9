"""The data that history.js draws: lines in their units, and facts about their runs. All of it is values, never
code."""

from __future__ import annotations

import math
from typing import Any

from groundspeed.evidence.integrity import sha256
from groundspeed.judge.history import Run
from groundspeed.judge.lines import Line
from groundspeed.report import text
from groundspeed.report.history.views import RATE, View, percent, shifted, when

CALLED = {"commit": "groundspeed commit"}
"""Longer names for facts about a run whose own name does not explain them."""
DIGITS = 6
"""The number of significant digits of a value."""


def key(view: View, line: Line) -> str:
    """Return the name of a line in the page's address. It is the same each time the site is made."""
    about = (line.suite, line.device, line.latest.params, line.latest.contender, line.baseline)
    return f"{view.name.replace('/', '')}-{sha256(repr(about).encode())[:12]}"


def of_line(view: View, line: Line) -> dict[str, Any]:
    """Return a line as the chart takes it, with values in its unit."""
    seen = [view.of(line, figure) for _, figure in line.counted]
    size, unit = view.unit(max((value for value, _, _ in seen), default=1.0))
    versions = [*dict.fromkeys(point.version for point in line.points)]

    def scaled(value: float | None) -> float | None:
        return None if value is None else float(f"{value / size:.{DIGITS}g}")

    points = []
    for point in line.points:
        ends = map(scaled, view.of(line, point.figure)) if point.figure else (None, None, None)
        points.append([point.run, *ends, point.status, versions.index(point.version)])
    levels = []
    if line.changes:
        logs = [line.changes[0].before, *(change.after for change in line.changes)]
        exact = [math.exp(level) for level in logs]
        levels = [scaled(line.latest.flops / level if view is RATE else level) for level in exact]
    about = [line.latest.work, line.latest.clock, line.suite, line.device]
    return {
        "view": view.name,
        "case": text.safe(line.latest.case),
        "contender": text.safe(line.latest.contender),
        "baseline": text.safe(line.baseline),
        "about": [text.safe(part) for part in about if part],
        "unit": unit,
        "floor": line.floor,
        "versions": [text.safe(version) for version in versions],
        "points": points,
        "levels": levels,
        "changes": [
            {
                "at": change.at,
                "said": shifted(view, change.shift).striptags(),
                "good": change.shift * view.sign * view.better > 0,
                "ends": [percent(end, 1) for end in sorted((view.sign * change.low, view.sign * change.high))],
            }
            for change in line.changes
        ],
    }


def of_run(run: Run) -> dict[str, Any]:
    return {
        "when": when(run),
        "report": f"reports/{run.identity}.html",
        "bundle": run.identity[:12],
        "about": {CALLED.get(name, name): text.safe(value) for name, value in run.surroundings.items()},
    }
