"""What every format is given: the contenders that passed, with their times, and what the environment says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.verdict import Comparison
from groundspeed.report.text import safe

Row = dict[str, Any]


class Passed(NamedTuple):
    """A contender on a case, with figures."""

    case: CaseJudgement
    result: Result
    latency: Latency
    seconds: tuple[tuple[float, ...], ...]
    """Of a call, by process."""

    @property
    def all_seconds(self) -> list[float]:
        return [second for process in self.seconds for second in process]


def passed(judgement: Judgement) -> Iterator[Passed]:
    record = judgement.record
    for case in judgement.cases:
        for result in case.results:
            if result.status == "PASSED" and result.latency:
                keys = [(process, case.facts.name, result.contender) for process in sorted(record.finished_attempts)]
                seconds = tuple(tuple(record.seconds[key].values()) for key in keys if key in record.seconds)
                yield Passed(case, result, result.latency, seconds)


def known(environment: Mapping[str, Any], part: str, key: str) -> Any:
    """What the environment says there, None where it says nothing; a bundle may have anything in it."""
    found = environment.get(part)
    value = found.get(key) if isinstance(found, Mapping) else None
    return value if isinstance(value, (int, float)) else safe(value) if isinstance(value, str) else None


def whole(environment: Mapping[str, Any], part: str, key: str) -> int:
    """A number of things there, 0 where there is none."""
    value = known(environment, part, key)
    return value if type(value) is int and 0 < value < 1 << 63 else 0


def small(value: int) -> int:
    """As 32 bits hold it, without a sign; 0 where they do not."""
    return value if value < 1 << 32 else 0


def verdict(comparison: Comparison | None) -> dict[str, str]:
    if comparison is None:
        return {}
    return {"verdict": comparison.verdict or "not judged", "reason": safe(comparison.reason)}
