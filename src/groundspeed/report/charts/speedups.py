"""Named cases: the speed-up over the baseline on every case, with a panel for each contender."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.cells import cell_len

from groundspeed.errors import BadInput
from groundspeed.judge.claims import ratio_text
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.verdict import Comparison
from groundspeed.report import text
from groundspeed.report.charts.frame import (
    LETTER,
    NOTHING,
    WIDTH,
    Spec,
    Style,
    Theme,
    columns_for,
    framed,
    missing,
    same_kernels,
    styles,
)

ROW = 20
"""Height of a case in pixels."""
GAP = 30
LONGEST = 34
"""The most characters of a case's name that are shown."""
SAID = 46
"""Width of the column with the ratios as text, in pixels."""

WIDER = 1.2
"""A reader without the fonts that the chart names may have a font that is wider by this factor."""
NEAR = 2.0
"""The most by which contenders that are not judged stretch the axis, as a factor."""

_FAR = 50.0
"""A log ratio beyond every axis."""
_TICK_ROOM = 26
_TICKS = tuple(
    tuple(float(f"{m}e{k}") for k in range(-6, 7) for m in steps)
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
)
"""From fine to coarse."""


def draw(judgement: Judgement, identity: str, theme: Theme) -> Spec:
    record = judgement.record
    compared = {
        (case.facts.name, c.contender): c for case in judgement.cases for r in case.results if (c := r.comparison)
    }
    if not compared:
        raise BadInput(NOTHING)
    chosen = [s for s in styles(judgement, theme) if any(name == s.contender for _, name in compared)]
    cases = [case.facts.name for case in judgement.cases if any(name == case.facts.name for name, _ in compared)]
    values = [
        _value(case, place, style, compared[case, style.contender])
        for place, style in enumerate(chosen)
        for case in cases
        if (case, style.contender) in compared
    ]
    low, high = shared_limits(values, record.run.judged)
    for value in values:
        value["beyond"] = "below" if value["ratio"] < low else "above" if value["ratio"] > high else None
        value["edge"] = low if value["ratio"] < low else high
    beyond = dict.fromkeys(value["contender"] for value in values if value["beyond"])
    for place in range(len(chosen)):
        next(value for value in values if value["place"] == place)["first"] = True
    columns = columns_for([1.0] * len(chosen), 4)
    names = min(LONGEST, max(map(cell_len, cases))) * LETTER * WIDER + 12
    width = int((WIDTH - names - GAP * (columns - 1)) / columns)
    not_drawn = list(missing(judgement.cases, [c.name for c in record.measured]))
    hollow = any(not value["decided"] for value in values)
    return framed(
        theme,
        title=f"{record.run.suite} on {judgement.device_name}",
        subtitle=[
            f"speed-up over the baseline {record.run.baseline} (above 1 is faster), with the 95% interval over "
            f"{text.plural(len(record.finished_attempts), 'process', 'es')}",
            f"evidence: bundle {identity[:12]}{'; hollow: UNCLEAR, or not judged' if hollow else ''}",
        ],
        caption=[
            *(
                [f"triangles: beyond the axis, which fits the judged contenders ({', '.join(beyond)})"]
                if beyond
                else []
            ),
            *(["; ".join(not_drawn)] if not_drawn else []),
            *same_kernels(record),
        ],
        values=values,
        chart={
            "facet": {
                "field": "contender",
                "sort": {"field": "place", "op": "min"},
                "header": {"title": None, "labelAnchor": "start", "labelLimit": width, "labelPadding": 6},
            },
            "columns": columns,
            "spacing": {"row": 18, "column": GAP},
            "spec": {
                "width": width,
                "height": ROW * len(cases),
                "layer": _layers(theme, chosen, cases, (low, high), width, int(names) - 12),
            },
        },
    )


