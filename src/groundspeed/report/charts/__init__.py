"""The chart of a run as SVG: throughput by sequence length if the run is a sweep, else speed-ups by case."""

from __future__ import annotations

from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts import speedups, svg, sweep
from groundspeed.report.charts.frame import DARK, LIGHT, Spec


def to_svg(judgement: Judgement, identity: str, *, dark: bool = False) -> str:
    """Return the chart on a transparent background, for a light or a dark page."""
    return svg.render(spec(judgement, identity, dark=dark))


def spec(judgement: Judgement, identity: str, *, dark: bool = False) -> Spec:
    """Return the chart in Vega-Lite. Text from the bundle is in it as values of data, as the domain of a scale or as a
    title, never as a field's name and never inside an expression."""
    theme = DARK if dark else LIGHT
    found = sweep.find(judgement.cases)
    return sweep.draw(judgement, found, identity, theme) if found else speedups.draw(judgement, identity, theme)
