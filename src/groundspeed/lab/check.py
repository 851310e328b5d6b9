"""Verification: integrity, and the replay against what this version's suites say about the cases."""

from __future__ import annotations

from pathlib import Path

from groundspeed.evidence import bundle
from groundspeed.evidence.record import Scalar
from groundspeed.judge import replay as judge_replay
from groundspeed.suites import registry


def verify(path: Path) -> tuple[bundle.Bundle, judge_replay.Replay]:
    """The bundle, if every byte is what its manifest says and every figure follows from its protocol and samples."""
    found = bundle.read(path)
    return found, judge_replay.replay(found.record, declared)


def declared(suite: str, params: dict[str, Scalar]) -> judge_replay.Declared | None:
    """What this version of a suite says about a case: its work and its tolerance."""
    if suite not in registry.suite_names():
        return None
    case = registry.suite_module(suite).case_of_params(params)
    return judge_replay.Declared(case.work.flops, case.work.bytes, dict(case.counts), dict(case.tolerance))
