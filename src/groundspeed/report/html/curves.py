"""A sweep over the sequence length in panels: FLOP/s, latency, and memory beside what all scores at once would take."""

from __future__ import annotations

import math
from collections.abc import Callable

from groundspeed.judge.judgement import Judgement, Result
from groundspeed.report import table, text
from groundspeed.report.charts.frame import Spec
from groundspeed.report.charts.sweep import PADDING, X_LABEL, Point, Sweep, scale
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

HEIGHT = 230
SCORES = "all S × S scores"
"""What attention takes that keeps them: computed, not measured."""
ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4}

Value = Callable[[Result], float | None]


def rates(judgement: Judgement, found: Sweep) -> Figure | None:
    unit, name = table.flop_unit(judgement)
    figure = _figure(
        judgement,
        found,
        "rates",
        f"{name} by sequence length S",
        lambda r: r.rates.flops / unit if r.rates else None,
        _told(name),
    )
    if figure is None:
        return None
    step, top = scale(max(v["y"] for panel in figure.panels for v in panel.values if v["y"] is not None))
    return _with_y(
        figure, {"scale": {"domain": [0, top], "nice": False}, "axis": {"title": name, "tickCount": round(top / step)}}
    )


def latencies(judgement: Judgement, found: Sweep) -> Figure | None:
    figure = _figure(
        judgement,
        found,
        "latencies",
        "Median time by sequence length S",
        lambda r: r.latency.median if r.latency else None,
        lambda r, y: text.seconds(y),
        rising=True,
    )
    return figure and _with_y(
        figure, {"scale": {"type": "log", "nice": False}, "axis": {"title": "median time", "labelExpr": SECONDS}}
    )


def memory(judgement: Judgement, found: Sweep) -> Figure | None:
    """B5. None where nothing was told, or all is zero."""
    figure = _figure(
        judgement,
        found,
        "memory",
        "Memory that one call adds, by sequence length S",
        lambda r: float(r.memory.extra_bytes) if r.latency and r.memory.extra_bytes else None,
        lambda r, y: text.amount_of_bytes(y),
    )
    if figure is None:
        return None
    for panel, points in zip(figure.panels, _panels(found).values(), strict=True):
        for point in points:
            size = point.B * point.H * point.S**2 * ELEMENT.get(point.dtype, 0)
            if size:
                panel.values.append({"role": "computed", "S": point.S, "y": float(size)})
    return _with_y(
        figure, {"scale": {"type": "log", "nice": False}, "axis": {"title": "memory of a call", "labelExpr": BYTES}}, 4
    )


SECONDS = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : datum.value >= 1e-3 ? format(datum.value * 1e3, '.3~r') + "
    "' ms' : format(datum.value * 1e6, '.3~r') + ' µs'"
)
BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.3~r') + ' GiB' : datum.value >= 1048576 ? "
    "format(datum.value / 1048576, '.3~r') + ' MiB' : format(datum.value / 1024, '.3~r') + ' KiB'"
)


def _panels(found: Sweep) -> dict[tuple[str, bool, int], list[Point]]:
    panels: dict[tuple[str, bool, int], list[Point]] = {}
    for point in sorted(found, key=lambda p: (p.dtype, p.causal, p.D, p.S)):
        panels.setdefault(point.panel, []).append(point)
    return panels


def _told(unit: str) -> Callable[[Result, float], str]:
    return lambda result, y: f"{text.significant(y)} {unit}"


def _figure(
    judgement: Judgement,
    found: Sweep,
    name: str,
    says: str,
    value: Value,
    told: Callable[[Result, float], str],
    *,
    rising: bool = False,
) -> Figure | None:
    """`rising`: the value grows with the time, as a latency does and a rate does not."""
    chosen = chosen_styles(judgement)
    panels = []
    for (dtype, causal, D), points in _panels(found).items():
        values: list[Spec] = []
        for style in chosen:
            for point in points:
                result = found[point].result(style.contender)
                y = value(result)
                row: Spec = {"contender": style.contender, "role": style.role, "S": point.S, "y": y}
                if y is not None:
                    row["said"] = f"S = {point.S}: {told(result, y)}"
                    latency = result.latency
                    if name != "memory" and latency and math.isfinite(latency.high):
                        slow, fast = latency.high / latency.median, latency.low / latency.median
                        row["low"], row["high"] = (y * fast, y * slow) if rising else (y / slow, y / max(fast, 1e-3))
                values.append(row)
        kinds = f"{dtype}, " if len({p.dtype for p in found}) > 1 else ""
        panels.append(Panel(text.safe(f"{kinds}D = {D}, {'causal' if causal else 'full'} mask"), values))
    drawn = {v["contender"] for panel in panels for v in panel.values if v["y"] is not None}
    if not drawn:
        return None
    lengths = sorted({point.S for point in found})
    x = {
        "field": "S",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0] / PADDING, lengths[-1] * PADDING], "nice": False},
        "axis": {"values": lengths, "labelExpr": X_LABEL, "labelOverlap": True, "grid": False, "title": "S"},
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
    """The same scale and axis on every layer."""
    axis, scale_of = {"minExtent": 44, **channel["axis"]}, channel["scale"]
    if scale_of.get("type") == "log":
        ends = [v[key] for p in figure.panels for v in p.values for key in ("y", "low", "high") if v.get(key)]
        low, high = min(ends) / PADDING, max(ends) * PADDING
        scale_of, axis = {**scale_of, "domain": [low, high]}, {**axis, "values": log_ticks(low, high, base)}
    for layer in figure.spec["layer"]:
        layer["encoding"]["y"] = {**layer["encoding"]["y"], "scale": scale_of, "axis": axis}
    return figure
