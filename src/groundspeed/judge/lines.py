"""Lines through runs, and where one changed its level.

A time is that of one device model, and moves with everything that moves the machine. A speed-up is a contender against
the baseline of its own run, block by block, so what hits both alike cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from groundspeed.judge.changes import ENOUGH, Change, find_changes, scatter_of
from groundspeed.judge.history import Figure, Measured, Run

Kind = Literal["time", "speed-up"]

CALIBRATION = "calibration"
"""The suite of a machine's own lines, which nobody opens a history for: they come last."""
LARGE = 0.1
"""Of a step on the log scale: two runs of the same code were seen to differ by some percent on a busy machine."""
_Z = 1.96


@dataclass(frozen=True)
class Point:
    run: int
    """Its place among the runs of the history."""
    status: str
    version: str
    """Of the contender."""
    figure: Figure | None
    """None for a contender that failed."""


@dataclass(frozen=True)
class Step:
    """From the run before to the latest, on the log scale."""

    shift: float
    beyond: bool
    """Whether it is more than the floor, than both intervals together, and than runs scatter."""
    early: bool = False
    """Whether it would be, were it known how runs scatter: by more than the processes of one tell, which only earlier
    runs show; a large step of a speed-up, which what moves the machine does not move, need not wait for them."""


@dataclass(frozen=True)
class Line:
    """One contender on one case on one device model, run by run."""

    kind: Kind
    suite: str
    device: str
    latest: Measured
    baseline: str
    """Of a speed-up; empty for a time."""
    floor: float
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    """Places count the points that have a figure."""

    @property
    def counted(self) -> list[tuple[Point, Figure]]:
        return [(point, point.figure) for point in self.points if point.figure]

    @property
    def step(self) -> Step | None:
        figures = [figure for _, figure in self.counted]
        if len(figures) < 2:
            return None
        shift = math.log(figures[-1].value / figures[-2].value)
        scatter = scatter_of([math.log(f.value) for f in figures[:-1]], [_error(f) for f in figures], self.floor)
        beyond = abs(shift) > max(self.floor, _Z * math.hypot(*scatter[-2:]))
        known = len(figures) > ENOUGH or (self.kind == "speed-up" and abs(shift) > LARGE)
        return Step(shift, beyond and known, beyond and not known)


def _error(figure: Figure) -> float:
    return math.nan if figure.error is None else figure.error


def lines(runs: Sequence[Run]) -> list[Line]:
    """All lines through runs in order, calibrations and then single points last and else those of the latest run first;
    a case is known by its parameters, and called what the latest run calls it. Of a run that was interrupted and gone
    on with, which leaves a bundle each time, the one that has most is in them."""
    most: dict[tuple[str | int, ...], tuple[int, int]] = {}
    for i, run in enumerate(runs):
        same = (run.started, run.seed, run.suite, run.device, run.baseline)
        most[same] = max((run.processes, i), most.get(same, (0, 0)))
    found: dict[tuple[str, ...], list[tuple[int, Measured]]] = {}
    for _, i in sorted(most.values(), key=lambda one: one[1]):
        run = runs[i]
        for measured in run.measured:
            about = (run.suite, run.device, measured.params, measured.contender)
            found.setdefault(("time", *about, ""), []).append((i, measured))
            if measured.contender != run.baseline and "revision" not in run.surroundings:
                found.setdefault(("speed-up", *about, run.baseline), []).append((i, measured))
    made = (_line(key, entries) for key, entries in found.items())
    return sorted(made, key=lambda line: (line.suite == CALIBRATION, len(line.points) == 1, -line.points[-1].run))


def _line(key: tuple[str, ...], entries: Sequence[tuple[int, Measured]]) -> Line:
    kind: Kind = "time" if key[0] == "time" else "speed-up"
    points = tuple(Point(i, m.status, m.version, m.time if kind == "time" else m.speed_up) for i, m in entries)
    floors = sorted(m.floor for _, m in entries if m.time) or [0.0]
    floor = floors[len(floors) // 2]
    figures = [point.figure for point in points if point.figure]
    changes = find_changes([math.log(f.value) for f in figures], [_error(f) for f in figures], floor)
    return Line(kind, key[1], key[2], entries[-1][1], key[5], floor, points, tuple(changes))
