"""Verification: integrity, and a replay against what this version's suites declare about the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from groundspeed.case import DEFAULT_CLOCK, Case, Contender
from groundspeed.errors import GroundspeedError, VerificationFailed
from groundspeed.evidence import bundle, store
from groundspeed.evidence.record import Record, Scalar
from groundspeed.evidence.revision import revisions_of
from groundspeed.judge import replay as judge_replay
from groundspeed.judge.declared import Declared
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.reproduction import with_repetitions
from groundspeed.lab.presets import PRESETS
from groundspeed.suites import registry


def verify(path: Path, repeating: Sequence[Path] | None = None) -> tuple[bundle.Bundle, judge_replay.Replay]:
    """Return the bundle if every byte is what its manifest says and every figure follows from its protocol and samples.
    Repetitions of its run that verify too count towards the trust in it: those in `repeating`, or by default those
    beside the bundle."""
    found, replay = _verify(path)
    others = store.that_repeat(found) if repeating is None else repeating
    repetitions = [again for other in others if (again := _repetition(other, found.identity))]
    return found, replace(replay, judgement=with_repetitions(replay.judgement, repetitions))


def made(found: bundle.Bundle) -> Judgement:
    """Return the judgement of what was just measured. If it does not verify, that is a failure of the tool, and raises
    GroundspeedError."""
    try:
        return verify(found.path)[1].judgement
    except VerificationFailed as error:
        raise GroundspeedError(f"the new bundle does not verify: {error}") from None


def _verify(path: Path) -> tuple[bundle.Bundle, judge_replay.Replay]:
    found = bundle.read(path)
    _check_preset(found.record)
    _check_device(found.record)
    return found, judge_replay.replay(found.record, declared)


def _repetition(path: Path, identity: str) -> Judgement | None:
    try:
        found, replay = _verify(path)
    except GroundspeedError:
        return None
    return replay.judgement if found.record.run.reproduces == identity else None


def _check_preset(record: Record) -> None:
    """Check that a run under the name of a preset has the looks and the half-width of that preset."""
    protocol, preset = record.protocol, PRESETS.get(record.protocol.preset)
    if preset and (protocol.looks, protocol.half_width) != (preset.looks, preset.half_width):
        raise VerificationFailed(f"the looks or the half-width are not those of preset {protocol.preset}")


def _check_device(record: Record) -> None:
    """Check that a record of a CPU has no GPU clocks, that a baseline called declared is the one that the suite
    declares, and that every contender launched the kernels that its name stands for."""
    suite = registry.suite_module(record.run.suite)
    if record.run.device == "cpu" and any("clock" in case.params for case in record.cases):
        raise VerificationFailed("a case names a clock, but a CPU has no clocks to choose from")
    if record.run.baseline_origin == "declared" and record.run.baseline != suite.BASELINE[record.run.device]:
        raise VerificationFailed(f"{record.run.baseline!r:.80} is not the declared baseline of {record.run.suite}")
    contenders = _contenders(record.run.suite)
    outcomes = {(o.case, o.contender) for o in record.outcomes if o.status == "PASSED"}
    revisions = revisions_of(record.environment)
    for seen in record.launched:
        revision = revisions.get(seen.contender)
        known = contenders.get(revision.contender if revision else seen.contender)
        if known and (seen.case, seen.contender) in outcomes and (why := known.launches(seen.kernels)):
            raise VerificationFailed(f"{seen.case}, {seen.contender}: {why}")


@cache
def _contenders(suite: str) -> dict[str, Contender]:
    return {contender.name: contender for contender in registry.suite_module(suite).contenders()}


def declared(suite: str, params: dict[str, Scalar]) -> Declared:
    """Return what this version of a suite declares about a case. BadInput for an unknown suite or unknown
    parameters."""
    case = registry.suite_module(suite).case_of_params(params)
    return Declared(
        params=dict(case.params),
        names=frozenset({case.name, *_names(suite, case)}),
        flops=case.work.flops,
        bytes=case.work.bytes,
        counts=dict(case.counts),
        tolerance=dict(case.tolerance),
        experts=(case.experts.number, case.experts.choices) if case.experts else None,
    )


def _names(suite: str, case: Case) -> list[str]:
    """Return the suite's names for this shape, with the case's clock at the end."""
    clock = "" if case.clock == DEFAULT_CLOCK else f"@{case.clock}"
    names = _named_shapes(suite).get(tuple((k, v) for k, v in case.params.items() if k != "clock"), ())
    return [f"{name}{clock}" for name in names]


@cache
def _named_shapes(suite: str) -> dict[tuple[tuple[str, Scalar], ...], tuple[str, ...]]:
    return {tuple(case.params.items()): case.names for case in registry.suite_module(suite).all_cases()}
