"""What was observed of a GPU beside the samples: the clock that it ran at, and what another timer saw of the calls.

The clock sets a limit that no sample can be under, whatever the datasheet says. A datasheet's peak is at one clock, but
a GPU under load runs at another: above it when it is cool, far below when it is held back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.limits import Limit, Peaks, cache_of
from groundspeed.judge.timers import Watched, watched

PER_CYCLE: dict[str, dict[str, int]] = {
    "8.0": {"fp16": 2048, "bf16": 2048, "tf32": 1024, "fp32": 128},
    "8.6": {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp32": 256},
    "8.9": {"fp16": 1024, "bf16": 1024, "tf32": 512, "fp32": 256, "fp8": 2048},
    "9.0": {"fp16": 4096, "bf16": 4096, "tf32": 2048, "fp32": 256, "fp8": 8192},
}
"""Compute capability → dense FLOPs per cycle of one multiprocessor, by operand dtype. They come from NVIDIA's
whitepapers on GA100, GA102, AD102 and GH100; the datasheets' peaks are these at the boost clock."""


@dataclass(frozen=True)
class Observed:
    record: Record
    peaks: Peaks | None

    @cached_property
    def clocks(self) -> npt.NDArray[np.float64]:
        """For every sample, the highest clock in MHz among its own reading and those of the samples before and after
        it, or NaN if there are none. The clock is read periodically, so a reading may be from just before or after."""
        read = self.record.samples["sm_clock_mhz"].astype(np.float64)
        read[~(read > 0)] = np.nan
        around = np.stack([np.concatenate([read[:1], read[:-1]]), read, np.concatenate([read[1:], read[-1:]])])
        return np.fmax.reduce(around) if len(read) else read

    @cached_property
    def timed(self) -> npt.NDArray[np.bool_]:
        """The samples that are judged."""
        columns, attempts = self.record.samples, self.record.finished_attempts
        of_process = np.full(max([*attempts, int(columns["process"].max(initial=0))]) + 1, -1)
        of_process[list(attempts)] = list(attempts.values())
        finished = of_process[columns["process"]] == columns["attempt"]
        judged: npt.NDArray[np.bool_] = finished & (columns["phase"] == TIMED)
        return judged

    @cached_property
    def fastest(self) -> dict[tuple[int, int], list[tuple[float, float]]]:
        """(case, contender) → (clock, shortest seconds per call) for each clock, which may be NaN."""
        columns, timed = self.record.samples, self.timed
        case, contender, clock = columns["case"][timed], columns["contender"][timed], self.clocks[timed]
        clock = np.where(np.isnan(clock), -1.0, clock)  # unlike NaN, it equals itself
        order = np.lexsort((clock, contender, case))
        if not len(order):
            return {}
        case, contender, clock = case[order], contender[order], clock[order]
        other = (np.diff(case) != 0) | (np.diff(contender) != 0) | (np.diff(clock) != 0)
        first = np.concatenate([[0], np.flatnonzero(other) + 1])
        least = np.minimum.reduceat((columns["seconds"][timed] / columns["launches"][timed])[order], first)
        found: dict[tuple[int, int], list[tuple[float, float]]] = {}
        groups = (values[first].tolist() for values in (case, contender, clock))
        for number, of, at, seconds in zip(*groups, least.tolist(), strict=True):
            found.setdefault((number, of), []).append((at if at > 0 else math.nan, seconds))
        return found

    @cached_property
    def watched(self) -> Watched:
        return watched(self.record)

    def beyond_physics(self, case: CaseFacts, contender: str, limit: Limit | None) -> str | None:
        """Return why a result is INVALID, or None. No sample may be faster than the device can be at the clock that it
        showed or, if no clock was read, than its datasheet allows."""
        key = self.record.case_index[case.name], self.record.contender_index[contender]
        for clock, fastest in self.fastest.get(key, ()):
            bound = self.limit_at(case, clock) or limit
            if bound is None or fastest >= bound.seconds:
                continue
            where = "" if bound is limit else f" at {clock:,.0f} MHz, the clock that it showed"
            return (
                f"its fastest sample, {fastest * 1e6:.2f} µs, is under the device's limit of "
                f"{bound.seconds * 1e6:.2f} µs ({bound.bound}{where}): the work cannot have been done"
            )
        return None

    def limit_at(self, case: CaseFacts, clock_mhz: float) -> Limit | None:
        """Return the limit of a case at a clock, or None if the clock was not read or the device is not in the
        table."""
        gpu, worker = self._part("gpu"), self._part("worker")
        rates, dtype = PER_CYCLE.get(str(gpu.get("compute_capability")), {}), str(case.params.get("dtype"))
        most = max((rates[key] for key in (dtype, "tf32" if dtype == "fp32" else dtype) if key in rates), default=0)
        multiprocessors, highest = worker.get("multiprocessors"), gpu.get("max_sm_clock_mhz")
        if not clock_mhz > 0 or not most or type(multiprocessors) is not int or multiprocessors <= 0:
            return None
        if isinstance(highest, (int, float)) and highest > 0:
            clock_mhz = min(clock_mhz, float(highest))
        compute = case.flops / (multiprocessors * most * clock_mhz * 1e6)
        moved = max(0, case.bytes - cache_of(self.record, case).served_bytes)
        memory = moved / self.peaks.bandwidth if self.peaks else 0.0
        return Limit(max(compute, memory), "compute" if compute >= memory else "bandwidth")

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self.record.environment.get(name)
        return part if isinstance(part, Mapping) else {}
