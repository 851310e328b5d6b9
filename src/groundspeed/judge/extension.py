"""Whether a run goes on to the extra processes that it declared in case the first ones leave a verdict open."""

from __future__ import annotations

from dataclasses import replace

from groundspeed.evidence.record import Record
from groundspeed.judge.judgement import judge


def wants_extension(record: Record) -> bool:
    """Return whether a verdict is UNCLEAR after the first processes. The decision may depend on the result because
    wider intervals at both looks (`Protocol.confidence`) pay for looking twice."""
    first = record.protocol.processes
    if record.protocol.extension is None:
        return False
    before = replace(
        record,
        run=replace(record.run, extended=False),  # the state at the time of the decision
        processes=tuple(p for p in record.processes if p.process < first),
        outcomes=tuple(o for o in record.outcomes if o.process < first),
        stops=tuple(s for s in record.stops if s.process < first),
    )
    if not before.complete:
        return False
    comparisons = [result.comparison for case in judge(before).cases for result in case.results]
    return any(comparison is not None and comparison.verdict == "UNCLEAR" for comparison in comparisons)
