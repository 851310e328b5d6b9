"""The Markdown report with its charts in files beside it, where vl-convert is installed to draw them."""

from __future__ import annotations

from importlib.util import find_spec

from groundspeed.errors import BadInput
from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts import speedups, svg, sweep
from groundspeed.report.charts.frame import DARK, LIGHT, Spec, Theme
from groundspeed.report.markdown import Picture, to_markdown


def illustrated(judgement: Judgement, identity: str, name: str, price_per_hour: float | None = None) -> dict[str, str]:
    """Name of a file → what is in it: the report under its own name, then a chart for light pages and one for dark
    ones of each kind that the run has."""
    stem = name.rpartition(".")[0] or name
    pictures, files = [], {}
    for kind, says in KINDS.items() if find_spec("vl_convert") else ():
        light, dark = f"{stem}-{kind}.svg", f"{stem}-{kind}-dark.svg"
        for file, theme in ((light, LIGHT), (dark, DARK)):
            if chart := _draw(kind, judgement, identity, theme):
                files[file] = svg.render(chart)
        if light in files:
            pictures.append(Picture(says, light, dark))
    return {name: to_markdown(judgement, identity, price_per_hour, pictures), **files}


KINDS = {
    "sweep": "rate by sequence length, a line for each contender",
    "speedups": "speed-up over the baseline on every case, with 95% intervals",
}


def _draw(kind: str, judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    try:
        if kind == "speedups":
            return speedups.draw(judgement, identity, theme)
        found = sweep.find(judgement.cases)
        return sweep.draw(judgement, found, identity, theme) if found else None
    except BadInput:  # there is nothing to draw, and the report says why
        return None
