"""The raw samples of every case, in the order they were taken, thinned if they would make the page too large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.views import ANY
from groundspeed.report import text
from groundspeed.report.charts.frame import Spec, Style
from groundspeed.report.html.figure import PAGE, Figure, chosen_styles, contender_channels, framed, shown
from groundspeed.report.plain_json import dump

LEAST, MOST, A_ROW = 550_000, 900_000, 400
"""Bytes of the page that the samples may take: MOST, less A_ROW for each result on the page, but at least LEAST."""
PART = 1e4
"""Deviations are stored as integers in units of 1/PART: hundredths of a percent."""


@dataclass(frozen=True)
class Kept:
    cases: dict[str, dict[str, Any]]
    """By the case's name, the data that charts.js draws."""
    every: int
    """One block in this many is kept."""
    telemetry: bool

    @property
    def data(self) -> dict[str, Any]:
        return {"parts": PART / 100, "cases": list(self.cases.values())}


def keep(judgement: Judgement) -> Kept | None:
    """Return the samples, thinned until they fit; None if no contender has a time."""
    budget = max(LEAST, MOST - A_ROW * sum(len(case.results) for case in judgement.cases))
    every = 1
    while True:
        kept = _keep(judgement, every)
        size = len(dump(kept.data))
        if size <= budget or all(sum(case["blocks"]) <= len(case["blocks"]) for case in kept.cases.values()):
            return kept if kept.cases else None
        every = max(every + 1, math.ceil(every * size / budget))


def _keep(judgement: Judgement, every: int) -> Kept:
    telemetry, order = telemetry_of(judgement), [style.contender for style in chosen_styles(judgement)]
    cases = {
        case.facts.name: one
        for case in judgement.cases
        if (one := sampled(judgement.record, case, order, telemetry, every))
    }
    return Kept(cases, every, any("clock" in one for one in cases.values()))


Telemetry = dict[tuple[int, int, int], tuple[float, float, int]]
"""(case, process, block) → the lowest clock, the last temperature, and the reasons for throttling."""


def telemetry_of(judgement: Judgement) -> Telemetry:
    record, columns = judgement.record, judgement.record.samples
    keep = (columns["phase"] == TIMED) & np.isfinite(columns["sm_clock_mhz"])
    names = ("case", "process", "block", "attempt", "sm_clock_mhz", "temperature_c", "throttle")
    found: Telemetry = {}
    for case, process, block, attempt, clock, temperature, bits in zip(
        *(columns[name][keep].tolist() for name in names), strict=True
    ):
        if record.finished_attempts.get(process) == attempt:
            slowest, _, held = found.get((case, process, block), (clock, temperature, 0))
            found[case, process, block] = min(slowest, clock), temperature, held | (bits & ANY if bits > 0 else 0)
    return found


def sampled(
    record: Record, case: CaseJudgement, order: Sequence[str], telemetry: Telemetry, every: int
) -> dict[str, Any] | None:
    """Return the samples of the contenders in `order`, from one block in `every`; None if the case has no times."""
    name = case.facts.name
    timed = {r.contender: r.latency.median for r in case.results if r.latency}
    if not timed:
        return None
    order = [who for who in order if who in timed]
    places: list[tuple[int, int]] = []
    blocks = []
    for process in sorted(record.finished_attempts):
        seen = sorted({b for who in order for b in record.seconds.get((process, name, who), {})})[::every]
        places += [(process, block) for block in seen]
        blocks.append(len(seen))
    index = record.case_index[name]
    told = [telemetry.get((index, *place)) for place in places]
    found: dict[str, Any] = {
        "blocks": blocks,
        "who": [text.safe(who) for who in order],
        "medians": [text.seconds(timed[who]) for who in order],
        "off": [
            [_off(record.seconds.get((process, name, who), {}).get(block), timed[who]) for process, block in places]
            for who in order
        ],
    }
    if any(told):
        found["clock"] = _same([None if t is None else round(t[0]) for t in told])
        found["temperature"] = _same([None if t is None or math.isnan(t[1]) else round(t[1]) for t in told])
        found["held"] = [i for i, t in enumerate(told) if t and t[2]]
    return found


