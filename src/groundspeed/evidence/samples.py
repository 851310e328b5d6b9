"""The samples of a run: one row per sample, stored as columns, in the order they were taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput

Samples = dict[str, npt.NDArray[Any]]

WARMUP, TIMED, SEQUENTIAL = 0, 1, 2
"""Phases of a sample: before the blocks, in a block, and in the row that a contender takes after the blocks."""

COLUMNS: dict[str, str] = {
    "process": "<i2",
    "attempt": "<i2",  # more than 0 if the process was restarted after an interruption
    "worker": "<i2",  # more than 0 if the worker of the process was replaced
    "case": "<i2",
    "contender": "<i2",
    "phase": "|u1",  # WARMUP, TIMED or SEQUENTIAL
    "block": "<i4",
    "position": "<i2",  # in the order of its block
    "start": "<f8",  # seconds since the worker started
    "seconds": "<f8",  # length of the interval, in which `launches` calls were made
    "launches": "<i4",
    "checked": "|u1",  # 1 if the output of this very call was compared with the oracle
    "sm_clock_mhz": "<f4",  # NaN if the device did not report it; also in the next two columns
    "temperature_c": "<f4",
    "power_w": "<f4",
    "throttle": "<i8",  # NVML's clocks-event reasons as bits; -1 if the device did not report them
}
"""The columns of the samples as a record holds them; `FILE_COLUMNS` are those of the file."""

UNKNOWN: dict[str, float] = {"sm_clock_mhz": np.nan, "temperature_c": np.nan, "power_w": np.nan, "throttle": -1}
"""The columns of telemetry, and the value that stands for what the device did not report."""

UNITS = {"start": ("start_us", 1e6), "seconds": ("interval_ns", 1e9)}
"""Columns that the file holds as integers, which takes a third of the size: their name there, and units per second."""

FILE_COLUMNS = {UNITS[name][0] if name in UNITS else name: "<i8" if name in UNITS else t for name, t in COLUMNS.items()}


MOST_PARTS = 9e18
"""Just under the largest 64-bit integer."""


def to_file(samples: Samples) -> Samples:
    """Return the columns as the file holds them. BadInput for a time that it cannot hold."""
    return {
        UNITS[name][0] if name in UNITS else name: _whole(column, UNITS[name][1]) if name in UNITS else column
        for name, column in samples.items()
    }


def _whole(column: npt.NDArray[Any], parts: float) -> npt.NDArray[np.int64]:
    if not (np.abs(column) <= MOST_PARTS / parts).all():  # NaN is refused too
        raise BadInput("a sample has a start or a duration that the file of a bundle cannot hold")
    return np.rint(column * parts).astype("<i8")


def from_file(columns: Samples) -> Samples:
    """Return the columns as a record holds them, the inverse of `to_file`. Dividing gives exactly the number that the
    journal wrote in decimals."""
    names = {of_file: (name, parts) for name, (of_file, parts) in UNITS.items()}
    return {
        names[name][0] if name in names else name: column / names[name][1] if name in names else column
        for name, column in columns.items()
    }


Seconds = dict[tuple[int, str, str], dict[int, float]]
"""(process, case, contender) → block → seconds per call."""


def seconds_of(
    samples: Samples, phase: int, attempts: Mapping[int, int], cases: Sequence[str], contenders: Sequence[str]
) -> Seconds:
    """Return the seconds per call of one phase, from only the given attempt of each process."""
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
