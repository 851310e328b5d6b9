"""The speed-up of a contender on every case, with its interval; the reader chooses the contender."""

from __future__ import annotations

import math

from groundspeed.judge.claims import with_interval
from groundspeed.judge.judgement import Judgement
from groundspeed.report import text
from groundspeed.report.charts.frame import Spec
from groundspeed.report.html.figure import PAGE, Figure, Panel, chosen_styles, framed, short_names, shown

ROW = 20
VERDICTS = {"FASTER": "var(--good)", "SLOWER": "var(--bad)", "SAME": "var(--same)", "UNCLEAR": "var(--doubt)"}
LABEL = "format(datum.value, '.3~r') + '×'"
FAR = 50.0
"""A log ratio beyond every axis."""


def draw(judgement: Judgement) -> Figure | None:
    """Return the chart; None if there is no pair. The judged contenders come first."""
    names = short_names([case.facts.name for case in judgement.cases])
    judged = judgement.record.run.judged
    order = [style.contender for style in chosen_styles(judgement)]
    order.sort(key=lambda name: name not in judged)
    values: list[Spec] = []
    for case in judgement.cases:
        for result in case.results:
            if c := result.comparison:
                low, high = (c.interval.low, c.interval.high) if c.interval.n > 1 else (c.interval.mean,) * 2
                verdict = c.verdict or "not judged"
                values.append(
                    {
                        "case": names[case.facts.name],
                        "contender": result.contender,
                        "ratio": c.ratio,
                        "low": math.exp(max(low, -FAR)),
                        "high": math.exp(min(high, FAR)),
                        "verdict": verdict,
                        "said": f"{with_interval(c.interval)} {verdict}",
                    }
                )
    options = [name for name in order if any(value["contender"] == name for value in values)]
    if not options:
        return None
    says = f"speed-up over {judgement.record.run.baseline} on every case, with 95% intervals over processes"
    return Figure("speed-ups", text.safe(says), _spec(), [Panel("", values)], "contender", options, ROW)


def _spec() -> Spec:
    x = {
        "field": "ratio",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "padding": 14},
        "axis": {"orient": "top", "labelExpr": LABEL, "title": "baseline time / contender time"},
    }
    y = {
        "field": "case",
        "type": "nominal",
        "sort": None,
        "axis": {"title": None, "labelFontSize": 12, "labelColor": PAGE.ink, "grid": False},
    }
    colour = {
        "field": "verdict",
        "type": "nominal",
        "scale": {"domain": [*VERDICTS, "not judged"], "range": [*VERDICTS.values(), PAGE.quiet]},
        "legend": None,
    }
    return framed(
        0,  # the page sets it by the number of rows
        [
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "color": PAGE.quiet, "strokeDash": [4, 3]},
                "encoding": {"x": {"datum": 1, **{k: v for k, v in x.items() if k != "field"}}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, **shown("case", "said")},
            },
            {
                "transform": [{"filter": "datum.verdict == 'UNCLEAR' || datum.verdict == 'not judged'"}],
                "mark": {"type": "point", "filled": True, "size": 20, "opacity": 1, "color": PAGE.page},
                "encoding": {"x": x, "y": y, **shown("case", "said")},
            },
        ],
    )
