"""More processes, if declared beforehand (statistics.md 8): wider intervals at both looks, taken only when UNCLEAR."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import begin, continue_run, header
from groundspeed.errors import BadInput, VerificationFailed
from groundspeed.evidence.coherence import from_facts
from groundspeed.evidence.journal import from_record, to_record
from groundspeed.evidence.protocol import FIRST_NAME
from groundspeed.evidence.record import Record
from groundspeed.evidence.tables import to_facts
from groundspeed.judge.extension import wants_extension
from groundspeed.judge.floors import default_floor
from groundspeed.judge.judgement import judge
from groundspeed.judge.replay import replay
from groundspeed.judge.statistics import t_interval
from groundspeed.judge.verdict import compare, judge_family
from groundspeed.lab.check import declared
from records import MEANS, centres, interrupted, run

SHAPE = ("B=1,S=64,causal=0",)


def uneven(process_spread: float, gain: float) -> Any:
    """Times of `ours` that differ from process to process: the worker's number is seen by its first sample."""
    calls = {"n": 0}

    def seconds(contender: str, case: str, block: int) -> float:
        calls["n"] += 1
        process = calls["n"] // 20
        wobble = process_spread * math.sin(7.3 * process + 1) + 1e-3 * math.sin(calls["n"])
        return 1e-3 if contender == "base" else 1e-3 * math.exp(wobble - gain)

    return seconds


@pytest.fixture(scope="module")
def open_run() -> Record:
    """A difference too small for four processes."""
    return run(uneven(0.03, 0.02), list(MEANS), shapes=SHAPE, extension=8)


def test_a_run_with_a_clear_verdict_ends_at_once() -> None:
    record = run(MEANS, extension=8)
    assert (len(record.processes), record.run.extended, record.complete) == (4, False, True)
    replay(record, declared)


def test_an_extension_that_was_needed_cannot_be_dropped(open_run: Record) -> None:
    first = interrupted(open_run, 4)
    with pytest.raises(VerificationFailed, match="not extended"):
        replay(replace(first, run=replace(first.run, extended=False)), declared)
    undecided = replace(first, run=replace(first.run, extended=None))
    replay(undecided, declared)
    assert not undecided.complete


@pytest.mark.parametrize("change", [{"processes": 4, "extension": None}, {"extension": None}])
def test_a_declaration_cannot_be_changed_afterwards(open_run: Record, change: dict[str, Any]) -> None:
    """Every draw depends on it."""
    first = interrupted(open_run, 4)
    forged = replace(first, protocol=replace(first.protocol, **change), run=replace(first.run, extended=None))
    with pytest.raises(VerificationFailed, match="not the one its seed draws"):
        replay(forged, declared)


def test_one_that_is_unclear_goes_on(open_run: Record) -> None:
    assert (len(open_run.processes), open_run.run.extended, open_run.complete) == (8, True, True)
    replay(open_run, declared)
    comparison = judge(open_run).cases[0].result("ours").comparison
    assert comparison is not None
    assert comparison.interval.n == 8


def test_without_a_declaration_it_does_not() -> None:
    record = run(uneven(0.03, 0.02), list(MEANS), shapes=SHAPE)
    assert (len(record.processes), record.complete) == (4, True)
    assert not wants_extension(record)


@pytest.mark.parametrize(("processes", "extension", "confidence"), [(4, 8, 0.97), (8, 16, 0.965)])
def test_both_looks_have_wider_intervals(processes: int, extension: int, confidence: float) -> None:
    record = run(MEANS, processes=processes, extension=extension)
    assert record.protocol.confidence == confidence
    for case in judge(record).cases:
        comparison = case.result("ours").comparison
        assert comparison is not None
        thetas = [centre.theta.mean for centre in comparison.centres]
        assert comparison.interval == t_interval(thetas, confidence)
        assert comparison.interval.half_width > t_interval(thetas).half_width


def test_the_level_of_the_tests_is_that_of_the_intervals() -> None:
    """p between 0.03 and 0.05 is a difference without a second look, and none with one."""
    base = run(MEANS, shapes=SHAPE)
    for extension, alpha in ((None, 0.05), (8, 0.03)):
        record = replace(base, protocol=replace(base.protocol, extension=extension))
        assert judge(record).grids[0].alpha == pytest.approx(alpha)


def test_an_extension_nobody_needed_does_not_verify() -> None:
    eight = run(MEANS, processes=8, shapes=SHAPE, name=FIRST_NAME)
    forged = replace(
        eight, protocol=replace(eight.protocol, processes=4, extension=8), run=replace(eight.run, extended=True)
    )
    with pytest.raises(VerificationFailed, match="extended"):
        replay(forged, declared)


@pytest.mark.parametrize("finished", range(8))
def test_interrupted_anywhere_it_goes_on_to_the_same_end(open_run: Record, tmp_path: Path, finished: int) -> None:
    part = interrupted(open_run, finished)
    if finished <= 4:
        part = replace(part, run=replace(part.run, extended=None))
    assert not part.complete  # after four the decision is missing
    journal = begin(tmp_path, header(list(MEANS), shapes=SHAPE, extension=8))
    for event in from_record(part)[1:]:
        kind = event.pop("kind")
        journal.write(kind, **event)
    journal.close()
    ended = continue_run(tmp_path, uneven(0.03, 0.02))
    assert ended.complete
    replay(ended, declared)


def test_a_record_survives_its_journal(open_run: Record) -> None:
    assert to_facts(to_record(from_record(open_run), "journal")) == to_facts(open_run)


@pytest.mark.parametrize("extension", [4, 7, 16, 0, -8])
def test_only_the_extensions_that_were_studied(extension: int) -> None:
    with pytest.raises(ValueError, match="extension"):
        run(MEANS, extension=extension)


def test_extended_without_a_declaration_is_refused() -> None:
    record = run(MEANS, shapes=SHAPE)
    facts = to_facts(record)
    facts["run"]["extended"] = True
    with pytest.raises(BadInput, match="no extension"):
        from_facts(facts, record.samples, "file")


def test_a_difference_between_the_two_levels_counts_without_a_second_look_only() -> None:
    """p = 0.04 of one comparison: under 0.05, over the 0.03 of a run that may be extended."""
    thetas = [0.05 + x * _factor_for(0.04) for x in (-0.03, 0, 0.03, 0)]
    assert t_interval(thetas).p == pytest.approx(0.04)
    made = [compare("ours", "base", centres(*thetas), default_floor(1e-3), confidence) for confidence in (0.95, 0.97)]
    plain, extended = (judge_family([c], 4, (), alpha)[0] for c, alpha in zip(made, (0.05, 0.03), strict=True))
    assert (plain.verdict, extended.verdict) == ("FASTER", "UNCLEAR")


def _factor_for(p: float) -> float:
    """How far the four thetas must be spread for their mean to have this p."""
    low, high = 0.1, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if t_interval([0.05 + x * middle for x in (-0.03, 0, 0.03, 0)]).p < p else (low, middle)
        )
    return low


def test_latencies_have_the_intervals_of_the_protocol() -> None:
    plain = run(MEANS, shapes=SHAPE)
    widths = []
    for record in (plain, replace(plain, protocol=replace(plain.protocol, extension=8))):
        latency = judge(record).cases[0].result("ours").latency
        assert latency is not None
        widths.append(latency.high / latency.low)
    assert widths[1] > widths[0]
