"""Lines through runs, and the places where a line changed its level.

A line of times belongs to one device model and moves with everything that affects the machine. A line of speed-ups
compares a contender with the baseline of its own run, block by block, so whatever affects both alike cancels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from groundspeed.judge.changes import ENOUGH, Change, find_changes, scatter_of
from groundspeed.judge.history import Figure, Measured, Run
from groundspeed.judge.statistics import t_two_sided_p

Kind = Literal["time", "speed-up"]

CALIBRATION = "calibration"
"""The suite whose lines show the machine itself. They come last because a history is not opened for them."""
ALPHA = 0.05
"""The chance that noise shows a step in any of the lines of one kind that end in the same run."""
_MANY, _LEAST = 1e6, 1e-12
"""The degrees of freedom of what counts as known; the least variance, which is that of no machine."""


@dataclass(frozen=True)
class Point:
    run: int
    """Its index among the runs of the history."""
    status: str
    version: str
    """The version of the contender."""
    processes: int
    """How many processes its run had, from which the error of the figure comes."""
    figure: Figure | None
    """None for a contender that failed."""


@dataclass(frozen=True)
class Step:
    """The step from the run before to the latest, on the log scale."""

    shift: float
    beyond: bool
    """Whether the shift exceeds the floor and what chance gives any of the lines."""
    early: bool = False
    """Whether the shift exceeds both, but too few runs are known to tell how runs scatter, which is by more than the
    processes of one run show."""


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
    together: int = 1
    """The number of lines of this kind that end in the same run. Their steps are tested together."""

    @property
    def counted(self) -> list[tuple[Point, Figure]]:
        return [(point, point.figure) for point in self.points if point.figure]

    @property
    def step(self) -> Step | None:
        """Test the shift by Student's t, with Bonferroni's correction for the lines that are tested together."""
        counted = self.counted
        if len(counted) < 2:
            return None
        values, errors = [math.log(f.value) for _, f in counted], [_error(f) for _, f in counted]
        variance = [max(own * own, _LEAST) for own in scatter_of((), errors, self.floor)]
        known = len(counted) > ENOUGH
        noise, df = self._noise(values[:-1], variance) if known else (1.0, _MANY)
        shift, both = values[-1] - values[-2], noise * sum(variance[-2:])
        own = sum(_uncertainty(noise * f.error**2, p.processes) for p, f in counted[-2:] if f.error)
        df = min(df, both**2 / own if own else _MANY)  # Welch's, in which the floor's part counts as known
        p = t_two_sided_p(shift / math.sqrt(both), df)
        beyond = abs(shift) > self.floor and p * self.together <= ALPHA
        return Step(shift, beyond and known, beyond and not known)

    def _noise(self, values: Sequence[float], variance: Sequence[float]) -> tuple[float, float]:
        """Return the factor, at least 1, by which earlier runs scatter around their levels more than they say
        themselves, and its degrees of freedom."""
        edges = [0, *(change.at for change in self.changes), len(values)]
        apart = 0.0
        for begin, end in pairwise(edges):
            weights = [1 / one for one in variance[begin:end]]
            level = sum(w * y for w, y in zip(weights, values[begin:end], strict=True)) / sum(weights)
            apart += sum(w * (y - level) ** 2 for w, y in zip(weights, values[begin:end], strict=True))
        df = len(values) - (len(edges) - 1)
        return max(1.0, apart / df), df


def _uncertainty(variance: float, processes: int) -> float:
    return variance**2 / max(1, processes - 1)


def _error(figure: Figure) -> float:
    return math.nan if figure.error is None else figure.error


def lines(runs: Sequence[Run]) -> list[Line]:
    """Return all lines through the runs, which are given in order. Lines of the latest run come first, single points
    after all lines, and calibrations last. A case is identified by its parameters and has the name that the latest run
    gives it. A run that was interrupted and resumed leaves several bundles, of which only the one with the most
    processes counts."""
    found: dict[tuple[str, ...], list[tuple[int, Measured]]] = {}
    for i in _each_once(runs):
        run = runs[i]
        for measured in run.measured:
            about = (run.suite, run.device, measured.params, measured.contender)
            found.setdefault(("time", *about, ""), []).append((i, measured))
            if measured.contender != run.baseline and "revision" not in run.surroundings:
                found.setdefault(("speed-up", *about, run.baseline), []).append((i, measured))
    made = [_line(key, entries, runs) for key, entries in found.items()]
    together = Counter((line.kind, line.points[-1].run) for line in made if len(line.counted) > 1)
    made = [replace(line, together=max(1, together[line.kind, line.points[-1].run])) for line in made]
    return sorted(made, key=lambda line: (line.suite == CALIBRATION, len(line.points) == 1, -line.points[-1].run))


def _each_once(runs: Sequence[Run]) -> list[int]:
    """Return the indices of the runs without what is left of those that were resumed. Two runs that were started in the
    same second with the same seed, but of different cases or contenders, are two runs."""
    kept: dict[tuple[str | int, ...], list[int]] = {}
    for i, run in enumerate(runs):
        alike = kept.setdefault((run.started, run.seed, run.suite, run.device, run.baseline), [])
        what = {(one.params, one.contender) for one in run.measured}
        for place, j in enumerate(alike):
            other = {(one.params, one.contender) for one in runs[j].measured}
            if what & other or not (what and other):
                alike[place] = max(i, j, key=lambda n: (runs[n].processes, n))
                break
        else:
            alike.append(i)
    return sorted(i for alike in kept.values() for i in alike)


def _line(key: tuple[str, ...], entries: Sequence[tuple[int, Measured]], runs: Sequence[Run]) -> Line:
    kind: Kind = "time" if key[0] == "time" else "speed-up"
    points = tuple(
        Point(i, m.status, m.version, runs[i].processes, m.time if kind == "time" else m.speed_up) for i, m in entries
    )
    floors = sorted(m.floor for _, m in entries if m.time) or [0.0]
    floor = floors[len(floors) // 2]
    figures = [point.figure for point in points if point.figure]
    changes = find_changes([math.log(f.value) for f in figures], [_error(f) for f in figures], floor)
    return Line(kind, key[1], key[2], entries[-1][1], key[5], floor, points, tuple(changes))
