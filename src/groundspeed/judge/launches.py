"""What launching takes (requirement B4), as far as times from outside tell: how much of an eager call a CUDA graph
takes away, and how long the host is busy with a launch at most.

The first is not what launching costs: calls back to back last as long as the slower of host and device, so that of a
slow kernel a graph takes away little. It is a fact about the call and makes nobody better. The second is a bound: the
host is busy no longer than the calls last."""

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
"""Of a launch, by the specification."""


class Graphed(NamedTuple):
    """The same work in a CUDA graph."""

    seconds: Interval
    saved: Interval
    """What of the eager time is not in it: below 0 where a graph is slower."""
    share: Interval
    """That of the eager time, of each process its own."""


@dataclass(frozen=True)
class LaunchOverhead:
    """Of one contender on one shape that it passed by eager calls. All means are those of the medians of processes, so
    that the eager time less that in a graph is what is saved."""

    case: CaseFacts
    """By eager calls."""
    contender: str
    eager: Interval
    graph: Graphed | None
    """None where it did not pass there: then the eager time is over all processes, else over those that have both."""
    launches: int | None
    """In a call, copies and sets among them; None where nobody counted."""

    @property
    def each(self) -> Interval | None:
        """How long the host is busy with a launch at most: an upper bound, with the interval of it."""
        if not self.launches:
            return None
        low, high, mean, sd = (
            x / self.launches for x in (self.eager.low, self.eager.high, self.eager.mean, self.eager.sd)
        )
        return replace(self.eager, low=low, high=high, mean=mean, sd=sd)


def launch_overheads(judgement: Judgement) -> tuple[LaunchOverhead, ...]:
    """In the order of the eager cases."""
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
    """(shape, contender) → what one call was seen to do, by whatever clock it is measured; of those alone whose kernels
    were counted."""
    shapes = {case.name: shape_of(case) for case in record.cases}
    return {(shapes[seen.case], seen.contender): seen for seen in record.launched if seen.times}


def _medians(record: Record, case: CaseFacts, contender: str) -> dict[int, float]:
    """By process."""
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
