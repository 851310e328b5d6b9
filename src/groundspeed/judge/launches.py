"""What launching costs (requirement B4): eager calls as a caller sees them, less the same work replayed from a CUDA
graph, which the device begins by itself."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.statistics import Interval, t_interval
from groundspeed.judge.timers import Shape, shape_of

EAGER, GRAPH = "eager", "graph"


@dataclass(frozen=True)
class LaunchOverhead:
    """Of one contender on one shape, where it passed by both clocks."""

    case: CaseFacts
    """By eager calls."""
    contender: str
    eager: Latency
    graph: Latency
    seconds: Interval
    """By how much a call waits longer: of each process its medians, and the interval over these differences."""
    launches: int | None
    """In a call, copies and sets among them; None where nobody counted."""

    @property
    def share(self) -> float:
        """Of the eager time."""
        return self.seconds.mean / self.eager.median

    @property
    def each_s(self) -> float | None:
        """For each launch."""
        return self.seconds.mean / self.launches if self.launches else None


def launch_overheads(judgement: Judgement) -> tuple[LaunchOverhead, ...]:
    """In the order of the eager cases."""
    graphs = {shape_of(case.facts): case for case in judgement.cases if case.clock == GRAPH}
    seen = seen_of(judgement.record)
    found = []
    for case in judgement.cases:
        graph = graphs.get(shape_of(case.facts)) if case.clock == EAGER else None
        for contender in judgement.record.measured if graph else ():
            launched = seen.get((shape_of(case.facts), contender.name))
            if graph and (one := _overhead(judgement.record, case, graph, contender.name, launched)):
                found.append(one)
    return tuple(found)


def seen_of(record: Record) -> dict[tuple[Shape, str], Launched]:
    """(shape, contender) → what one call was seen to do, by whatever clock it is measured; of those alone whose kernels
    were counted."""
    shapes = {case.name: shape_of(case) for case in record.cases}
    return {(shapes[seen.case], seen.contender): seen for seen in record.launched if seen.times}


def _overhead(
    record: Record, eager: CaseJudgement, graph: CaseJudgement, contender: str, seen: Launched | None
) -> LaunchOverhead | None:
    a, b = eager.result(contender).latency, graph.result(contender).latency
    if a is None or b is None:
        return None
    apart = []
    for process in sorted(record.finished_attempts):
        times = [record.seconds.get((process, case.facts.name, contender), {}) for case in (eager, graph)]
        if all(times):
            slow, fast = (statistics.median(some.values()) for some in times)
            apart.append(slow - fast)
    if not apart:
        return None
    seconds = t_interval(apart, record.protocol.confidence)
    return LaunchOverhead(eager.facts, contender, a, b, seconds, sum(seen.times) if seen else None)
