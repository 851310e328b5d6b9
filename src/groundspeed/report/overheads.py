"""What a run shows about launching, copying and fusing (requirement B4)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from groundspeed.judge.copies import CopyShare, copy_shares
from groundspeed.judge.fusion import APART, FEW, FUSED, SUITE, WANTED, Fusion, fusions
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.launches import Graphed, LaunchOverhead, launch_overheads
from groundspeed.judge.statistics import Interval
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.rows import CASE, CONTENDER, numbers, with_bounds

TITLE = "Overheads"
ALL_CASES = "geometric mean"
LAUNCHES = (
    "Eager calls back to back, as a caller sees them, and the same work replayed from a CUDA graph: means of the "
    "process medians, with 95% intervals over processes. What a graph saves is not the cost of launching, and a "
    "smaller saving is not better: calls last as long as the slower of host and device, so a graph saves little on a "
    "slow kernel. The host time per launch is at most the eager time over the launches in a call (including copies and "
    "sets), because the host is busy no longer than the calls last; how much lower it is, these times do not show."
)
COPIES = (
    "From one call that PyTorch's profiler watched before anything was timed: the time of everything that the device "
    "did, and of whatever only copies, converts or fills, recognised by name (the driver's copies and sets, PyTorch's "
    "kernels that copy, fill and concatenate, compiled kernels that do nothing else, our kernel that appends to "
    "pages). Neither includes waits."
)
FUSION = (
    f"Speed against {APART}, which has a separate kernel for each norm, residual sum and activation, in a CUDA graph, "
    "where launching plays no role. It is the gain of the whole block over separate kernels, not of fusion alone, "
    f"because each side also has its own attention. Only prompts of more than {FEW} count; decoding steps "
    "do not, because ours multiplies with a different kernel there. The mean over all cases, with its interval over "
    "processes, decides whether the gain is enough. This is not a verdict: it is outside the family that is judged."
)


class Part(NamedTuple):
    table: Table
    why: str
    """The sentence that explains why the table has no rows."""


def parts(judgement: Judgement) -> list[Part]:
    """Return the parts about launches, copies and fusion: all three for whole models, otherwise those with rows."""
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
        return "Nothing is launched on a CPU, so there is no launch overhead."
    return "No contender passed a case with eager calls; --clock eager,graph measures eager calls and CUDA graphs."


def _no_copies(judgement: Judgement) -> str:
    if _on_cpu(judgement):
        return "A run on a CPU does not record copies; a profile does (groundspeed profile)."
    return "The record has no times of single kernels: it is from an older version, or no contender could be watched."


def _no_fusion(judgement: Judgement) -> str:
    if _on_cpu(judgement):
        return "It is measured in CUDA graphs, which a CPU does not have."
    return f"No prompt of more than {FEW} was passed in a CUDA graph by both {APART} and {' or '.join(FUSED)}."


def _launches(found: Sequence[LaunchOverhead]) -> Table:
    body = [
        [
            one.case.name,
            one.contender,
            text.seconds(one.eager.mean),
            *_graphed(one.graph),
            text.NOTHING if one.launches is None else f"{one.launches:,}",
            *((text.seconds(one.each.mean), _bounds(one.each)) if one.each else [text.NOTHING] * 2),
        ]
        for one in found
    ]
    headings = ("eager", "in a graph", "saved by a graph", "95% interval", "share of eager time", "launches")
    bound = ("host time per launch, at most", "95% interval of that")
    return Table("Launch overhead", (CASE, CONTENDER, *numbers(*headings, *bound)), body, LAUNCHES)


def _graphed(graph: Graphed | None) -> list[str]:
    if graph is None:
        return [text.NOTHING] * 4
    return [
        text.seconds(graph.seconds.mean),
        text.seconds(graph.saved.mean),
        _bounds(graph.saved),
        text.share(graph.share.mean),
    ]


def _bounds(seconds: Interval) -> str:
    """Return the ends of an interval in the unit of its mean. Below 0, a graph takes longer."""
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
    headings = ("launches", "device time", "copies", "copy time", "share of time in copies")
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
    """Return the same as data."""
    return {
        "launches": [
            {
                "case": one.case.name,
                "contender": one.contender,
                "eager_s": one.eager.mean,
                **_with_ends("graph{}_s", one.graph.seconds if one.graph else None),
                **_with_ends("taken_away{}_s", one.graph.saved if one.graph else None),
                **_with_ends("taken_away{}_share", one.graph.share if one.graph else None),
                "launches": one.launches,
                **_with_ends("launch_at_most{}_s", one.each),
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


def _with_ends(key: str, found: Interval | None) -> dict[str, float | None]:
    low, high = (found.low, found.high) if found else (math.nan, math.nan)
    return {key.format(""): found.mean if found else None, **_ends(key.replace("{}", "_{}"), low, high)}


def _ends(key: str, low: float, high: float) -> dict[str, float | None]:
    """Return both ends, or None for each if there is no interval."""
    known = math.isfinite(low) and math.isfinite(high)
    return {key.format(name): bound if known else None for name, bound in (("low", low), ("high", high))}
