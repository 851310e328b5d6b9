"""Common parts of the page's charts. A chart is a Vega-Lite specification and its values; the page draws it as wide as
there is room. Text from a bundle is a value or the domain of a scale, never a field's name or an expression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.judge.judgement import Judgement
from groundspeed.report import text
from groundspeed.report.charts.frame import FONT, Spec, Style, Theme, styles

PAGE = Theme(
    ink="var(--ink)",
    quiet="var(--quiet)",
    grid="var(--line)",
    page="var(--page)",
    bad="var(--bad)",
    ours=tuple(f"var(--ours-{i})" for i in range(2)),
    rivals=tuple(f"var(--rival-{i})" for i in range(6)),
)
"""Colours by their names in page.css, so that a chart follows the page from light to dark without being redrawn."""

SIGNS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "triangle-down": "▼"}


@dataclass(frozen=True)
class Panel:
    title: str
    values: list[Spec]


@dataclass(frozen=True)
class Figure:
    """Panels that share a specification, side by side where there is room."""

    name: str
    says: str
    """A description for readers who cannot see the figure."""
    spec: Spec
    panels: Sequence[Panel]
    choose: str = ""
    """The key of the values by which the reader chooses what is drawn; empty if there is no choice."""
    options: Sequence[str] = ()
    """The values of that key that can be chosen; the first is drawn at first."""
    row_height: int = 0
    """The height of a row in pixels, if the values are drawn in rows; else 0."""

    @property
    def data(self) -> dict[str, Any]:
        """The figure as charts.js takes it."""
        return {
            "spec": self.spec,
            "panels": [packed(panel.values) for panel in self.panels],
            "rowHeight": self.row_height,
        }


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    name: str
    sign: str
    colour: str
    """The class in page.css that sets the colour."""
    role: str = ""


def legend(judgement: Judgement) -> list[Key]:
    return [Key(s.contender, SIGNS[s.shape], colour_class(s.colour), s.role) for s in chosen_styles(judgement)]


def colour_class(colour: str) -> str:
    """Return the class of a colour: `c-rival-2` for `var(--rival-2)`."""
    return "c-" + colour.removeprefix("var(--").removesuffix(")")


def chosen_styles(judgement: Judgement) -> list[Style]:
    return styles(judgement, PAGE)


def contender_channels(chosen: Sequence[Style]) -> Spec:
    """Return the colour and shape of the contenders. They have no legend, because the page has its own."""
    names = [style.contender for style in chosen]
    scales = {"color": [style.colour for style in chosen], "shape": [style.shape for style in chosen]}
    return {
        channel: {
            "field": "contender",
            "type": "nominal",
            "scale": {"domain": names, "range": range_},
            "legend": None,
        }
        for channel, range_ in scales.items()
    }


MOST_TICKS = 7


def shown(*fields: str) -> Spec:
    """Return a tooltip that shows these fields of a point."""
    return {"tooltip": [{"field": field, "type": "nominal"} for field in fields]}


def packed(values: Sequence[Spec]) -> Spec:
    """Return the values as columns, with each text once and numbers to five digits, which takes a third of the size.
    charts.js unpacks them."""
    columns: Spec = {}
    for key in dict.fromkeys(key for value in values for key in value):
        column = [value.get(key) for value in values]
        if any(isinstance(cell, str) for cell in column):
            places = {said: i for i, said in enumerate(dict.fromkeys(column))}
            columns[key] = {"texts": list(places), "at": [places[cell] for cell in column]}
        else:
            columns[key] = [float(f"{cell:.5g}") if isinstance(cell, float) else cell for cell in column]
    return {"length": len(values), "columns": columns}


def framed(height: int, layer: list[Spec], **more: Any) -> Spec:
    label = {"labelColor": PAGE.quiet, "labelFontSize": 11, "titleColor": PAGE.quiet, "titleFontSize": 11}
    return {
        "height": height,
        "background": None,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": 2,
        "layer": layer,
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "text": {"color": PAGE.ink},
            "axis": {
                **label,
                "titleFontWeight": "normal",
                "gridColor": PAGE.grid,
                "domain": False,
                "ticks": False,
                "labelPadding": 6,
            },
            "axisX": {"labelOverlap": "greedy", "labelSeparation": 8},  # a narrow screen has room for fewer
        },
        **more,
    }


def log_ticks(low: float, high: float, base: int = 10) -> list[float]:
    """Return about three to seven round numbers in the range: powers of `base`, or finer or coarser steps if needed."""
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    for step, within in ((1, (1, 2, 5) if base == 10 else (1, 2)), (1, (1,)), (2, (1,)), (3, (1,)), (5, (1,))):
        found = [float(m) * base**k for k in range(first - first % step, last + 1, step) for m in within]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= MOST_TICKS:
            break
    return found


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the names without the hyphenated parts with which all of them begin or end: `d64-s512-full` is enough if
    all are `sweep-…-bf16`."""
    parts = [name.split("-") for name in names]
    least = min(map(len, parts), default=0)
    begin, end = 0, 0
    if len(parts) > 1:
        while begin < least - 1 and len({tuple(p[: begin + 1]) for p in parts}) == 1:
            begin += 1
        while begin + end < least - 1 and len({tuple(p[len(p) - end - 1 :]) for p in parts}) == 1:
            end += 1
    return {name: text.safe("-".join(p[begin : len(p) - end])) for name, p in zip(names, parts, strict=True)}
