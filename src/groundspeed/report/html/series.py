"""Groups of cases that differ in one size alone, so that a line can be drawn through them: a sweep, the small shapes,
decoding over its keys, a mixture of experts over its tokens, a product over its rows. Each clock has a line of its own,
because the clocks measure different times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from groundspeed.case import CLOCKS, DEFAULT_CLOCK
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.report import text
from groundspeed.report.charts import sweep
from groundspeed.report.charts.sweep import LEAST

AXES = {"S": "sequence length S", "N": "number of keys N", "T": "number of tokens T", "M": "number of rows M"}
"""The sizes over which a line can be drawn, in words."""
COLUMNS = "number of columns N"
"""The words for N if there is no sequence, as in a matrix product."""
CLOCK = "clock"
MOST = 12
"""The most panels in one figure."""

Key = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Series:
    """One panel."""

    title: str
    points: tuple[tuple[int, CaseJudgement], ...]


@dataclass(frozen=True)
class Group:
    """Panels that belong together."""

    axis: str
    words: str
    """The axis in words."""
    held: str
    """The parameters that all panels share."""
    series: tuple[Series, ...]
    left_out: int = 0
    """The number of panels beyond MOST, which are not drawn."""


def groups(judgement: Judgement) -> list[Group]:
    """Return the sweep if the run has one, then the other sets of three or more cases that differ in one size alone."""
    found = sweep.find(judgement.cases)
    drawn = {case.facts.name for case in found.values()} if found else set()
    others = [case for case in judgement.cases if case.facts.name not in drawn]
    return [*([_swept(found)] if found else []), *(group for axis in AXES if (group := _over(axis, others)))]


def _swept(found: sweep.Sweep) -> Group:
    panels: dict[tuple[str, bool, int], list[sweep.Point]] = {}
    for point in sorted(found, key=lambda p: (p.dtype, p.causal, p.D, p.S)):
        panels.setdefault(point.panel, []).append(point)
    several = len({p.dtype for p in found}) > 1
    series = [
        Series(
            text.safe(f"{f'{dtype}, ' if several else ''}D = {D}, {_mask(causal)}"),
            tuple((point.S, found[point]) for point in points),
        )
        for (dtype, causal, D), points in panels.items()
    ]
    clock = next(iter(found.values())).clock
    said = "" if clock == DEFAULT_CLOCK else f", {CLOCKS.get(clock, clock)}"
    return Group("S", AXES["S"], text.safe(f"{sweep.held_constant(found)}{said}"), tuple(series))


def _over(axis: str, cases: Sequence[CaseJudgement]) -> Group | None:
    lines: dict[Key, dict[int, CaseJudgement]] = {}
    for case in cases:
        params = {**case.facts.params, CLOCK: case.clock}
        length = params.pop(axis, None)
        if isinstance(length, int) and length > 0 and not (axis == "S" and {"N", "lengths"} & params.keys()):
            lines.setdefault(tuple(params.items()), {})[length] = case
    kept = {key: points for key, points in lines.items() if len(points) >= LEAST}
    if not kept:
        return None
    common = set.intersection(*map(set, kept))
    series = [
        Series(text.safe(", ".join(_said(part for part in key if part not in common))), tuple(sorted(points.items())))
        for key, points in kept.items()
    ]
    held = ", ".join(_said(part for part in next(iter(kept)) if part in common - {(CLOCK, DEFAULT_CLOCK)}))
    words = COLUMNS if axis == "N" and "S" not in dict(next(iter(kept))) else AXES[axis]
    return Group(axis, words, text.safe(held), tuple(series[:MOST]), len(series[MOST:]))


def _said(parts: Iterator[tuple[str, Any]]) -> Iterator[str]:
    for name, value in parts:
        if name == CLOCK:
            yield CLOCKS.get(value, str(value))
        elif name == "causal":
            yield _mask(value)
        else:
            yield str(value) if name == "dtype" else f"{name} = {value}"


def _mask(causal: object) -> str:
    return f"{'causal' if causal else 'full'} mask"
