"""Noise of the committed H200 bundles: whole processes drawn again, so that blocks keep their order and processes their
effects.

A case has eight processes. A simulated process is one of them, drawn with replacement, its series of log ratios begun
at a block drawn at random and going round. The procedure stops it as it would have. What is subtracted is the mean over
all processes and beginnings, so that the truth is 0 on every case.

Eight values drawn again and again are no continuous noise: of normal ones, so drawn, a 95% interval over four covers
91%. So what a process as a whole does is smoothed (Silverman: a normal kernel of 0.7 of the smaller of standard
deviation and IQR/1.34, shrunk so that the variance stays), after which normal ones come to 94%: `control()` shows how
much of what is missing is owed to the resampling."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from procedure import Array, Centres, Plan, stopped

from groundspeed.evidence import bundle
from groundspeed.evidence.protocol import Protocol
from groundspeed.evidence.record import Record
from groundspeed.judge.floors import SHORT_WORK_S
from groundspeed.judge.stopping import log_ratios

EVIDENCE = Path(__file__).parents[2] / "evidence" / "nvidia-h200"
PAIRS = {
    "itself": ("again-2", "again-1"),
    "cudnn/portable": ("ours-portable", "sdpa-cudnn"),
    "cudnn/fa4": ("flash-attn-4", "sdpa-cudnn"),
}
"""Name → contender and baseline. The first is PyTorch's SDPA by two names, an A/A and the calibration of all."""
AA = "itself"
CONTROL = "control"
KINDS = ("long", "short", "graph", "eager")

Series = tuple[tuple[float, ...], ...]
"""Of one case: the log ratios of every process, in the order of the blocks."""


@functools.cache
def bundles() -> tuple[bundle.Bundle, ...]:
    return tuple(bundle.read(path) for path in sorted(EVIDENCE.iterdir()) if (path / "samples.npz").exists())


DECODING = "decoding"
"""The pair of one bundle that lies with the tests: a process in eight is a fifth slower."""


@functools.cache
def decoding() -> tuple[bundle.Bundle, ...]:
    return tuple(bundle.read(path) for path in (Path(__file__).parents[1] / "measured" / "bundles").glob("*-0daf-*"))


@functools.cache
def series(pair: str, kind: str) -> dict[str, Series]:
    """By case, where both were timed in every process."""
    if pair == CONTROL:
        return _normal_series()
    contender, baseline = PAIRS["cudnn/portable" if pair == DECODING else pair]
    found: dict[str, Series] = {}
    for record in (one.record for one in (decoding() if pair == DECODING else bundles())):
        for case in record.case_index:
            if _kind(record, case, (contender, baseline)) == kind:
                found[case] = tuple(_process_series(record, case, contender, baseline))
    return found


def _normal_series() -> dict[str, Series]:
    """72 cases as quiet or loud as those of the long work, all of their noise normal."""
    g = np.random.default_rng(20261115)
    found = {}
    for case in range(72):
        between, within = np.exp(g.uniform(np.log((0.003, 0.01)), np.log((0.03, 0.04))))
        theta = between * g.standard_normal((8, 1)) + within * g.standard_normal((8, 40))
        found[str(case)] = tuple(tuple(map(float, process)) for process in theta)
    return found


def _kind(record: Record, case: str, names: tuple[str, str]) -> str | None:
    medians = []
    for name in names:
        times = [record.seconds.get((p, case, name), {}) for p in range(record.declared_processes)]
        if not all(times):
            return None
        medians.append(float(np.median([s for blocks in times for s in blocks.values()])))
    _, _, clock = case.partition("@")
    return clock or ("long" if min(medians) > SHORT_WORK_S else "short")


def _process_series(record: Record, case: str, contender: str, baseline: str) -> Iterator[tuple[float, ...]]:
    for process in range(record.declared_processes):
        times = {name: record.seconds[process, case, name] for name in (contender, baseline)}
        yield tuple(log_ratios(times, contender, baseline))


@dataclass(frozen=True)
class Table:
    """The centre of every process of every case from every beginning: [case, process, beginning]."""

    centres: Centres
    lengths: Array
    """Beginnings of each series."""
    process: Array
    """[case, process] → the mean over the beginnings of each, the truth subtracted."""
    truth: Array
    """By case."""
    kernel: Array
    """By case, the standard deviation of what smooths its processes."""
    shrink: Array
    """By case: what brings the variance between its processes back."""


