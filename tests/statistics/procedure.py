"""One simulated run through the judge's own functions: looks, trimmed means, t over processes, Holm, floor, alarm.

Only what is description and decides nothing is left out (the bootstrap within a process, the number of processes that
would settle an UNCLEAR). The centres of many processes are computed at once; `test_study.py` holds them against
`should_stop` and `trimmed`, one process at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import numpy.typing as npt

from groundspeed.evidence.protocol import EXTENSIONS, NAME, Protocol
from groundspeed.judge.floors import LEAST, Floor, alarm, default_floor, floor_of
from groundspeed.judge.statistics import CONFIDENCE, TRIM, Trimmed, t_interval, t_quantile
from groundspeed.judge.verdict import Centre, Comparison, Ruling, compare, judge_family
from groundspeed.lab.presets import PRESETS

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

NO_FLOOR = Floor(0.0, "calibrated")
LONG_S, SHORT_S = 1e-3, 1e-5
"""Work of these lengths has the default floor of long and of short work."""


@dataclass(frozen=True)
class Plan:
    """A preset, or a preset with its declared extension."""

    name: str
    protocol: Protocol

    @property
    def most(self) -> int:
        """Processes that it may come to."""
        return self.protocol.extension or self.protocol.processes

    @property
    def stages(self) -> tuple[int, ...]:
        """The numbers of processes at which verdicts are given."""
        return tuple(dict.fromkeys((self.protocol.processes, self.most)))

    @property
    def alpha(self) -> float:
        return round(1 - self.protocol.confidence, 6)  # as grid.alpha_of


def plan(preset: str, extended: bool = False, processes: int | None = None) -> Plan:
    chosen = PRESETS[preset]
    protocol = Protocol(
        name=NAME,
        preset=preset,
        processes=processes or chosen.processes,
        looks=chosen.looks,
        half_width=chosen.half_width,
        seed=0,
        threads=1,
        timeout_s=30.0,
        budget_s=None,
        warmup_s=0.01,
        input_sets=3,
        sequential=0,
        extension=EXTENSIONS[chosen.processes][0] if extended else None,
        isolated=False,
    )
    return Plan(f"{preset} {protocol.processes}→{protocol.extension}" if extended else preset, protocol)


PLANS = {
    p.name: p for p in (plan("quick"), plan("standard"), plan("paper"), plan("quick", True), plan("standard", True))
}


@dataclass(frozen=True)
class Centres:
    """What processes say about comparisons, one row for each comparison, one column for each process."""

    mean: Array
    se: Array
    plain: Array
    blocks: Counts

    def __len__(self) -> int:
        return len(self.mean)

    def rows(self, start: int, stop: int) -> Centres:
        rows = slice(start, stop)
        return Centres(self.mean[rows], self.se[rows], self.plain[rows], self.blocks[rows])

    @staticmethod
    def joined(parts: Sequence[Centres]) -> Centres:
        return Centres(
            np.concatenate([p.mean for p in parts]),
            np.concatenate([p.se for p in parts]),
            np.concatenate([p.plain for p in parts]),
            np.concatenate([p.blocks for p in parts]),
        )


def stopped(theta: Array, protocol: Protocol) -> Centres:
    """The centres of processes whose blocks are the last axis, each stopped at its look: `should_stop` and `trimmed`
    for many at once."""
    flat = theta.reshape(-1, theta.shape[-1])
    mean, se, plain = (np.empty(len(flat)) for _ in range(3))
    blocks = np.zeros(len(flat), np.int64)
    going = np.arange(len(flat))
    for look in protocol.looks:
        seen = flat[going, :look]
        ordered = np.sort(seen, axis=1)
        cut = math.floor(TRIM * look)
        kept = ordered[:, cut : look - cut]
        h = kept.shape[1]
        low, high = kept[:, :1], kept[:, -1:]
        winsorised = np.clip(ordered, low, high)
        deviations = ((winsorised - winsorised.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        error = np.sqrt(deviations / (h * (h - 1)))
        narrow = t_quantile((1 + CONFIDENCE) / 2, h - 1) * error <= protocol.half_width
        ends = narrow if look != protocol.looks[-1] else np.ones(len(going), bool)
        done = going[ends]
        mean[done] = np.clip(kept.mean(axis=1), low[:, 0], high[:, 0])[ends]
        se[done], plain[done], blocks[done] = error[ends], seen.mean(axis=1)[ends], look
        going = going[~ends]
    shape = theta.shape[:-1]
    return Centres(mean.reshape(shape), se.reshape(shape), plain.reshape(shape), blocks.reshape(shape))


@dataclass(frozen=True)
class Calibration:
    """What the A/A comparisons of a machine say."""

    estimates: tuple[float, ...]
    ts: tuple[float, ...]
    processes: int

    def floor(self, together: int) -> Floor:
        return Floor(floor_of(self.estimates, together), "calibrated")

    @property
    def alarm(self) -> bool:
        return alarm(self.ts, self.processes)


def calibrations(centres: Centres, plan: Plan) -> list[Calibration]:
    """One for every 20 A/A comparisons, with as many processes as the preset has."""
    n = plan.protocol.processes
    x = centres.mean[:, :n]
    mean, sd = x.mean(axis=1), x.std(axis=1, ddof=1)
    t = np.divide(mean * math.sqrt(n), sd, out=np.zeros_like(mean), where=sd > 0)
    return [
        Calibration(tuple(mean[i : i + LEAST].tolist()), tuple(t[i : i + LEAST].tolist()), n)
        for i in range(0, len(mean) - LEAST + 1, LEAST)
    ]


def comparison(centres: Centres, row: int, processes: int, confidence: float, shorter_s: float = LONG_S) -> Comparison:
    mean, se, plain = (part[row, :processes].tolist() for part in (centres.mean, centres.se, centres.plain))
    blocks = centres.blocks[row, :processes].tolist()
    made = [
        Centre(i, blocks[i], Trimmed(mean[i], se[i], blocks[i] - 2 * math.floor(TRIM * blocks[i]) - 1), plain[i],
               np.empty(0))
        for i in range(processes)
    ]  # fmt: skip
    return compare("ours", "base", made, default_floor(shorter_s), confidence)


@dataclass(frozen=True)
class Outcome:
    """How a run ended under one floor."""

    comparisons: tuple[Comparison, ...]
    processes: int

    @property
    def differences(self) -> int:
        return sum(c.verdict in ("FASTER", "SLOWER") for c in self.comparisons)


class Run:
    """The comparisons of one run; each stage is compared once and may be judged under several floors."""

    def __init__(self, centres: Centres, plan: Plan, shorter_s: float = LONG_S) -> None:
        self.centres, self.plan, self.shorter_s = centres, plan, shorter_s
        self._stages: dict[int, list[Comparison]] = {}

    def _compared(self, processes: int) -> list[Comparison]:
        if processes not in self._stages:
            self._stages[processes] = [
                comparison(self.centres, row, processes, self.plan.protocol.confidence, self.shorter_s)
                for row in range(len(self.centres))
            ]
        return self._stages[processes]

    def judged(self, floor: Floor | None, first: int | None = None, alpha: float | None = None) -> Outcome:
        """The verdicts over the first so many cases; a floor of None is the product's default one. A run that declared
        an extension takes it where a verdict is UNCLEAR (`extension.wants_extension`)."""
        family: list[Comparison] = []
        for processes in self.plan.stages:
            compared = self._compared(processes)[:first]
            if floor is not None:
                compared = [replace(c, floor=floor) for c in compared]
            headlines = []
            if len(compared) > 1:  # the geometric mean over the cases is tested along with them
                means = self.centres.mean[: len(compared), :processes].mean(axis=0)
                headlines = [t_interval(means, self.plan.protocol.confidence).p]
            family = judge_family(compared, processes, headlines, alpha or self.plan.alpha)
            if all(c.verdict != "UNCLEAR" for c in family):
                break
        return Outcome(tuple(family), processes)


@contextmanager
def aa_alone() -> Iterator[None]:
    """The procedure as it was before a run's own comparisons, their spread and their outliers, had a floor as well."""
    floors = "groundspeed.judge.verdict"
    with (
        mock.patch(f"{floors}.spread_floor", return_value=None),
        mock.patch(f"{floors}.outliers_of", return_value={}),
    ):
        yield


@contextmanager
def without_outliers() -> Iterator[None]:
    with mock.patch("groundspeed.judge.verdict.outliers_of", return_value={}):
        yield


@contextmanager
def without_description() -> Iterator[None]:
    """How many processes would settle an UNCLEAR takes most of a verdict's time, and changes none."""
    with mock.patch("groundspeed.judge.verdict._what_would_settle", return_value=Ruling("UNCLEAR", "")):
        yield
