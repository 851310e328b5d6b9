"""A figure of the page as a chart in a file, for a report in Markdown: its panels in rows under a legend, in the
colours of a light or dark page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts.frame import LETTER, WIDTH, Spec, Theme, columns_for, framed, styles
from groundspeed.report.html.figure import PAGE, Figure

MARGIN, GAP, LEAST = 60, 24, 200
"""Pixels of a panel: the room for the labels of its axis, the gap to the next panel, and the least width."""
OF_A_VIEW = ("layer", "height")
"""The keys that a panel takes from the page's specification; the rest applies to the whole chart."""
SIGN = 40
"""Width of an entry of the legend without its name, in pixels."""


def still(figure: Figure, judgement: Judgement, identity: str, theme: Theme, caption: Sequence[str] = ()) -> Spec:
    record = judgement.record
    columns = min(len(figure.panels), 3)
    width = max(LEAST, (WIDTH - columns * MARGIN - (columns - 1) * GAP) // columns)
    evidence = f"evidence: bundle {identity[:12]}"
    names = [style.contender for style in styles(judgement, theme)]
    legend = {
        "orient": "top",
        "direction": "horizontal",
        "columns": columns_for([SIGN + LETTER * len(name) for name in names], WIDTH),
        "symbolSize": 60,
        "offset": 12,
    }
    first = figure.options[0] if figure.options else None  # if a reader of the page can choose
    view = {key: in_colours(figure.spec[key], colours_of(theme), legend) for key in OF_A_VIEW}
    return framed(
        theme,
        title=f"{record.run.suite} on {judgement.device_name}",
        subtitle=[f"{figure.says[:1].upper()}{figure.says[1:]}{f'; {first}' if first else ''}", evidence],
        caption=caption,
        values=[],
        chart={
            "concat": [
                {
                    **view,
                    "width": width,
                    "title": {"text": panel.title, "color": theme.ink, "fontSize": 12, "anchor": "middle"},
                    "data": {"values": [v for v in panel.values if first is None or v[figure.choose] == first]},
                }
                for panel in figure.panels
            ],
            "columns": columns,
            "spacing": GAP,
            "resolve": {"scale": {"color": "shared", "shape": "shared"}},
        },
    )


def colours_of(theme: Theme) -> dict[str, str]:
    """Map the page's names of colours to the colours of this theme."""
    names = ("ink", "quiet", "grid", "page", "bad")
    pairs = [(getattr(PAGE, name), getattr(theme, name)) for name in names]
    return dict([*pairs, *zip(PAGE.ours, theme.ours, strict=True), *zip(PAGE.rivals, theme.rivals, strict=True)])


def in_colours(spec: Any, colours: dict[str, str], legend: Spec | None) -> Any:
    """Return a specification in other colours, without tooltips and with a legend of the contenders, which the page
    draws by itself."""
    if isinstance(spec, list):
        return [in_colours(part, colours, legend) for part in spec]
    if not isinstance(spec, dict):
        return colours.get(spec, spec) if isinstance(spec, str) else spec
    made = {
        key: part if key == "domain" else in_colours(part, colours, legend)  # a domain contains names
        for key, part in spec.items()
        if key != "tooltip"
    }
    return {**made, "legend": legend} if made.get("field") == "contender" and "legend" in made else made