def _value(case: str, place: int, style: Style, comparison: Comparison) -> Spec:
    theta = comparison.interval
    low, high = (theta.low, theta.high) if theta.n > 1 else (theta.mean, theta.mean)
    return {
        "case": case,
        "contender": style.contender,
        "place": place,
        "ratio": comparison.ratio,
        "low": math.exp(max(low, -_FAR)),
        "high": math.exp(min(high, _FAR)),
        "decided": comparison.verdict not in (None, "UNCLEAR"),
        "said": f"{ratio_text(comparison.ratio)}×",
    }


def shared_limits(values: Sequence[Spec], judged: Sequence[str]) -> tuple[float, float]:
    """Return the limits of the judged contenders and those near them. One that is forty times slower would squeeze all
    others together."""
    low, high = limits([value for value in values if value["contender"] in judged] or values)
    near = [v for v in values if v["contender"] in judged or low / NEAR <= v["ratio"] <= high * NEAR]
    return limits(near or values)


def limits(values: Sequence[Spec]) -> tuple[float, float]:
    """Return the ends of the axis. It covers 1, every point, and intervals up to a factor of 2 beyond the points."""
    ratios = [1.0, *(value["ratio"] for value in values)]
    low = max(min([1.0, *(v["low"] for v in values)]), min(ratios) / 2)
    high = min(max([1.0, *(v["high"] for v in values)]), max(ratios) * 2)
    room = max((high / low) ** 0.06, 1.02)
    return low / room, high * room


def ticks(low: float, high: float, width: int) -> list[float]:
    """Return as many ticks as there is room for, 1 among them."""
    for steps in _TICKS:
        found = [t for t in steps if low <= t <= high]
        places = [math.log(t / low) / math.log(high / low) * width for t in found]
        if all(b - a >= _TICK_ROOM for a, b in pairwise(places)):
            return found
    return [1.0]


def _layers(
    theme: Theme, chosen: Sequence[Style], cases: Sequence[str], ends: tuple[float, float], width: int, names: int
) -> list[Spec]:
    # The figures are in a column of their own at the right; the axis ends before it.
    plot = width - SAID
    low, high = ends
    end = low * (high / low) ** (width / plot)
    x: Spec = {
        "field": "ratio",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [low, end], "nice": False},
        "axis": {"values": ticks(low, high, plot), "grid": True, "labelExpr": "datum.value + '×'", "title": None},
    }
    y: Spec = {
        "field": "case",
        "type": "nominal",
        "scale": {"domain": list(cases)},
        "axis": {
            "title": None,
            "labelLimit": int(LONGEST * LETTER),
            "labelFontSize": 12,
            "labelColor": theme.ink,
            "minExtent": names,
        },
    }
    colours = [theme.rivals[0] if style.role == "rival" else style.colour for style in chosen]
    colour: Spec = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": [style.contender for style in chosen], "range": colours},
        "legend": None,
    }
    mark: Spec = {"x": x, "y": y, "color": colour}
    beyond: list[Spec] = [
        {
            "transform": [{"filter": f"datum.beyond == '{side}'"}],
            "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1, "shape": shape},
            "encoding": {**mark, "x": {**x, "field": "edge"}},
        }
        for side, shape in (("below", "triangle-left"), ("above", "triangle-right"))
    ]
    return [
        {
            "transform": [{"filter": "datum.first"}],
            "mark": {"type": "rule", "color": theme.quiet, "strokeDash": [4, 3]},
            "encoding": {"x": {"datum": 1, **{k: v for k, v in x.items() if k != "field"}}},
        },
        {
            "transform": [{"filter": "!datum.beyond"}],
            "mark": {"type": "rule", "strokeWidth": 2, "clip": True},
            "encoding": {**mark, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "!datum.beyond"}],
            "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1},
            "encoding": mark,
        },
        *beyond,
        {
            "transform": [{"filter": "!datum.decided && !datum.beyond"}],
            "mark": {"type": "point", "filled": True, "size": 24, "opacity": 1, "color": theme.page},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "text", "align": "right", "x": "width", "fontSize": 11, "color": theme.ink},
            "encoding": {"y": y, "text": {"field": "said", "type": "nominal"}},
        },
    ]
