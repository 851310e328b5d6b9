"""Verification: integrity, and the replay against what this version's suites say about the cases."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from groundspeed.errors import VerificationFailed
from groundspeed.evidence import bundle
from groundspeed.evidence.record import Record, Scalar
from groundspeed.judge import replay as judge_replay
from groundspeed.lab.presets import PRESETS
from groundspeed.suites import registry


def verify(path: Path) -> tuple[bundle.Bundle, judge_replay.Replay]:
    """The bundle, if every byte is what its manifest says and every figure follows from its protocol and samples."""
    found = bundle.read(path)
    _check_preset(found.record)
    return found, judge_replay.replay(found.record, declared)


def _check_preset(record: Record) -> None:
    """A run that goes by the name of a preset looked when, and asked for the width that, the preset says."""
    protocol, preset = record.protocol, PRESETS.get(record.protocol.preset)
    if preset and (protocol.looks, protocol.half_width) != (preset.looks, preset.half_width):
        raise VerificationFailed(f"this is not the preset {protocol.preset}: its looks or its width are others")


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
