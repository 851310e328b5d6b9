"""The figures of one contender on one case: latency, rates, shares of peak, memory and errors."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np

from groundspeed.evidence.protocol import BEFORE_THIRD, draw, inputs_seed
from groundspeed.evidence.record import MEMORY, CaseFacts, Outcome, Record
from groundspeed.judge.limits import Peaks
from groundspeed.judge.statistics import iqr_outliers, quantiles, t_interval

PLACE = "out["
"""How the gate's reason begins to name a position in the output. A reason with it is about wrong values and nothing
else."""
NOT_FINITE = "NaN or infinity"
"""The gate's words for output that is not finite. A result kept from an earlier call reads the same."""
LATER = "on a later one"
"""The gate's words for a contender that was right on its first call."""
RANK = ("INCORRECT", "TIMEOUT", "OOM", "ERROR", "ABSENT", "SKIPPED")
"""The order of precedence if a contender ended differently in different processes: the first of these counts."""


@dataclass(frozen=True)
class Latency:
    """Seconds per call. `median` is the mean of the process medians on the log scale, so each process counts alike;
    `low` and `high` are its 95% interval. The other figures are over all timed samples."""

    samples: int
    mean: float
    std: float
    median: float
    low: float
    high: float
    min: float
    max: float
    p5: float
    p95: float
    p99: float
    outliers: int
    """Samples outside 1.5×IQR. Shown, never dropped."""


@dataclass(frozen=True)
class Rates:
    flops: float
    """FLOP/s at the median, counting the work that the mathematics needs."""
    flops_share: float | None
    """The share of the device's dense peak; None if the table has no peak for it."""
    bytes: float
    """Algorithmic bytes/s: what the mathematics must move, not what the kernel moved."""
    bytes_share: float | None
    counts: dict[str, float]
    """Tokens, queries and samples per second."""


@dataclass(frozen=True)
class Errors:
    """The largest errors against the oracle over all processes and checked calls."""

    max_abs: float | None
    mean_abs: float | None
    max_rel: float | None
    rms_rel: float | None


@dataclass(frozen=True)
class Memory:
    """Memory of one call, the largest over all processes; None if the system does not report it, and for the device on
    a CPU. On a GPU, `host_peak_bytes` is the peak of the process so far."""

    host_peak_bytes: int | None
    host_extra_bytes: int | None
    device_peak_bytes: int | None
    device_extra_bytes: int | None

    @property
    def extra_bytes(self) -> int | None:
        """The memory that a call adds on the device that does the work."""
        return self.host_extra_bytes if self.device_extra_bytes is None else self.device_extra_bytes


def status_of(record: Record, case: str, contender: str) -> tuple[str, str | None]:
    """Return the status of a contender on a case over all processes, and its reason. One failure is enough."""
    facts = record.contenders[record.contender_index[contender]]
    if facts.status is not None:
        return facts.status, facts.reason
    if failures := _failures(record, case, contender):
        where = {o.process for o in failures}
        everywhere = len(where) == record.declared_processes
        suffix = "" if everywhere else f" (process {min(where) + 1})"  # people count from 1, files from 0
        return failures[0].status, f"{failures[0].reason}{suffix}"
    if not any((p, case, contender) in record.seconds for p in record.finished_attempts):
        return "SKIPPED", "no process finished before the run was interrupted"
    return "PASSED", None


def _failures(record: Record, case: str, contender: str) -> list[Outcome]:
    """Return the failures in all processes that have the status of highest precedence. The first one's reason is the
    one shown."""
    found = outcomes_of(record, case, contender)
    return next((same for status in RANK if (same := [o for o in found if o.status == status])), [])


def wrong_on(record: Record, case: str, contender: str) -> int | None:
    """Return the seed of the inputs on which a contender was INCORRECT, or None if they cannot be made again. Only the
    inputs of a first call can: those of timed calls are mixed as the run goes on and are not kept, and other calls
    before timing had other inputs. There is no seed either if the output was not finite and the contender had been
    called before on another case: it may have returned a kept result, which a single call does not reproduce."""
    wrong = next(iter(_failures(record, case, contender)), None)
    if wrong is None or wrong.status != "INCORRECT" or wrong.block is not None:
        return None
    if PLACE not in str(wrong.reason) or LATER in str(wrong.reason):
        return None
    key = wrong.process, wrong.attempt
    only_worker = any((p.process, p.attempt, p.workers) == (*key, 1) for p in record.processes)
    if not only_worker or record.protocol.name in BEFORE_THIRD:
        return None
    first = draw(record.draw_seed, (c.name for c in record.cases), *key, "cases")[0]
    if NOT_FINITE in str(wrong.reason) and case != first:
        return None
    return inputs_seed(record.draw_seed, *key, case, worker=1, number=0)


def outcomes_of(record: Record, case: str, contender: str) -> list[Outcome]:
    return record.outcomes_of_contender.get((case, contender), [])


def latency_of(record: Record, case: str, contender: str) -> Latency | None:
    """Return the latency, or None if no process has finished."""
    by_process = [
        list(record.seconds[process, case, contender].values())
        for process in sorted(record.finished_attempts)
        if (process, case, contender) in record.seconds
    ]
    if not by_process:
        return None
    x = np.asarray([value for values in by_process for value in values], np.float64)
    logs = [math.log(statistics.median(values)) for values in by_process]
    over_processes = t_interval(logs, record.protocol.confidence)
    ordered = np.sort(x).tolist()
    p5, p95, p99 = quantiles(ordered, (0.05, 0.95, 0.99))
    return Latency(
        samples=len(x),
        mean=float(x.mean()),
        std=float(x.std(ddof=1)) if len(x) > 1 else 0.0,
        median=math.exp(over_processes.mean),
        low=math.exp(over_processes.low) if len(by_process) > 1 else math.nan,
        high=math.exp(min(over_processes.high, 700.0)) if len(by_process) > 1 else math.nan,
        min=ordered[0],
        max=ordered[-1],
        p5=p5,
        p95=p95,
        p99=p99,
        outliers=iqr_outliers(ordered),
    )


def rates_of(case: CaseFacts, latency: Latency, peaks: Peaks | None) -> Rates:
    flops, moved = case.flops / latency.median, case.bytes / latency.median
    peak = peaks.flops.get(str(case.params.get("dtype"))) if peaks else None
    return Rates(
        flops=flops,
        flops_share=flops / peak if peak and flops else None,
        bytes=moved,
        bytes_share=moved / peaks.bandwidth if peaks and moved else None,
        counts={name: count / latency.median for name, count in case.counts.items()},
    )


def errors_of(outcomes: list[Outcome]) -> Errors:
    def largest(name: str) -> float | None:
        return max((v for o in outcomes if (v := getattr(o, name)) is not None), default=None)

    return Errors(largest("max_abs"), largest("mean_abs"), largest("max_rel"), largest("rms_rel"))


def memory_of(outcomes: list[Outcome]) -> Memory:
    def largest(name: str) -> int | None:
        return max((v for o in outcomes if (v := getattr(o, name)) is not None), default=None)

    return Memory(**{name: largest(name) for name in MEMORY})
