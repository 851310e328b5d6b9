"""Verification: integrity, and the replay against what this version's suites say about the cases."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from groundspeed.evidence import bundle
from groundspeed.evidence.record import Scalar
from groundspeed.judge import replay as judge_replay
from groundspeed.suites import registry


def verify(path: Path) -> tuple[bundle.Bundle, judge_replay.Replay]:
    """The bundle, if every byte is what its manifest says and every figure follows from its protocol and samples."""
    found = bundle.read(path)
    return found, judge_replay.replay(found.record, declared)


def declared(suite: str, params: dict[str, Scalar]) -> judge_replay.Declared:
    """What this version of a suite says about a case. BadInput for a suite or parameters that it does not know."""
    case = registry.suite_module(suite).case_of_params(params)
    return judge_replay.Declared(
        params=dict(case.params),
        names=frozenset({case.name, *_names(suite).get(tuple(case.params.items()), ())}),
        flops=case.work.flops,
        bytes=case.work.bytes,
        counts=dict(case.counts),
        tolerance=dict(case.tolerance),
    )


@cache
def _names(suite: str) -> dict[tuple[tuple[str, Scalar], ...], tuple[str, ...]]:
    return {tuple(case.params.items()): case.names for case in registry.suite_module(suite).all_cases()}
