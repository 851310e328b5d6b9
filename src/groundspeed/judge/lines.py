"""Lines through runs, and the places where a line changed its level.

A line of times belongs to one device model and moves with everything that affects the machine. A line of speed-ups
compares a contender with the baseline of its own run, block by block, so whatever affects both alike cancels.
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
"""The suite whose lines show the machine itself. They come last because a history is not opened for them."""
LARGE = 0.1
"""The size of a large step on the log scale. On a busy machine, two runs of the same code differed by a few percent."""
_Z = 1.96


@dataclass(frozen=True)
class Point:
    run: int
    """Its index among the runs of the history."""
    status: str
    version: str
    """The version of the contender."""
    figure: Figure | None
    """None for a contender that failed."""


@dataclass(frozen=True)
class Step:
    """The step from the run before to the latest, on the log scale."""

    shift: float
    beyond: bool
    """Whether the shift exceeds the floor, both intervals together, and the scatter of runs."""
    early: bool = False
    """Whether the shift exceeds all of these, but too few runs are known to tell how runs scatter, which is by more
    than the processes of one run show. A large step of a speed-up need not wait for more runs, because what moves the
    machine does not move a speed-up."""


@dataclass(frozen=True)
class Line:
    """One contender on one case on one device model, run by run."""

    kind: Kind
    suite: str
    device: str
    latest: Measured
    baseline: str
    """The baseline of a speed-up; empty for a time."""
    floor: float
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    """Their indices count only the points that have a figure."""

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
    """Return all lines through the runs, which are given in order. Lines of the latest run come first, single points
    after all lines, and calibrations last. A case is identified by its parameters and has the name that the latest run
    gives it. A run that was interrupted and resumed leaves several bundles, of which only the one with the most
    processes counts."""
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
