"""A figure of the page as a chart in a file, for a report in Markdown: its panels in rows under a legend, in the
colours of a light or a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groundspeed.judge.judgement import Judgement
from groundspeed.report.charts.frame import LETTER, WIDTH, Spec, Theme, columns_for, framed, styles
from groundspeed.report.html.figure import PAGE, Figure

MARGIN, GAP, LEAST = 60, 24, 200
"""Of a panel: room for the labels of its axis, to the next one, and the least width."""
OF_A_VIEW = ("layer", "height")
"""What a panel takes of the page's specification; the rest is said of the whole chart."""
SIGN = 40
"""Width of a line of the legend, without its letters."""


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
    first = figure.options[0] if figure.options else None  # where a reader of the page may choose
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
    """As the page names them → as this theme has them."""
    names = ("ink", "quiet", "grid", "page", "bad")
    pairs = [(getattr(PAGE, name), getattr(theme, name)) for name in names]
    return dict([*pairs, *zip(PAGE.ours, theme.ours, strict=True), *zip(PAGE.rivals, theme.rivals, strict=True)])


def in_colours(spec: Any, colours: dict[str, str], legend: Spec | None) -> Any:
    """Without what is told of a point that is pointed at, and with a legend of the contenders, which a page has of its
    own."""
    if isinstance(spec, list):
        return [in_colours(part, colours, legend) for part in spec]
    if not isinstance(spec, dict):
        return colours.get(spec, spec) if isinstance(spec, str) else spec
    made = {
        key: part if key == "domain" else in_colours(part, colours, legend)  # in a domain are names
        for key, part in spec.items()
        if key != "tooltip"
    }
    return {**made, "legend": legend} if made.get("field") == "contender" and "legend" in made else made
