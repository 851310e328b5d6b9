"""A sweep over the sequence length: FLOP/s by S, a line for each contender, a panel for each D, mask and dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich.cells import cell_len

from groundspeed.case import CLOCKS, DEFAULT_CLOCK
from groundspeed.errors import BadInput
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.report import text
from groundspeed.report.charts.frame import (
    LETTER,
    NOTHING,
    WIDTH,
    Spec,
    Style,
    Theme,
    columns_for,
    framed,
    missing,
    same_kernels,
    styles,
)
from groundspeed.report.charts.labels import LONGEST_LABEL, Panel, labels

LEAST = 3
"""The least number of lengths in a sweep."""
HEIGHT = 190
MARGIN = 78
"""Pixels beside the panels for the axis and the headers of the rows."""
GAP = 18
PADDING = 1.2
"""Factor by which the axis extends beyond the least and the greatest S."""
FAR = 1e3
"""Factor to which the upper end of an interval is limited; by then it has left every panel."""
LONGEST = 240
"""The most pixels of a contender's name."""

X_LABEL = "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'k' : '' + datum.value"


PLAIN = {"B", "H", "S", "D", "dtype", "causal", "clock"}
"""The parameters of a case in a sweep. A case with more, such as a window or other lengths of keys, is different
work."""


class Point(NamedTuple):
    """The place of a case in the sweep."""

    dtype: str
    causal: bool
    D: int
    H: int
    B: int
    S: int

    @property
    def panel(self) -> tuple[str, bool, int]:
        return self.dtype, self.causal, self.D


Sweep = dict[Point, CaseJudgement]


def find(cases: Sequence[CaseJudgement]) -> Sweep | None:
    """Return the cases that differ in S alone, or in S at the same number of tokens; None if the run is no sweep.

    All of them have the same clock: the default one if the run has it.

    Cases with a constant number of tokens are meant as a sweep, whatever else the run measured. Cases that happen to
    share batch and heads are a sweep only if they are the whole run."""
    clocks = [case.clock for case in cases]
    clock = DEFAULT_CLOCK if DEFAULT_CLOCK in clocks else next(iter(clocks), DEFAULT_CLOCK)
    points = {point: case for case in cases if case.clock == clock and (point := _point(case))}
    tokens = _series(points, "tokens")
    if tokens:
        return tokens
    batch = _series(points, "batch")
    return batch if len(batch) == len(cases) else None


def _clock_words(found: Sweep) -> str:
    clock = next(iter(found.values())).clock
    return "" if clock == DEFAULT_CLOCK else f"; {CLOCKS.get(clock, clock)}"


def _point(case: CaseJudgement) -> Point | None:
    params = case.facts.params
    if params.keys() - PLAIN:
        return None
    numbers = [params.get(key) for key in ("D", "H", "B", "S")]
    dtype, causal = params.get("dtype"), params.get("causal")
    if not isinstance(dtype, str) or not isinstance(causal, bool):
        return None
    whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    return Point(dtype, causal, *whole) if len(whole) == len(numbers) else None


def _series(points: Sweep, constant: Literal["tokens", "batch"]) -> Sweep:
    """Return the longest series over S in every panel."""
    series: dict[tuple[object, ...], Sweep] = {}
    for point, case in points.items():
        held = point.B * point.S if constant == "tokens" else point.B
        series.setdefault((*point.panel, point.H, held), {})[point] = case
    longest: dict[tuple[object, ...], Sweep] = {}
    for key, members in series.items():
        if len(members) >= max(LEAST, len(longest.get(key[:3], ())) + 1):
            longest[key[:3]] = members
    return {point: case for members in longest.values() for point, case in members.items()}


