"""What the counters of Nsight Compute mean. A metric that was not reported is unknown, never zero."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groundspeed.evidence.profile import Counted

_ELAPSED, _ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"

SM = (f"sm__throughput.{_ELAPSED}",)
TENSOR = tuple(
    f"{pipe}.{of}"
    for pipe in ("sm__pipe_tensor_cycles_active", "sm__pipe_tensor_op_hmma_cycles_active")
    for of in (_ELAPSED, _ACTIVE)
)
"""The cycles in which the pipe is active, as a share of all elapsed cycles if that is reported. On Hopper, wgmma counts
in both metrics. The number of instructions says little, because a single one keeps the pipe busy for long."""
DRAM = (f"dram__throughput.{_ELAPSED}", f"gpu__dram_throughput.{_ELAPSED}")
L2 = (f"lts__throughput.{_ELAPSED}",)
L2_HITS = ("lts__t_sector_hit_rate.pct",)
ACHIEVED = (f"sm__warps_active.{_ACTIVE}",)
POSSIBLE = ("sm__maximum_warps_per_active_cycle_pct",)
REGISTERS = ("launch__registers_per_thread",)
SHARED = ("launch__shared_mem_per_block",)
"""This includes the driver's own part, which no kernel requests, so it is the second choice."""
SHARED_PARTS = ("launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static")
THREADS = ("launch__block_size",)
WARP = 32
LIMITS = {
    what: (f"launch__occupancy_limit_{name}",)
    for what, name in (
        ("registers", "registers"),
        ("shared memory", "shared_mem"),
        ("warps", "warps"),
        ("barriers", "barriers"),
        ("blocks", "blocks"),
    )
}
"""For each resource, how many blocks would fit on a multiprocessor if nothing else limited them."""
WAVES = ("launch__waves_per_multiprocessor",)
DRAM_RATE = ("dram__bytes.sum.per_second",)
SPILLS = (
    "derived__local_spilling_requests",
    "sass__inst_executed_register_spilling_mem_local",
    "sass__inst_executed_register_spilling",
)
"""Loads and stores of spilled registers."""
SECONDS = ("gpu__time_duration.sum",)
NANO = 1e-9
"""Nsight Compute's base unit of time, in seconds."""

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(?P<why>[a-z_]+)_per_issue_active\.ratio")
ISSUING = "selected"
"""Nsight Compute lists issuing among the stall reasons, although a warp that issues does not stall."""


@dataclass(frozen=True)
class Stall:
    why: str
    warps: float
    """Warps stalled for this reason per issued instruction."""
    share: float | None
    """The share of the reported warp time on the device; None if the time spent issuing is not reported."""


@dataclass(frozen=True)
class Reading:
    """One kernel under Nsight Compute. Shares are of the peak; None if it did not report them."""

    kernel: str
    launches: int
    seconds: float | None
    """The total over its launches in one call."""
    sm: float | None
    tensor: float | None
    dram: float | None
    l2: float | None
    l2_hits: float | None
    achieved: float | None
    """Achieved occupancy."""
    possible: float | None
    """Theoretical occupancy, by registers, shared memory and block size."""
    registers: int | None
    """Per thread."""
    shared_bytes: int | None
    """Per block."""
    blocks: int | None
    """The blocks that fit on a multiprocessor at a time."""
    limited_by: tuple[str, ...]
    """The resources that allow no more blocks."""
    warps_possible: int | None
    """The warps of these blocks, on a multiprocessor at a time."""
    warps: float | None
    """The warps that were active, on average."""
    waves: float | None
    """How many times over the grid fills the device."""
    dram_bytes_s: float | None
    issuing: float | None
    """The share of a warp's time in which it issues."""
    spills: int | None
    """Requests for spilled registers, over all its launches in one call."""
    stalls: tuple[Stall, ...]
    """The most frequent first."""


