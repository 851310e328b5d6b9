"""The timeline of a memory profile: the live bytes, below the phases. Names are values, never part of an expression."""

from __future__ import annotations

from collections.abc import Iterator

from groundspeed.evidence.memory import MemoryUse
from groundspeed.report import text
from groundspeed.report.charts import svg
from groundspeed.report.charts.frame import DARK, LETTER, LIGHT, WIDTH, Spec, Theme, columns_for, framed
from groundspeed.report.html import figure
from groundspeed.report.html.figure import PAGE, Figure, Key, Panel, colour_class
from groundspeed.report.memory import views

HEIGHT = 260
MOST_POINTS = 2_000
"""The most points of the curve: about two per pixel of a wide page."""
MOST_SPANS = 500
STRIP, ROWS = 9, 3
"""Height of a phase's bar above the curve in pixels, and the most rows of bars, one below the other for nested
phases."""
LABEL = 18
"""Room for the label of the peak, in pixels."""
SIGN = 40
"""Width of an entry of the legend without its name, in pixels."""
LONGEST = 40
"""The most characters of a phase's name in the legend."""
OTHER = "other"


def to_svg(use: MemoryUse, *, dark: bool = False) -> str:
    theme = DARK if dark else LIGHT
    names = list(_colours(use, theme))
    legend = {
        "orient": "top",
        "direction": "horizontal",
        "columns": columns_for([SIGN + LETTER * len(name) for name in names], WIDTH),
        "symbolType": "square",
        "offset": 12,
    }
    chart = {"layer": _layers(use, theme, legend), "width": WIDTH - 80, "height": HEIGHT}
    subtitle = [f"{said[0].upper()}{said[1:]}" for said in views.lead(use)]
    return svg.render(
        framed(theme, title=views.title(use), subtitle=subtitle, caption=use.notes, values=_values(use), chart=chart)
    )


def on_page(use: MemoryUse) -> Figure:
    spec = figure.framed(HEIGHT, _layers(use, PAGE, None))
    return Figure("timeline", "memory over time", spec, [Panel("", _values(use))])


def legend(use: MemoryUse) -> list[Key]:
    colours = _colours(use, PAGE)
    return [Key(name, "■", "c-line" if name == OTHER else colour_class(colour)) for name, colour in colours.items()]


def _colours(use: MemoryUse, theme: Theme) -> dict[str, str]:
    """Return the colours of the phases. Once they are used up, the remaining phases share that of OTHER."""
    names = list(dict.fromkeys(_name(span.name) for span in use.spans))
    found = dict(zip(names, theme.rivals, strict=False))
    return {**found, OTHER: theme.grid} if len(names) > len(found) else found


def _name(name: str) -> str:
    return text.safe(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…")


def _values(use: MemoryUse) -> list[Spec]:
    (time, _), (size, _), known = *_units(use), _colours(use, LIGHT)
    found: list[Spec] = [
        {"kind": "level", "at": at / time, "level": level / size}
        for at, level in _thinned(list(zip(use.times_s, use.levels_bytes, strict=True)))
    ]
    spans = sorted(use.spans, key=lambda span: span.begin_s - span.end_s)[:MOST_SPANS]
    for span in spans:
        name = _name(span.name)
        row = STRIP * min(span.name.count("/"), ROWS - 1)
        found.append(
            {
                "kind": "phase",
                "phase": name if name in known else OTHER,
                "begin": span.begin_s / time,
                "end": span.end_s / time,
                "top": row,
                "bottom": row + STRIP - 2,
            }
        )
    label = f"peak {text.amount_of_bytes(use.peak_bytes)}"
    return [*found, {"kind": "peak", "level": use.peak_bytes / size, "said": label}]


def _thinned(points: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yield at most MOST_POINTS points: the highest of each group of neighbours."""
    step = -(-len(points) // MOST_POINTS)
    for i in range(0, len(points), max(1, step)):
        yield max(points[i : i + step], key=lambda point: point[1])


def _units(use: MemoryUse) -> tuple[tuple[float, str], tuple[float, str]]:
    return text.time_unit(max((0.0, *use.times_s))), text.bytes_unit(use.peak_bytes)


def _layers(use: MemoryUse, theme: Theme, legend: Spec | None) -> list[Spec]:
    (time, time_name), (size, size_name), colours = *_units(use), _colours(use, theme)
    x = {"type": "quantitative", "scale": {"domain": [0, max((0.0, *use.times_s)) / time or 1], "nice": False}}
    top = HEIGHT / (HEIGHT - STRIP * ROWS - LABEL) * (use.peak_bytes / size or 1)
    y = {"field": "level", "type": "quantitative", "scale": {"domain": [0, top], "nice": False}}
    pixels = {"type": "quantitative", "scale": None, "axis": None}
    axis_x = {"title": f"since the start, {time_name}", "grid": False}
    axis_y = {"title": size_name}
    phase = {"field": "phase", "type": "nominal", "scale": {"domain": [*colours], "range": [*colours.values()]}}
    return [
        {
            "transform": [{"filter": {"field": "kind", "equal": "phase"}}],
            "mark": {"type": "rect"},
            "encoding": {
                "x": {"field": "begin", **x, "axis": axis_x},
                "x2": {"field": "end"},
                "y": {"field": "top", **pixels},
                "y2": {"field": "bottom"},
                "color": {**phase, "legend": legend},
                **figure.shown("phase"),
            },
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "level"}}],
            "mark": {
                "type": "area",
                "interpolate": "step-after",
                "line": {"color": theme.ours[0], "strokeWidth": 1.5},
                "fill": theme.ours[0],
                "fillOpacity": 0.2,
            },
            "encoding": {
                "x": {"field": "at", **x, "axis": axis_x},
                "y": {**y, "axis": axis_y, "stack": None},  # levels at one time are not added up
            },
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "peak"}}],
            "mark": {"type": "rule", "strokeDash": [4, 3], "color": theme.quiet},
            "encoding": {"y": {**y, "axis": axis_y}},
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "peak"}}],
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -2, "color": theme.quiet},
            "encoding": {"x": {"value": 0}, "y": {**y, "axis": axis_y}, "text": {"field": "said", "type": "nominal"}},
        },
    ]
