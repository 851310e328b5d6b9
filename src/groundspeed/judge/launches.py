"""Launch overhead (requirement B4), as far as times from outside show it: how much of an eager call a CUDA graph saves,
and an upper bound on how long the host is busy with one launch.

The saving is not the cost of launching. Calls back to back take as long as the slower of host and device, so a graph
saves little on a slow kernel. It describes the call and does not rank contenders. The bound holds because the host is
busy no longer than the calls last."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import NamedTuple

from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.statistics import Interval, t_interval
from groundspeed.judge.timers import Shape, shape_of

EAGER, GRAPH = "eager", "graph"
MOST_S = 50e-6
"""The most that a launch may take, by the specification."""


class Graphed(NamedTuple):
    """The same work in a CUDA graph."""

    seconds: Interval
    saved: Interval
    """The eager time less the time in the graph. Below 0 the graph is slower."""
    share: Interval
    """The saving divided by the eager time, computed in each process."""


@dataclass(frozen=True)
class LaunchOverhead:
    """The overhead of one contender on one shape that it passed by eager calls. All means are over process medians, so
    that the eager time less the graph time is exactly what is saved."""

    case: CaseFacts
    """The case with the eager clock."""
    contender: str
    eager: Interval
    graph: Graphed | None
    """None if the contender did not pass in a graph. In that case the eager time is over all processes, else over those
    that have both times."""
    launches: int | None
    """Launches per call, including copies and sets; None if they were not counted."""

    @property
    def each(self) -> Interval | None:
        """An upper bound on how long the host is busy with one launch, with the bound's interval."""
        if not self.launches:
            return None
        low, high, mean, sd = (
            x / self.launches for x in (self.eager.low, self.eager.high, self.eager.mean, self.eager.sd)
        )
        return replace(self.eager, low=low, high=high, mean=mean, sd=sd)


def launch_overheads(judgement: Judgement) -> tuple[LaunchOverhead, ...]:
    """Return the launch overhead of each contender that passed, in the order of the eager cases."""
    record = judgement.record
    graphs = {shape_of(case.facts): case for case in judgement.cases if case.clock == GRAPH}
    seen, found = seen_of(record), []
    for case in (case for case in judgement.cases if case.clock == EAGER):
        shape = shape_of(case.facts)
        graph = graphs.get(shape)
        for name in (result.contender for result in case.results if result.latency):
            passed = graph is not None and graph.result(name).latency is not None
            eager = _medians(record, case.facts, name)
            graphed = _medians(record, graph.facts, name) if graph and passed else {}
            launched = seen.get((shape, name))
            launches = sum(launched.times) if launched else None
            found.append(_overhead(case.facts, name, eager, graphed, launches, record.protocol.confidence))
    return tuple(found)


def seen_of(record: Record) -> dict[tuple[Shape, str], Launched]:
    """Return (shape, contender) → what one call was seen to do, whatever its clock. Only calls whose kernels were
    counted are included."""
    shapes = {case.name: shape_of(case) for case in record.cases}
    return {(shapes[seen.case], seen.contender): seen for seen in record.launched if seen.times}


def _medians(record: Record, case: CaseFacts, contender: str) -> dict[int, float]:
    """Return process → the contender's median time on the case."""
    found = {process: record.seconds.get((process, case.name, contender)) for process in record.finished_attempts}
    return {process: statistics.median(times.values()) for process, times in found.items() if times}


def _overhead(
    case: CaseFacts,
    contender: str,
    eager: dict[int, float],
    graph: dict[int, float],
    launches: int | None,
    confidence: float,
) -> LaunchOverhead:
    both = sorted(eager.keys() & graph.keys())
    if not both:
        return LaunchOverhead(case, contender, t_interval([*eager.values()], confidence), None, launches)
    graphed = Graphed(
        seconds=t_interval([graph[p] for p in both], confidence),
        saved=t_interval([eager[p] - graph[p] for p in both], confidence),
        share=t_interval([1 - graph[p] / eager[p] for p in both], confidence),
    )
    return LaunchOverhead(case, contender, t_interval([eager[p] for p in both], confidence), graphed, launches)
