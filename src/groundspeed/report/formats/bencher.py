"""The format of Bencher."""

from __future__ import annotations

import math

from groundspeed.errors import BadInput
from groundspeed.judge.judgement import Judgement
from groundspeed.report.formats.passed import Row, passed
from groundspeed.report.plain_json import dump

LONGEST = 1024
"""The most bytes of a benchmark's name. Bencher rejects a whole file if one name is longer."""


def to_bencher(judgement: Judgement, identity: str) -> str:
    """Return Bencher Metric Format: nanoseconds, calls per second and, if it has a verdict other than UNCLEAR, the
    speed-up, each with its 95% interval."""
    found: dict[str, Row] = {}
    for case, result, latency, _ in passed(judgement):
        measures = {
            "latency": _metric(*(1e9 * x for x in (latency.median, latency.low, latency.high))),
            "throughput": _metric(1 / latency.median, 1 / latency.high, 1 / latency.low),
        }
        if (c := result.comparison) and c.verdict not in (None, "UNCLEAR"):
            measures["speed-up"] = _metric(c.ratio, c.low, c.high)
        name = f"{judgement.record.run.suite}/{case.facts.name}/{result.contender}"
        if len(name.encode()) > LONGEST:
            raise BadInput(
                f"Bencher takes names of up to {LONGEST:,} bytes; {name!r:.80} is longer: use --json or --csv"
            )
        found[name] = measures
    return dump(found, indent=1)


def _metric(value: float, low: float, high: float) -> Row:
    """Return a value with its interval; a single process has none."""
    bounds = {"lower_value": low, "upper_value": high} if math.isfinite(low) and math.isfinite(high) else {}
    return {"value": value, **bounds}