def _off(seconds: float | None, median: float) -> int | None:
    """Return the deviation from the contender's median in hundredths of a percent."""
    return None if seconds is None else round((seconds / median - 1) * PART)


def _same(values: list[int | None]) -> list[int | None]:
    """Return one value if all are the same, as clocks of short work are."""
    return values[:1] if len(set(values)) == 1 else values


OFF = [-90, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000]
"""The ticks of the axis, in percent."""
PERCENT = "(datum.value > 0 ? '+' : '') + datum.value + '%'"


def _off_channel(**axis: Any) -> Spec:
    return {
        "field": "off",
        "type": "quantitative",
        "scale": {"type": "symlog", "constant": 1, "nice": False, "zero": True},
        "axis": {"values": OFF, "labelExpr": PERCENT, "labelOverlap": "greedy", **axis},
    }


def figures(styles: Sequence[Style]) -> list[Figure]:
    """Return the figures without values, which charts.js adds by case. Those after the second share its x axis."""
    channels = contender_channels(styles)
    x = {"field": "at", "type": "quantitative", "scale": {"nice": False}, "axis": None}
    rows = {"field": "row", "type": "nominal", "sort": None, "axis": {"title": None, "labelColor": PAGE.ink}}
    spread = framed(
        0,
        [
            {
                "mark": {"type": "tick", "thickness": 1.5, "opacity": 0.35, "size": 14},
                "encoding": {
                    "x": _off_channel(title="deviation from own median"),
                    "y": rows,
                    "color": channels["color"],
                    **shown("said"),
                },
            }
        ],
    )
    order = framed(
        240,
        [
            {
                "transform": [{"filter": "datum.role == 'begin'"}],
                "mark": {"type": "rule", "color": PAGE.grid},
                "encoding": {"x": x},
            },
            {
                "transform": [{"filter": "datum.role == 'begin'"}],
                "mark": {"type": "text", "align": "left", "dx": 1, "y": -6, "fontSize": 10, "color": PAGE.quiet},
                "encoding": {"x": x, "text": {"field": "said", "type": "nominal"}},
            },
            {
                "transform": [{"filter": "isValid(datum.off)"}],
                "mark": {"type": "point", "filled": True, "size": 14, "opacity": 0.7},
                "encoding": {
                    "x": x,
                    "y": _off_channel(title="deviation from own median", minExtent=44),
                    **channels,
                    **shown("said"),
                },
            },
        ],
    )
    return [
        Figure("samples-spread", "distribution of the samples of a case", spread, [], row_height=24),
        Figure("samples-order", "the samples of a case in the order they were taken", order, []),
        *(
            Figure(f"samples-{name}", f"{title} while the case was measured", _telemetry_spec(x, name, title), [])
            for name, title in (("clock", "SM clock, MHz"), ("temperature", "temperature, °C"))
        ),
    ]


def _telemetry_spec(x: Spec, name: str, title: str) -> Spec:
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False, "padding": 6},
        "axis": {"title": title, "tickCount": 3, "minExtent": 44, "format": "d"},
    }
    layer: list[Spec] = [
        {
            "mark": {"type": "line", "color": PAGE.quiet, "interpolate": "step", "strokeWidth": 1.4},
            "encoding": {"x": x, "y": y},
        }
    ]
    if name == "clock":
        layer.append(
            {
                "transform": [{"filter": "datum.held"}],
                "mark": {"type": "point", "filled": True, "size": 16, "color": PAGE.bad, "opacity": 1},
                "encoding": {"x": x, "y": y, **shown("said")},
            }
        )
    return framed(96, layer)  # high enough for the longer title
