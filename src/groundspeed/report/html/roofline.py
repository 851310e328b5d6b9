"""Every contender on every case under the roofs of the device: the measured ones and the datasheet's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from groundspeed.case import CLOCKS
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.roofline import intensity, roofs_of
from groundspeed.report import table, text
from groundspeed.report.charts.frame import Spec, Style
from groundspeed.report.html.figure import (
    PAGE,
    Figure,
    Panel,
    chosen_styles,
    contender_channels,
    framed,
    log_ticks,
    shown,
)

HEIGHT = 380
ROOM = 1.6
"""Factor by which the axes extend beyond the points."""


PLAIN = "format(datum.value, ',~r')"


class Drawn(NamedTuple):
    figure: Figure
    roofs: list[str]
    """The roofs in words."""


def draw(judgement: Judgement) -> Drawn | None:
    """Return the chart; None if no contender has a rate. Without roofs it has only points, and the page says so."""
    unit, unit_name = table.flop_unit(judgement)
    several = len({case.clock for case in judgement.cases}) > 1
    values: list[Spec] = []
    for case in judgement.cases:
        x = intensity(case.facts)
        for result in case.results:
            if x is not None and result.rates:
                rate = f"{text.significant(result.rates.flops / unit)} {unit_name}"
                values.append(
                    {
                        "contender": result.contender,
                        "clock": CLOCKS.get(case.clock, case.clock),
                        "x": x,
                        "y": result.rates.flops / unit,
                        "case": case.facts.name,
                        "said": rate,
                    }
                )
    if not values:
        return None
    low, high = min(v["x"] for v in values) / ROOM, max(v["x"] for v in values) * ROOM
    lines: list[Spec] = []
    told = []
    for dtype in dict.fromkeys(str(case.facts.params.get("dtype")) for case in judgement.cases):
        for roofs in roofs_of(judgement, dtype):
            low, high = min(low, roofs.ridge / 4), max(high, roofs.ridge * 4)
            rate = f"{text.significant(roofs.flops / unit)} {unit_name}"
            told.append(text.safe(f"{roofs.origin}, {dtype}: {rate}, {text.significant(roofs.bandwidth / 1e9)} GB/s"))
    for dtype in dict.fromkeys(str(case.facts.params.get("dtype")) for case in judgement.cases):
        for roofs in roofs_of(judgement, dtype):
            lines += [
                {"roof": f"{roofs.origin} {dtype}", "origin": roofs.origin, "x": x, "y": roofs.allow(x) / unit}
                for x in (low, roofs.ridge, high)
            ]
    clocks = list(dict.fromkeys(v["clock"] for v in values))
    bottom = min(v["y"] for v in values) / ROOM
    spec = spec_of(
        chosen_styles(judgement), lines, [low, high], bottom, max(v["y"] for v in (*values, *lines)) * ROOM, unit_name
    )
    says = "rate of every contender on every case against FLOP per byte, under the roofs of the device"
    chosen = ("clock", clocks) if several else ("", ())
    return Drawn(Figure("roofline", says, spec, [Panel("", values)], *chosen), told)


def spec_of(chosen: Sequence[Style], lines: list[Spec], xs: list[float], bottom: float, top: float, unit: str) -> Spec:
    """Return the specification: `lines` as roofs, and points for the values that the page adds."""
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "domain": xs, "nice": False},
        "axis": {
            "title": "FLOP per byte that the maths must move",
            "labelExpr": PLAIN,
            "values": log_ticks(xs[0], xs[1]),
        },
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [bottom, top], "nice": False},
        "axis": {"title": unit, "labelExpr": PLAIN, "minExtent": 44, "values": log_ticks(bottom, top)},
    }
    roof = {
        "x": x,
        "y": y,
        "detail": {"field": "roof", "type": "nominal"},
        "strokeDash": {
            "field": "origin",
            "type": "nominal",
            "scale": {"domain": ["measured", "datasheet"], "range": [[1, 0], [5, 4]]},
            "legend": None,
        },
    }
    return framed(
        HEIGHT,
        [
            {
                "data": {"values": lines},
                "mark": {"type": "line", "color": PAGE.quiet, "strokeWidth": 1.6, "clip": True},
                "encoding": roof,
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.75, "size": 42},
                "encoding": {
                    "x": x,
                    "y": y,
                    **contender_channels(chosen),
                    **shown("contender", "case", "said"),
                },
            },
        ],
    )