SMOOTH = 0.7


@functools.cache
def table(pair: str, kind: str, protocol: Protocol) -> Table:
    return tabulated(list(series(pair, kind).values()), protocol)


def tabulated(cases: Sequence[Series], protocol: Protocol) -> Table:
    longest = max(len(s) for case in cases for s in case)
    blocks = protocol.looks[-1]
    shape = len(cases), len(cases[0]), longest
    theta, lengths = np.zeros((*shape, blocks)), np.zeros(shape[:2], np.int64)
    for i, case in enumerate(cases):
        for j, one in enumerate(case):
            lengths[i, j] = len(one)
            places = (np.arange(longest)[:, None] + np.arange(blocks)) % len(one)
            theta[i, j] = np.asarray(one)[places]
    centres = stopped(theta, protocol)
    real = np.arange(longest) < lengths[:, :, None]
    process = np.where(real, centres.mean, 0).sum(axis=2) / lengths
    truth = process.mean(axis=1)
    sd = process.std(axis=1, ddof=1)
    quartiles = np.quantile(process, (0.25, 0.75), axis=1)
    kernel = SMOOTH * np.minimum(sd, (quartiles[1] - quartiles[0]) / 1.34)
    shrink = sd / np.sqrt(process.var(axis=1) + kernel**2)
    return Table(centres, lengths, process - truth[:, None], truth, kernel, shrink)


def drawn(
    found: Table, g: np.random.Generator, n: int, processes: int, effect: float | Array, *, smooth: bool, swap: bool
) -> Centres:
    """n comparisons, each of one case drawn at random."""
    case = g.integers(0, len(found.truth), n)[:, None]
    process = g.integers(0, found.lengths.shape[1], (n, processes))
    begin = (g.random(process.shape) * found.lengths[case, process]).astype(np.int64)
    whole = found.process[case, process]
    moved = (whole + found.kernel[case] * g.standard_normal(whole.shape)) * found.shrink[case] if smooth else whole
    if swap:
        moved = moved - np.median(found.process, axis=1)[case]
    shift = moved - whole - found.truth[case]
    where = case, process, begin
    mean, se, plain = (part[where] for part in (found.centres.mean, found.centres.se, found.centres.plain))
    sign = g.choice((-1.0, 1.0), process.shape) if swap else 1.0
    offset = np.broadcast_to(np.asarray(effect, np.float64), (n,))[:, None]
    return Centres(sign * (mean + shift) + offset, se, sign * (plain + shift) + offset, found.centres.blocks[where])


@dataclass(frozen=True)
class Real:
    """Resampled noise of one pair and one kind of work. With `swap` each process draws which of the two is called the
    contender, about the median of the processes: two that do not differ can be exchanged, and noise that hits one of
    them only, as it hits different kernels, is part of how they differ."""

    pair: str
    kind: str
    smooth: bool = True
    swap: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.pair}{', swapped' if self.swap else ''}{'' if self.smooth else ', as drawn'}"

    @property
    def words(self) -> str:
        if self.pair == CONTROL:
            return "normal noise, eight processes of it drawn again as those of the bundles are"
        contender, baseline = PAIRS["cudnn/portable" if self.pair == DECODING else self.pair]
        return f"H200, {self.kind}: {contender} against {baseline}"

    def centres(self, g: np.random.Generator, n: int, plan: Plan, effect: float | Array = 0.0) -> Centres:
        # A process stops on its own: how many of them there are makes no other table.
        found = table(self.pair, self.kind, replace(plan.protocol, processes=1, extension=None))
        return drawn(found, g, n, plan.most, effect, smooth=self.smooth, swap=self.swap)

    @property
    def aa(self) -> Real:
        """What the machine is calibrated on: two contenders that launch the same kernels, on the same kind of work."""
        return replace(self, pair=self.pair if self.pair == CONTROL else AA)


def real(*, smooth: bool = True, swap: bool = False) -> dict[str, Real]:
    found = (Real(pair, kind, smooth, swap) for kind in KINDS for pair in PAIRS)
    return {one.name: one for one in found}


def rare() -> dict[str, Real]:
    """Of decoding: in the largest of its shapes, a process in eight or four is a fifth slower."""
    return {one.name: one for one in (Real(DECODING, kind) for kind in ("long", "graph"))}


def control(*, smooth: bool = True, swap: bool = False) -> Real:
    return Real(CONTROL, "normal", smooth, swap)
