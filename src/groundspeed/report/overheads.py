"""What a run tells of launching, copying and fusing (requirement B4)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from groundspeed.judge.copies import CopyShare, copy_shares
from groundspeed.judge.fusion import APART, FUSED, SUITE, WANTED, Fusion, fusions
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.launches import LaunchOverhead, launch_overheads
from groundspeed.judge.statistics import Interval
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.rows import CASE, CONTENDER, numbers, with_bounds

TITLE = "Overheads"
ALL_CASES = "geometric mean"
LAUNCHES = (
    "Eager calls back to back, as a caller sees them, less the same work replayed from a CUDA graph: the medians of "
    "each process, with a 95% interval over the processes. For each launch it is divided by all that one call gives to "
    "the device. Where the device works longer than the host takes to launch, it hides that: then there is none."
)
COPIES = (
    "Of one call that PyTorch's profiler watched before anything was timed: the time of all that the device did, and "
    "of what only copies, converts or fills, known by its name (the driver's copies and sets, PyTorch's kernels that "
    "copy, fill and concatenate, compiled ones of nothing else, ours that appends to pages). Waits are in neither."
)
FUSION = (
    f"Speed against {APART}, in a CUDA graph, where launching plays no role. The products of both are cuBLAS's and "
    f"the attention of both is one kernel; norms, residual sums and activations are kernels of their own in {APART}. "
    "The interval goes over processes. No verdict: it is told beside the family that is judged."
)


class Part(NamedTuple):
    table: Table
    why: str
    """What is said where it has no rows."""


def parts(judgement: Judgement) -> list[Part]:
    """Launches, copies, fusion: all of them of whole models, of other work those that have rows."""
    found = [
        Part(_launches(launch_overheads(judgement)), _no_launches(judgement)),
        Part(_copies(copy_shares(judgement)), _no_copies(judgement)),
        Part(_fusion(fusions(judgement)), _no_fusion(judgement)),
    ]
    return [part for part in found if part.table.rows or judgement.record.run.suite == SUITE]


def _on_cpu(judgement: Judgement) -> bool:
    return judgement.record.run.device == "cpu"


def _no_launches(judgement: Judgement) -> str:
    if _on_cpu(judgement):
        return "Nothing is launched on a CPU: there is no overhead of it."
    return "Nobody passed a case both by eager calls and in a CUDA graph; --clock eager,graph measures both."


def _no_copies(judgement: Judgement) -> str:
    if _on_cpu(judgement):
        return "Of a CPU the run does not tell what only copies; a profile does (groundspeed profile)."
    return "The record has no time of single kernels: it is older, or nobody could be watched."


def _no_fusion(judgement: Judgement) -> str:
    if _on_cpu(judgement):
        return "It is told by times in CUDA graphs, which a CPU does not have."
    return f"No case in a CUDA graph was passed both by {APART} and by {' or '.join(FUSED)}."


def _launches(found: Sequence[LaunchOverhead]) -> Table:
    body = [
        [
            one.case.name,
            one.contender,
            text.seconds(one.eager.median),
            text.seconds(one.graph.median),
            text.seconds(one.seconds.mean),
            _bounds(one.seconds),
            text.NOTHING if one.launches is None else f"{one.launches:,}",
            text.NOTHING if one.each_s is None or one.each_s < 0 else text.seconds(one.each_s),
            text.share(one.share) if one.share >= 0 else text.NOTHING,
        ]
        for one in found
    ]
    headings = ("eager", "in a graph", "launch overhead", "95% interval", "launches", "each", "of the eager time")
    return Table("Launch overhead", (CASE, CONTENDER, *numbers(*headings)), body, LAUNCHES)


def _bounds(seconds: Interval) -> str:
    """In the unit of the middle; below 0 there may be none."""
    if seconds.n < 2:
        return text.NOTHING
    size, _ = text.time_unit(seconds.mean)
    return " to ".join(text.significant(bound / size) for bound in (seconds.low, seconds.high))


def _copies(found: Sequence[CopyShare]) -> Table:
    body = [
        [
            one.case.name,
            one.contender,
            f"{one.launches:,}",
            text.seconds(one.seconds),
            f"{one.copies:,}",
            text.seconds(one.copies_s) if one.copies else text.NOTHING,
            text.share(one.share),
        ]
        for one in found
    ]
    headings = ("launches", "time of the device", "copies", "time of copies", "copies of the time")
    return Table("Copies", (CASE, CONTENDER, *numbers(*headings)), body, COPIES)


def _fusion(found: Sequence[Fusion]) -> Table:
    words = {True: "yes", False: "no", None: "not determined"}
    body = [
        [
            one.case.name if one.case else ALL_CASES,
            one.contender,
            *with_bounds(one.theta),
            words[one.enough],
        ]
        for one in found
    ]
    over = Column(f"over {WANTED - 1:.0%}", choose=True, word=True)
    columns = (CASE, CONTENDER, *numbers(f"against {APART}", "95% interval"), over)
    return Table("Fusion", columns, body, FUSION)


def plain(judgement: Judgement) -> dict[str, list[dict[str, Any]]]:
    """As data."""
    return {
        "launches": [
            {
                "case": one.case.name,
                "contender": one.contender,
                "eager_s": one.eager.median,
                "graph_s": one.graph.median,
                "overhead_s": one.seconds.mean,
                **_ends("overhead_{}_s", one.seconds.low, one.seconds.high),
                "launches": one.launches,
                "overhead_per_launch_s": one.each_s,
            }
            for one in launch_overheads(judgement)
        ],
        "copies": [{"case": one.case.name, **_but_case(one), "share": one.share} for one in copy_shares(judgement)],
        "fusion": [
            {
                "case": one.case.name if one.case else None,
                "contender": one.contender,
                "against": APART,
                "speed_up": one.ratio,
                **_ends("speed_up_{}", *map(_exp, (one.theta.low, one.theta.high))),
            }
            for one in fusions(judgement)
        ],
    }


def _but_case(one: CopyShare) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "case"}


def _exp(bound: float) -> float:
    return math.exp(min(bound, 700.0)) if math.isfinite(bound) else bound


def _ends(key: str, low: float, high: float) -> dict[str, float | None]:
    """Without an interval, nothing."""
    known = math.isfinite(low) and math.isfinite(high)
    return {key.format(name): bound if known else None for name, bound in (("low", low), ("high", high))}
