"""Lines over a length in panels: FLOP/s, latency, and memory beside what all scores at once would take up."""

from __future__ import annotations

import math
from collections.abc import Callable

from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.report import table, text
from groundspeed.report.charts.frame import Spec
from groundspeed.report.charts.sweep import PADDING, X_LABEL, scale
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
from groundspeed.report.html.series import Group

HEIGHT = 230
ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4}

Value = Callable[[Result], float | None]


def rates(judgement: Judgement, found: Group, name: str = "rates") -> Figure | None:
    unit, unit_name = table.flop_unit(judgement)
    figure = _figure(
        judgement,
        found,
        name,
        f"{unit_name} by {found.words}",
        lambda r: r.rates.flops / unit if r.rates else None,
        _told(unit_name),
    )
    if figure is None:
        return None
    step, top = scale(max(v["y"] for panel in figure.panels for v in panel.values if v["y"] is not None))
    return _with_y(
        figure,
        {"scale": {"domain": [0, top], "nice": False}, "axis": {"title": unit_name, "tickCount": round(top / step)}},
    )


def latencies(judgement: Judgement, found: Group, name: str = "latencies") -> Figure | None:
    figure = _figure(
        judgement,
        found,
        name,
        f"Median time by {found.words}",
        lambda r: r.latency.median if r.latency else None,
        lambda r, y: text.seconds(y),
        rising=True,
    )
    return figure and _with_y(
        figure, {"scale": {"type": "log", "nice": False}, "axis": {"title": "median time", "labelExpr": SECONDS}}
    )


def memory(judgement: Judgement, found: Group) -> Figure | None:
    """Return the memory of a call (B5); None if it was not reported, or all of it is zero."""
    figure = _figure(
        judgement,
        found,
        "memory",
        f"Memory that one call adds, by {found.words}",
        lambda r: float(r.memory.extra_bytes) if r.latency and r.memory.extra_bytes else None,
        lambda r, y: text.amount_of_bytes(y),
        intervals=False,
    )
    if figure is None:
        return None
    for panel, series in zip(figure.panels, found.series, strict=True):
        for x, case in series.points:
            if size := _scores(case):
                panel.values.append({"role": "computed", "x": x, "y": float(size)})
    return _with_y(
        figure, {"scale": {"type": "log", "nice": False}, "axis": {"title": "memory of a call", "labelExpr": BYTES}}, 4
    )


def scores(figure: Figure, found: Group) -> str:
    """Return what the dotted line of the figure shows: the memory of attention that stores all scores, computed and not
    measured. Empty if there is no such line."""
    if not any(value["role"] == "computed" for panel in figure.panels for value in panel.values):
        return ""
    params = [case.facts.params for series in found.series for _, case in series.points]
    square = all((one.get("N") or one.get("S")) == one.get("S") for one in params)
    return f"all S × {'S' if square else 'N'} scores"


def _scores(case: CaseJudgement) -> int:
    """Return the bytes of all scores of a case; 0 if unknown."""
    params = case.facts.params
    sizes = [params.get("B"), params.get("H"), params.get("S"), params.get("N", params.get("S"))]
    whole = [size for size in sizes if isinstance(size, int)]
    return math.prod(whole) * ELEMENT.get(str(params.get("dtype")), 0) if len(whole) == len(sizes) else 0


SECONDS = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : datum.value >= 1e-3 ? format(datum.value * 1e3, '.3~r') + "
    "' ms' : format(datum.value * 1e6, '.3~r') + ' µs'"
)
BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~r') + ' GiB' : datum.value >= 1048576 ? "
    "format(datum.value / 1048576, '.3~r') + ' MiB' : format(datum.value / 1024, '.3~r') + ' KiB'"
)


def _told(unit: str) -> Callable[[Result, float], str]:
    return lambda result, y: f"{text.significant(y)} {unit}"


