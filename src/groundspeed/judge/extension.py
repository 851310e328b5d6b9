"""Whether a run goes on to the processes that it declared for the case that the first ones leave something open."""

from __future__ import annotations

from dataclasses import replace

from groundspeed.evidence.record import Record
from groundspeed.judge.judgement import judge


def wants_extension(record: Record) -> bool:
    """Some verdict is UNCLEAR after the processes that come first. Looking twice is paid for by wider intervals at both
    looks (`Protocol.confidence`), so that this may depend on the result."""
    first = record.protocol.processes
    if record.protocol.extension is None:
        return False
    before = replace(
        record,
        run=replace(record.run, extended=False),  # as it stood when that was to be decided
        processes=tuple(p for p in record.processes if p.process < first),
        outcomes=tuple(o for o in record.outcomes if o.process < first),
        stops=tuple(s for s in record.stops if s.process < first),
    )
    if not before.complete:
        return False
    comparisons = [result.comparison for case in judge(before).cases for result in case.results]
    return any(comparison is not None and comparison.verdict == "UNCLEAR" for comparison in comparisons)
