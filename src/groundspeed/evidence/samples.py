"""The samples of a run: one row each, in columns, in the order they were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput

Samples = dict[str, npt.NDArray[Any]]

WARMUP, TIMED, SEQUENTIAL = 0, 1, 2
"""Phases of a sample: before the blocks, in a block, and in the series of one contender after the blocks."""

COLUMNS: dict[str, str] = {
    "process": "<i2",
    "attempt": "<i2",  # 0, or more where the process was begun again after an interruption
    "worker": "<i2",  # 0, or more where the worker of the process had to be replaced
    "case": "<i2",
    "contender": "<i2",
    "phase": "|u1",  # WARMUP, TIMED or SEQUENTIAL
    "block": "<i4",
    "position": "<i2",  # in the order of its block
    "start": "<f8",  # seconds since the worker began
    "seconds": "<f8",  # the interval, of `launches` calls
    "launches": "<i4",
    "checked": "|u1",  # 1 where the output of this very call was compared with the oracle
    "sm_clock_mhz": "<f4",  # NaN where the device did not tell, here and in the next two
    "temperature_c": "<f4",
    "power_w": "<f4",
    "throttle": "<i8",  # NVML's clocks-event reasons as bits; -1 where the device did not tell
}
"""The columns of the samples file, one row per sample in the order they were taken."""

UNKNOWN: dict[str, float] = {"sm_clock_mhz": np.nan, "temperature_c": np.nan, "power_w": np.nan, "throttle": -1}
"""The columns of telemetry, and what stands for a value that the device did not give."""

UNITS = {"start": ("start_us", 1e6), "seconds": ("interval_ns", 1e9)}
"""Columns that the file holds as whole numbers, under what name and in which part of a second: a third of the size."""

FILE_COLUMNS = {UNITS[name][0] if name in UNITS else name: "<i8" if name in UNITS else t for name, t in COLUMNS.items()}


MOST_PARTS = 9e18
"""Just under the largest 64-bit integer."""


def to_file(samples: Samples) -> Samples:
    """The columns as the file holds them. BadInput for a time that it cannot hold."""
    return {
        UNITS[name][0] if name in UNITS else name: _whole(column, UNITS[name][1]) if name in UNITS else column
        for name, column in samples.items()
    }


def _whole(column: npt.NDArray[Any], parts: float) -> npt.NDArray[np.int64]:
    if not (np.abs(column) <= MOST_PARTS / parts).all():  # NaN is not
        raise BadInput("a sample begins or lasts longer than the file of a bundle can say")
    return np.rint(column * parts).astype("<i8")


def from_file(columns: Samples) -> Samples:
    """The other way round. Dividing gives the very number that the journal wrote in decimals."""
    names = {of_file: (name, parts) for name, (of_file, parts) in UNITS.items()}
    return {
        names[name][0] if name in names else name: column / names[name][1] if name in names else column
        for name, column in columns.items()
    }


Seconds = dict[tuple[int, str, str], dict[int, float]]
"""(process, case, contender) → block → seconds a call."""


def seconds_of(
    samples: Samples, phase: int, attempts: Mapping[int, int], cases: Sequence[str], contenders: Sequence[str]
) -> Seconds:
    """The samples of one phase, of those attempts alone that are given for each process."""
    chosen = np.full(max([0, *attempts]) + 1, -1, np.int64)
    for process, attempt in attempts.items():
        chosen[process] = attempt
    known = samples["process"] < len(chosen)
    keep = known & (samples["phase"] == phase)
    keep[known] &= chosen[samples["process"][known]] == samples["attempt"][known]
    result: Seconds = {}
    per_call = samples["seconds"][keep] / samples["launches"][keep]
    keys = (samples[name][keep].tolist() for name in ("process", "case", "contender", "block"))
    for process, case, contender, block, value in zip(*keys, per_call.tolist(), strict=True):
        result.setdefault((process, cases[case], contenders[contender]), {})[block] = value
    return result