def _figure(
    judgement: Judgement,
    found: Group,
    name: str,
    says: str,
    value: Value,
    told: Callable[[Result, float], str],
    *,
    rising: bool = False,
    intervals: bool = True,
) -> Figure | None:
    """Return the figure of a value; None if no contender has one. `rising` says that the value grows with the time, as
    a latency does and a rate does not."""
    chosen = chosen_styles(judgement)
    panels = []
    for series in found.series:
        values: list[Spec] = []
        for style in chosen:
            for x_value, case in series.points:
                result = case.result(style.contender)
                y = value(result)
                row: Spec = {"contender": style.contender, "role": style.role, "x": x_value, "y": y}
                if y is not None:
                    row["said"] = f"{found.axis} = {x_value}: {told(result, y)}"
                    latency = result.latency
                    if intervals and latency and math.isfinite(latency.high):
                        slow, fast = latency.high / latency.median, latency.low / latency.median
                        row["low"], row["high"] = (y * fast, y * slow) if rising else (y / slow, y / max(fast, 1e-3))
                values.append(row)
        panels.append(Panel(series.title, values))
    drawn = {v["contender"] for panel in panels for v in panel.values if v["y"] is not None}
    if not drawn:
        return None
    lengths = sorted({x_value for series in found.series for x_value, _ in series.points})
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0] / PADDING, lengths[-1] * PADDING], "nice": False},
        "axis": {"values": lengths, "labelExpr": X_LABEL, "labelOverlap": True, "grid": False, "title": found.axis},
    }
    y_channel = {"field": "y", "type": "quantitative"}
    channels = contender_channels(chosen)
    roles = ["ours", "baseline", "rival"]
    width = {"field": "role", "sort": roles, "scale": {"domain": roles, "range": [3, 2, 1.4]}, "legend": None}
    dash = {
        "field": "role",
        "sort": roles,
        "scale": {"domain": roles, "range": [[1, 0], [6, 3], [1, 0]]},
        "legend": None,
    }
    of_contenders = [{"filter": "datum.role != 'computed'"}]
    spec = framed(
        HEIGHT,
        [
            {
                "transform": [{"filter": "datum.role == 'computed'"}],
                "mark": {"type": "line", "color": PAGE.quiet, "strokeDash": [2, 3], "strokeWidth": 1.5, "point": False},
                "encoding": {"x": x, "y": y_channel},
            },
            {
                "transform": of_contenders,
                "mark": {"type": "line"},
                "encoding": {
                    "x": x,
                    "y": y_channel,
                    "color": channels["color"],
                    "strokeWidth": {**width, "type": "ordinal"},
                    "strokeDash": {**dash, "type": "ordinal"},
                },
            },
            {
                "transform": [*of_contenders, {"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.4},
                "encoding": {
                    "x": x,
                    "y": {**y_channel, "field": "low"},
                    "y2": {"field": "high"},
                    "color": channels["color"],
                },
            },
            {
                "transform": [*of_contenders, {"filter": "isValid(datum.y)"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 36},
                "encoding": {"x": x, "y": y_channel, **channels, **shown("contender", "said")},
            },
        ],
    )
    return Figure(name, says, spec, panels)


def _with_y(figure: Figure, channel: Spec, base: int = 10) -> Figure:
    """Give every layer the same y scale and axis."""
    axis, scale_of = {"minExtent": 44, **channel["axis"]}, channel["scale"]
    if scale_of.get("type") == "log":
        ends = [v[key] for p in figure.panels for v in p.values for key in ("y", "low", "high") if v.get(key)]
        low, high = min(ends) / PADDING, max(ends) * PADDING
        scale_of, axis = {**scale_of, "domain": [low, high]}, {**axis, "values": log_ticks(low, high, base)}
    for layer in figure.spec["layer"]:
        layer["encoding"]["y"] = {**layer["encoding"]["y"], "scale": scale_of, "axis": axis}
    return figure