def draw(judgement: Judgement, found: Sweep, identity: str, theme: Theme) -> Spec:
    record = judgement.record
    rates = [r.rates.flops for case in found.values() for r in case.results if r.rates]
    if not rates:
        raise BadInput(NOTHING)
    unit, unit_name = text.flop_rate_unit(max(rates))
    step, top = scale(max(rates) / unit)
    lengths, columns = sorted({p.S for p in found}), sorted({p.D for p in found})
    width = max(110, (WIDTH - MARGIN - GAP * (len(columns) - 1)) // len(columns))
    chosen = [s for s in styles(judgement, theme) if any(c.result(s.contender).rates for c in found.values())]
    dtypes = list(dict.fromkeys(p.dtype for p in found))
    values = _values(found, chosen, unit, len(dtypes) > 1)
    values += labels(
        values, Panel(width, HEIGHT, math.log2(lengths[0] / PADDING), math.log2(lengths[-1] * PADDING), top)
    )
    left_out = len(judgement.cases) - len(found)
    not_drawn = [*missing(list(found.values()), [c.name for c in record.measured])]
    return framed(
        theme,
        title=f"{record.run.suite} on {judgement.device_name}{f', {dtypes[0]}' if len(dtypes) == 1 else ''}",
        subtitle=[
            f"{unit_name} by sequence length S at {held_constant(found)}; median, with the 95% interval over "
            f"{text.plural(len(record.finished_attempts), 'process', 'es')}",
            f"dashed: the baseline, {record.run.baseline}{_clock_words(found)}; evidence: bundle {identity[:12]}",
        ],
        caption=[
            *(["; ".join(not_drawn)] if not_drawn else []),
            *same_kernels(record),
            *([f"{text.plural(left_out, 'other case')} of the run: not drawn"] if left_out else []),
        ],
        values=values,
        chart={
            "facet": {
                "row": {"field": "row", "sort": {"field": "row_order", "op": "min"}, "header": _ROW_HEADER},
                "column": {"field": "column", "sort": {"field": "column_order", "op": "min"}, "header": _COLUMN_HEADER},
            },
            "spacing": {"row": 24, "column": GAP},
            "spec": {"width": width, "height": HEIGHT, "layer": _layers(theme, chosen, lengths, step, top, unit_name)},
        },
    )


_ROW_HEADER = {"title": None, "labelOrient": "right", "labelAngle": 90, "labelPadding": 8, "labelLimit": HEIGHT}
_COLUMN_HEADER = {"title": None, "labelPadding": 4}


def held_constant(found: Sweep) -> str:
    """Return what stays the same while S grows: `B·S = 16384, H·D = 2048`."""
    said = []
    for candidates in (
        {"B": {p.B for p in found}, "B·S": {p.B * p.S for p in found}},
        {"H": {p.H for p in found}, "H·D": {p.H * p.D for p in found}},
    ):
        said += [f"{name} = {min(held)}" for name, held in candidates.items() if len(held) == 1][:1]
    return ", ".join(said) or "varying B and H"


def scale(largest: float) -> tuple[float, float]:
    """Return the step between grid lines, a round number, and the end of the axis, about a step above the largest value
    at most."""
    power = 10.0 ** math.floor(math.log10(largest / 4)) if largest > 0 else 0.1
    step = next(size for m in (1, 2, 2.5, 5, 10) if largest / (size := power * m) <= 7)
    return step, step * max(1, math.ceil(largest * 1.03 / step))


def _values(found: Sweep, chosen: Sequence[Style], unit: float, several_dtypes: bool) -> list[Spec]:
    """Return a row for each contender and case. Its rate is None if there is none, so that the line breaks there."""
    values = []
    for point, case in sorted(found.items()):
        for style in chosen:
            result = case.result(style.contender)
            row: Spec = {
                "contender": style.contender,
                "role": style.role,
                "row": f"{f'{point.dtype}, ' if several_dtypes else ''}{'causal' if point.causal else 'full'} mask",
                "row_order": int(point.causal) + 2 * sorted({p.dtype for p in found}).index(point.dtype),
                "column": f"D = {point.D}",
                "column_order": point.D,
                "S": point.S,
                "rate": None,
            }
            if result.latency and result.rates:
                rate = row["rate"] = result.rates.flops / unit
                if math.isfinite(result.latency.high):
                    row["low"] = rate * result.latency.median / result.latency.high
                    row["high"] = rate * min(result.latency.median / max(result.latency.low, 1e-300), FAR)
            values.append(row)
    return values


def _layers(
    theme: Theme, chosen: Sequence[Style], lengths: Sequence[int], step: float, top: float, unit_name: str
) -> list[Spec]:
    names = [style.contender for style in chosen]
    widths = [min(cell_len(name) * LETTER, LONGEST) + 38 for name in names]
    legend = {
        "orient": "top",
        "direction": "horizontal",
        "columns": columns_for(widths, WIDTH - MARGIN),
        "symbolSize": 70,
        "labelLimit": LONGEST,
        "columnPadding": 18,
        "rowPadding": 4,
        "offset": 8,
    }
    x = {
        "field": "S",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0] / PADDING, lengths[-1] * PADDING], "nice": False},
        "axis": {
            "values": list(lengths),
            "labelExpr": X_LABEL,
            "labelOverlap": True,
            "grid": False,
            "title": "sequence length S",
        },
    }
    y = {
        "field": "rate",
        "type": "quantitative",
        "scale": {"domain": [0, top], "nice": False},
        "axis": {"tickCount": round(top / step), "title": unit_name, "minExtent": 30, "maxExtent": 30},
    }
    colour = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": names, "range": [style.colour for style in chosen]},
        "legend": legend,
    }
    shape = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": names, "range": [style.shape for style in chosen]},
        "legend": legend,
    }
    layers: list[Spec] = []
    for role, line, size in (("rival", 1.6, 26), ("baseline", 2.2, 34), ("ours", 3.2, 60)):
        of_role = [{"filter": f"datum.role == '{role}'"}]
        dash = {"strokeDash": [6, 3]} if role == "baseline" else {}
        layers += [
            {
                "transform": of_role,
                "mark": {"type": "line", "strokeWidth": line, "clip": True, **dash},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "transform": [*of_role, {"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.4, "clip": True},
                "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "transform": [*of_role, {"filter": "isValid(datum.rate)"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": size},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape},
            },
        ]
    text_mark: Spec = {"type": "text", "fontSize": 12, "fontWeight": "bold", "limit": LONGEST_LABEL}
    around = {"stroke": theme.page, "strokeWidth": 4, "strokeJoin": "round"}
    named: Spec = {"x": x, "y": y, "text": {"field": "contender", "type": "nominal"}}
    of_label = [{"filter": "datum.role == 'label'"}]
    # The rivals' and the baseline's lines are interrupted around a label; ours are drawn over that.
    layers.insert(-3, {"transform": of_label, "mark": text_mark | around, "encoding": named})
    layers.append({"transform": of_label, "mark": text_mark, "encoding": {**named, "color": colour}})
    return layers
