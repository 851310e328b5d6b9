"""The raw samples that a claim rests on as a chart in a file, for a report in Markdown: for the pairs with the widest
intervals, how the samples spread and in which order they were taken, with clock and temperature below."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from groundspeed.judge.claims import ratio_texts
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.verdict import Comparison
from groundspeed.report.charts.frame import LETTER, WIDTH, Spec, Theme, framed
from groundspeed.report.html.figure import chosen_styles
from groundspeed.report.html.samples import PART, figures, sampled, telemetry_of
from groundspeed.report.html.still import OF_A_VIEW, colours_of, in_colours

FILES = 2
ROW = 24
MOST = 360
"""About the most samples in a chart; with more, only every second block is drawn, or fewer, to keep the file under
100 kB."""
LONGEST = 260
"""The most pixels for the names of the contenders beside the panels; longer names are cut."""


@dataclass(frozen=True)
class Pair:
    case: CaseJudgement
    comparison: Comparison

    @property
    def names(self) -> list[str]:
        return [self.comparison.contender, self.comparison.baseline]


def widest(judgement: Judgement) -> list[Pair]:
    """Return for each judged contender the case with its widest interval, the widest first, FILES at most."""
    found: dict[str, Pair] = {}
    for case in judgement.cases:
        for result in case.results:
            c = result.comparison
            if c and c.verdict and _width(c) > (_width(found[c.contender].comparison) if c.contender in found else -1):
                found[c.contender] = Pair(case, c)
    return sorted(found.values(), key=lambda pair: -_width(pair.comparison))[:FILES]


def _width(comparison: Comparison) -> float:
    """Return the half-width of the interval; 0 for a single process, which has none."""
    return comparison.interval.half_width if comparison.interval.n > 1 else 0.0


def says(pair: Pair) -> str:
    who, baseline = pair.names
    return f"samples of {who} and {baseline} on {pair.case.facts.name}, as a distribution and in the order taken"


def draw(pair: Pair, judgement: Judgement, identity: str, theme: Theme) -> Spec | None:
    record, name = judgement.record, pair.case.facts.name
    telemetry = telemetry_of(judgement)
    whole = sampled(record, pair.case, pair.names, telemetry, 1)
    if whole is None:
        return None
    every = math.ceil(sum(whole["blocks"]) * len(pair.names) / MOST)
    one = sampled(record, pair.case, pair.names, telemetry, every) or whole
    styles = [style for style in chosen_styles(judgement) if style.contender in pair.names]
    values = [_points(one), [*_begins(one), *_points(one)], _telemetry(one, "clock"), _telemetry(one, "temperature")]
    room = min(LONGEST, LETTER * max(len(value["row"]) for value in values[0]) + 12)
    views = [
        {
            **{key: in_colours(figure.spec[key], colours_of(theme), None) for key in OF_A_VIEW},
            "width": WIDTH - room,
            "data": {"values": of_one},
        }
        for figure, of_one in zip(figures(styles), values, strict=True)
        if of_one
    ]
    views[0]["height"] = ROW * len(pair.names)
    views[0]["layer"][0]["encoding"]["y"]["axis"] |= {"minExtent": room, "labelLimit": room}
    who, baseline = pair.names
    return framed(
        theme,
        title=f"{record.run.suite} on {judgement.device_name}",
        subtitle=[
            f"The samples of {who} and {baseline} on {name}, {_speed_up(pair.comparison)}",
            f"evidence: bundle {identity[:12]}",
        ],
        caption=list(_caption(whole, every)),
        values=[],
        chart={"vconcat": views, "spacing": 18, "resolve": {"scale": {"color": "shared", "shape": "shared"}}},
    )


def _speed_up(c: Comparison) -> str:
    middle, low, high = ratio_texts(c.interval)
    if c.interval.n < 2:
        return f"{middle}× in its only process"
    return f"{middle}× ({low}–{high}): its widest interval"


def _caption(whole: dict[str, Any], every: int) -> Iterator[str]:
    part = f"; one block in every {every} is drawn, the bundle has all" if every > 1 else ""
    yield f"above: their distribution; below: in the order taken, by process; without warm-up{part}"
    if held := whole.get("held"):
        yield f"red: the device throttled its clocks, in {len(held)} of {sum(whole['blocks'])} blocks"


def _points(one: dict[str, Any]) -> list[Spec]:
    return [
        {"contender": who, "row": f"{who}, {median}", "at": at, "off": 100 * off / PART}
        for who, median, found in zip(one["who"], one["medians"], one["off"], strict=True)
        for at, off in enumerate(found)
        if off is not None
    ]


def _begins(one: dict[str, Any]) -> Iterator[Spec]:
    at = 0
    for process, blocks in enumerate(one["blocks"], 1):
        yield {"role": "begin", "at": at - 0.5, "said": str(process)}
        at += blocks


def _telemetry(one: dict[str, Any], name: str) -> list[Spec]:
    told, held = one.get(name, []), set(one.get("held", ()))
    whole = told * sum(one["blocks"]) if len(told) == 1 else told
    return [{"at": at, "value": value, "held": at in held} for at, value in enumerate(whole) if value is not None]
