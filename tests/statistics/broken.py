"""What other tools do, on the same noise: each must be caught by the bounds that the procedure keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from noise import Model
from procedure import NO_FLOOR, PLANS, Run, aa_alone, calibrations, without_description
from study import FAMILY, Share, covers, generator

from groundspeed.judge.floors import LEAST
from groundspeed.judge.statistics import t_interval
from groundspeed.judge.verdict import Floor

STANDARD = PLANS["standard"]


@dataclass(frozen=True)
class Erring:
    """How often a way of comparing finds a difference where there is none, and how often its interval holds."""

    false: Share
    covered: Share


def one_process(noise: Model, runs: int) -> Erring:
    """The interval goes over the blocks of one process."""
    g = generator(0, "one process", noise.name)
    blocks = noise.theta(g, runs, 1, STANDARD.protocol.looks[-1], np.zeros(runs))[:, 0]
    intervals = [t_interval(theta) for theta in blocks]
    false, covered = sum(i.p <= 0.05 for i in intervals), sum(i.low <= 0 <= i.high for i in intervals)
    return Erring(Share(false, runs), Share(covered, runs))


def on_significance(noise: Model, runs: int) -> Erring:
    """Processes are added, from three to eight, until the difference is significant."""
    g = generator(0, "on significance", noise.name)
    centres = noise.centres(g, runs, STANDARD).mean
    false = covered = 0
    for row in centres:
        interval = next((i for n in range(3, 9) if (i := t_interval(row[:n])).p <= 0.05), t_interval(row))
        false += interval.p <= 0.05
        covered += interval.low <= 0 <= interval.high
    return Erring(Share(false, runs), Share(covered, runs))


def best_of_three(noise: Model, runs: int) -> Erring:
    """The run is made three times, and the one that looks best is shown."""
    g = generator(0, "best of three", noise.name)
    centres = noise.centres(g, 3 * runs, STANDARD)
    false = covered = 0
    with without_description():
        for i in range(0, 3 * runs, 3):
            tried = [Run(centres.rows(j, j + 1), STANDARD).judged(NO_FLOOR) for j in range(i, i + 3)]
            best = min(tried, key=lambda outcome: outcome.comparisons[0].interval.p)
            false += best.differences
            covered += covers(best, 0.0)
    return Erring(Share(false, runs), Share(covered, runs))


def without_holm(noise: Model, runs: int) -> Share:
    """Every one of 60 cases is judged as if it were alone; the floor is that of the family."""
    return _families(noise, runs, lambda run, floor: any(_alone(run, row, floor) for row in range(FAMILY)))


def without_floor(noise: Model, runs: int) -> Share:
    """Holm alone."""
    with aa_alone():
        return _families(noise, runs, lambda run, floor: run.judged(NO_FLOOR).differences > 0)


def with_both(noise: Model, runs: int) -> Share:
    """The procedure, counted in the same way."""
    return _families(noise, runs, lambda run, floor: run.judged(floor).differences > 0)


def _alone(run: Run, row: int, floor: Floor) -> bool:
    return Run(run.centres.rows(row, row + 1), run.plan).judged(floor).differences > 0


def _families(noise: Model, runs: int, differs: Callable[[Run, Floor], bool]) -> Share:
    g = generator(0, "families", noise.name)
    machines = calibrations(noise.aa.centres(g, runs * LEAST, STANDARD), STANDARD)
    with without_description():
        found = [
            not machine.alarm and differs(Run(noise.centres(g, FAMILY, STANDARD), STANDARD), machine.floor(FAMILY))
            for machine in machines
        ]
    return Share(sum(found), runs)


Way = Callable[[Model, int], Erring]
FamilyWay = Callable[[Model, int], Share]
