"""The chart of a run as SVG: throughput by sequence length where the run is a sweep, speed-ups by case elsewhere."""

from __future__ import annotations

from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts import speedups, svg, sweep
from groundspeed.report.charts.frame import DARK, LIGHT, Spec


def to_svg(judgement: Judgement, identity: str, *, dark: bool = False) -> str:
    """On a transparent ground, for a light page or a dark one."""
    return svg.render(spec(judgement, identity, dark=dark))


def spec(judgement: Judgement, identity: str, *, dark: bool = False) -> Spec:
    """The chart in Vega-Lite. What comes out of the bundle is in it as values of data, as the domain of a scale or as a
    title: never as a field's name, and never inside an expression."""
    theme = DARK if dark else LIGHT
    found = sweep.find(judgement.cases)
    return sweep.draw(judgement, found, identity, theme) if found else speedups.draw(judgement, identity, theme)