def readings_of(counted: Sequence[Counted]) -> tuple[Reading, ...]:
    """Return a reading of each kernel, the longest first. Launches of a kernel are averaged, weighted by their times if
    all of them report one."""
    by_kernel: dict[str, list[Counted]] = {}
    for one in counted:
        by_kernel.setdefault(one.kernel, []).append(one)
    readings = [_reading(kernel, launches) for kernel, launches in by_kernel.items()]
    return tuple(sorted(readings, key=lambda reading: -(reading.seconds or 0.0)))


def _reading(kernel: str, launches: Sequence[Counted]) -> Reading:
    times = [_first(one.metrics, SECONDS) for one in launches]
    known = [t for t in times if t is not None and t > 0]
    weights = known if len(known) == len(launches) else [1.0] * len(launches)

    def share(names: Sequence[str]) -> float | None:
        return _over_100(_mean([_first(one.metrics, names) for one in launches], weights))

    longest = launches[max(range(len(launches)), key=lambda i: weights[i])].metrics
    achieved, possible = share(ACHIEVED), share(POSSIBLE)
    blocks, limited_by = _blocks(longest)
    threads = _whole(_first(longest, THREADS))
    fit = blocks * -(-threads // WARP) if blocks and threads else None
    issuing, stalls = _stalls(longest)
    return Reading(
        kernel=kernel,
        launches=len(launches),
        seconds=sum(known) * NANO if len(known) == len(launches) else None,
        sm=share(SM),
        tensor=share(TENSOR),
        dram=share(DRAM),
        l2=share(L2),
        l2_hits=share(L2_HITS),
        achieved=achieved,
        possible=possible,
        registers=_whole(_first(longest, REGISTERS)),
        shared_bytes=_whole(_shared(longest)),
        blocks=blocks,
        limited_by=limited_by,
        warps_possible=fit,
        warps=fit * achieved / possible if fit and achieved is not None and possible else None,
        waves=_first(longest, WAVES),
        dram_bytes_s=_mean([_first(one.metrics, DRAM_RATE) for one in launches], weights),
        issuing=issuing,
        spills=_sum([_whole(_first(one.metrics, SPILLS)) for one in launches]),
        stalls=stalls,
    )


def _blocks(metrics: Mapping[str, float]) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of blocks that fit and the resources that limit it. Return None if a limit is not reported,
    because it might be the lowest."""
    limits = {what: _whole(_first(metrics, names)) for what, names in LIMITS.items()}
    known = {what: limit for what, limit in limits.items() if limit is not None}
    if len(known) < len(limits):
        return None, ()
    least = min(known.values())
    return least, tuple(what for what, limit in known.items() if limit == least)


def _first(metrics: Mapping[str, float], names: Sequence[str]) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _shared(metrics: Mapping[str, float]) -> float | None:
    parts = [metrics[name] for name in SHARED_PARTS if name in metrics]
    return sum(parts) if len(parts) == len(SHARED_PARTS) else _first(metrics, SHARED)


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the weighted mean, or None if a value is unknown."""
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    return sum(value * weight for value, weight in zip(known, weights, strict=True)) / sum(weights)


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum, or None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _over_100(value: float | None) -> float | None:
    return None if value is None else value / 100


def _whole(value: float | None) -> int | None:
    return None if value is None or not 0 <= value < 2**53 else round(value)


def _stalls(metrics: Mapping[str, float]) -> tuple[float | None, tuple[Stall, ...]]:
    """Return the share of time spent issuing, and the other reasons for which warps wait."""
    found = {
        match["why"]: value
        for name, value in metrics.items()
        if (match := _STALL.fullmatch(name)) and "not_issued" not in name and value > 0
    }
    whole = sum(found.values()) if ISSUING in found else None
    shares = {why: value / whole if whole else None for why, value in found.items()}
    stalls = [Stall(why.replace("_", " "), found[why], shares[why]) for why in found if why != ISSUING]
    return shares.get(ISSUING), tuple(sorted(stalls, key=lambda stall: -stall.warps))
