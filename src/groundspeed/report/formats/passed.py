"""The input of every format: the contenders that passed, with their times, and values from the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groundspeed.judge.figures import Latency
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.verdict import Comparison
from groundspeed.report.text import safe

Row = dict[str, Any]


class Passed(NamedTuple):
    """A contender that passed a case, with its figures."""

    case: CaseJudgement
    result: Result
    latency: Latency
    seconds: tuple[tuple[float, ...], ...]
    """Seconds per call, by process."""

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
    """Return the number or text at a key of the environment, else None. A bundle may have anything in it."""
    found = environment.get(part)
    value = found.get(key) if isinstance(found, Mapping) else None
    return value if isinstance(value, (int, float)) else safe(value) if isinstance(value, str) else None


def whole(environment: Mapping[str, Any], part: str, key: str) -> int:
    """Return the positive integer at a key of the environment, else 0."""
    value = known(environment, part, key)
    return value if type(value) is int and 0 < value < 1 << 63 else 0


def small(value: int) -> int:
    """Return a value that fits an unsigned 32-bit integer, else 0."""
    return value if value < 1 << 32 else 0


def verdict(comparison: Comparison | None) -> dict[str, str]:
    if comparison is None:
        return {}
    return {"verdict": comparison.verdict or "not judged", "reason": safe(comparison.reason)}
