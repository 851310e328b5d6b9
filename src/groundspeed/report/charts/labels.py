"""Places the names of our lines in the panels of a sweep: beside the line, with no other line in between or behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len

from groundspeed.report.charts.frame import LETTER, Spec

LONGEST_LABEL = 150
CLEAR = 9.5
"""A sufficient distance from the middle of a label to a line, in pixels."""

Place = tuple[float, float]
Line = list[Place]


class Panel(NamedTuple):
    """The size of a panel in pixels, and its axes: log2 S from `first` to `last`, and a rate up to `top`."""

    width: float
    height: float
    first: float
    last: float
    top: float

    def place(self, row: Spec) -> Place:
        x = (math.log2(row["S"]) - self.first) / (self.last - self.first) * self.width
        return x, self.height * (1 - row["rate"] / self.top)

    def row(self, place: Place) -> Spec:
        S = 2 ** (self.first + place[0] / self.width * (self.last - self.first))
        return {"S": S, "rate": self.top * (1 - place[1] / self.height)}


def labels(values: Sequence[Spec], panel: Panel) -> Iterator[Spec]:
    """Yield a row with the role `label` for each line of ours that has room for one."""
    panels: dict[tuple[str, str], list[Spec]] = {}
    for row in values:
        if row["rate"] is not None:
            panels.setdefault((row["row"], row["column"]), []).append(row)
    for rows in panels.values():
        lines: dict[str, Line] = {}
        for row in rows:
            lines.setdefault(row["contender"], []).append(panel.place(row))
        taken = {name: _dense(line) for name, line in lines.items()}
        for row in {row["contender"]: row for row in rows if row["role"] == "ours"}.values():
            name = row["contender"]
            half = min(LONGEST_LABEL, cell_len(name) * (LETTER + 0.8)) / 2
            if found := _best(name, half, taken, panel):
                taken[f"label {len(taken)}"] = [(found[0] + half * i / 8, found[1]) for i in range(-8, 9)]
                yield {**row, "role": "label", **panel.row(found)}


def _best(name: str, half: float, lines: dict[str, Line], panel: Panel) -> Place | None:
    """Return the best place for a label, or None if nothing fits. It should be, in this order, clear of all lines, with
    no other line between it and its own, near its own, and to the right."""
    options: list[tuple[float, float, float]] = []
    for x, y in lines[name]:
        if not half <= x <= panel.width - half:
            continue
        near = {key: [b for a, b in line if abs(a - x) <= half + 3] for key, line in lines.items()}
        others = [b for key, found in near.items() if key != name for b in found]
        for dy in (sign * distance for distance in range(9, 28, 2) for sign in (-1, 1)):
            if 8 <= y + dy <= panel.height - 8:
                clear = min(abs(b - y - dy) for b in (*others, *near[name]))
                between = sum(min(y, y + dy) < b < max(y, y + dy) for b in others)
                options.append((min(clear, CLEAR) - 0.5 * between - 0.05 * abs(dy), x, y + dy))
    return max(options)[1:] if options else None


def _dense(line: Line) -> Line:
    """Return the line as many points, a few pixels apart."""
    return [
        (x1 + (x2 - x1) * i / 8, y1 + (y2 - y1) * i / 8)
        for (x1, y1), (x2, y2) in pairwise([line[0], *line])
        for i in range(9)
    ]
