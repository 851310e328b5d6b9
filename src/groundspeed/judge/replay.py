"""What `verify` adds to integrity: the record is one that its own protocol would have produced.

Hashes prove that nothing changed since the bundle was written. The replay here proves that the orders were drawn
and the processes stopped as declared, that every contender was checked, and that all figures follow from the samples.
Neither proves that the samples were ever measured: only running again does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from groundspeed.errors import VerificationFailed
from groundspeed.evidence.protocol import NAME, draw
from groundspeed.evidence.record import TIMED, Record, Scalar, Stop
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.stopping import Times, should_stop


@dataclass(frozen=True)
class Declared:
    """What a suite says about a case, whoever measured it."""

    flops: int
    bytes: int
    counts: dict[str, int]
    tolerance: dict[str, float]


DeclaredOf = Callable[[str, dict[str, Scalar]], Declared | None]
"""By suite and parameters; None for a suite that this version does not know."""


@dataclass(frozen=True)
class Replay:
    judgement: Judgement
    blocks: int
    stops: int
    figures: int


def replay(record: Record, declared_of: DeclaredOf | None = None) -> Replay:
    """Replay a record, or VerificationFailed with the first thing that does not follow from its protocol."""
    if record.protocol.name != NAME:
        raise VerificationFailed(
            f"the protocol {record.protocol.name!r:.40} is unknown here; this version replays {NAME}"
        )
    if declared_of:
        _check_declared(record, declared_of)
    blocks = _check_orders(record)
    _check_stops(record)
    _check_outcomes(record)
    judgement = judge(record)
    return Replay(judgement, blocks, len(record.stops), _count_figures((judgement.cases, judgement.grids)))


def _check_declared(record: Record, declared_of: DeclaredOf) -> None:
    """FLOPs, bytes, counts and tolerances are those of the shape: a bundle cannot buy TFLOP/s by claiming more work."""
    for case in record.cases:
        declared = declared_of(record.run.suite, dict(case.params))
        if declared is None:
            continue
        for name in ("flops", "bytes", "counts", "tolerance"):
            said, is_ = getattr(case, name), getattr(declared, name)
            if said != is_:
                raise VerificationFailed(f"{case.name}: the record says {name} {said}, its shape has {is_}")


def _check_orders(record: Record) -> int:
    """Every block ran its contenders in the drawn order; returns the number of blocks."""
    columns, names = record.samples, [c.name for c in record.measured]
    contenders = [c.name for c in record.contenders]
    timed = columns["phase"] == TIMED
    keys = ("process", "attempt", "case", "block", "position", "contender")
    ran: dict[tuple[int, int, int, int], list[tuple[int, str]]] = {}
    for process, attempt, case, block, position, contender in zip(
        *(columns[k][timed].tolist() for k in keys), strict=True
    ):
        ran.setdefault((process, attempt, case, block), []).append((position, contenders[contender]))
    for (process, attempt, case, block), entries in ran.items():
        name = record.cases[case].name
        order = draw(record.protocol.seed, names, process, attempt, name, block)
        expected = [(position, who) for position, who in enumerate(order) if who in {e[1] for e in entries}]
        if sorted(entries) != expected:
            raise VerificationFailed(
                f"process {process}, {name}, block {block}: the order is not the one its seed draws"
            )
    return len(ran)


def _check_stops(record: Record) -> None:
    """Every finished process stopped on every case when, and only when, its protocol says."""
    stops = {(s.process, s.attempt, s.case): s for s in record.stops}
    if len(stops) != len(record.stops):
        raise VerificationFailed("a process stopped twice on one case")
    for process, attempt in record.finished_attempts.items():
        for case in record.cases:
            stop = stops.get((process, attempt, case.name))
            if stop is None:
                raise VerificationFailed(f"process {process} is said to be finished and never stopped on {case.name}")
            _check_stop(record, stop)


def _check_stop(record: Record, stop: Stop) -> None:
    where = f"process {stop.process}, {stop.case}"
    times: Times = {c.name: record.seconds.get((stop.process, stop.case, c.name), {}) for c in record.measured}
    taken = max((block + 1 for of in times.values() for block in of), default=0)
    if taken > stop.blocks:
        raise VerificationFailed(f"{where}: {taken} blocks were taken after it stopped at {stop.blocks}")
    for blocks in sorted({*(look for look in record.protocol.looks if look < stop.blocks), stop.blocks}):
        pairs = _pairs_alive(record, stop, blocks)
        seen = {name: {b: s for b, s in of.items() if b < blocks} for name, of in times.items()}
        # Time is known for the stop alone; at an earlier look the budget was not spent, or it would have ended there.
        elapsed = stop.elapsed_s if blocks == stop.blocks else 0.0
        why = should_stop(record.protocol, blocks, seen, pairs, elapsed)
        if blocks < stop.blocks and why is not None:
            raise VerificationFailed(
                f"{where}: its protocol stops it at block {blocks} ({why}), it went on to {stop.blocks}"
            )
        everyone_fell = blocks == stop.blocks and not _alive(record, stop, blocks)
        if blocks == stop.blocks and why != stop.why and not (everyone_fell and stop.why == "no pair left"):
            raise VerificationFailed(
                f"{where}: stopped at block {blocks} for {stop.why!r}, its protocol says {why or 'go on'!r}"
            )


def _alive(record: Record, stop: Stop, blocks: int) -> set[str]:
    """The contenders still measured after this many blocks."""
    alive = set()
    for o in record.outcomes:
        if (o.process, o.attempt, o.case) == (stop.process, stop.attempt, stop.case):
            fell_at = o.block if o.status != "PASSED" else None
            if o.status == "PASSED" or (fell_at is not None and fell_at >= blocks):
                alive.add(o.contender)
    return alive


def _pairs_alive(record: Record, stop: Stop, blocks: int) -> list[tuple[str, str]]:
    alive, baseline = _alive(record, stop, blocks), record.run.baseline
    return [(c, baseline) for c in record.run.judged if c in alive and c != baseline and baseline in alive]


def _check_outcomes(record: Record) -> None:
    """Every contender has an outcome on every case of a finished process, and a passed one was checked and timed."""
    outcomes = {
        (o.process, o.case, o.contender): o
        for o in record.outcomes
        if record.finished_attempts.get(o.process) == o.attempt
    }
    columns = record.samples
    checked = columns["checked"] == 1
    were_checked = set(
        zip(*(columns[k][checked].tolist() for k in ("process", "attempt", "case", "contender")), strict=True)
    )
    blocks = {(s.process, s.attempt, s.case): s.blocks for s in record.stops}
    for process, attempt in record.finished_attempts.items():
        for i, case in enumerate(record.cases):
            for contender in record.measured:
                where = f"process {process}, {case.name}, {contender.name}"
                outcome = outcomes.get((process, case.name, contender.name))
                if outcome is None:
                    raise VerificationFailed(f"{where}: how it ended is missing")
                if outcome.status != "PASSED":
                    continue
                j = record.contender_index[contender.name]
                if (process, attempt, i, j) not in were_checked:
                    raise VerificationFailed(f"{where}: no timed call was checked against the oracle")
                samples = record.seconds.get((process, case.name, contender.name), {})
                lost = _blocks_lost(record, process, attempt, case.name)
                if not set(range(blocks[process, attempt, case.name])) - lost <= set(samples):
                    raise VerificationFailed(f"{where}: samples are missing")
                _check_errors(case.tolerance, outcome, where)


def _blocks_lost(record: Record, process: int, attempt: int, case: str) -> set[int]:
    """Blocks that were cut short because a contender took the worker with it."""
    return {
        o.block
        for o in record.outcomes
        if (o.process, o.attempt, o.case) == (process, attempt, case) and o.status != "PASSED" and o.block is not None
    }


def _check_errors(tolerance: Mapping[str, float], outcome: Any, where: str) -> None:
    for name, bound in tolerance.items():
        value = getattr(outcome, name, None)
        if value is None or value > bound:
            raise VerificationFailed(f"{where}: PASSED, with {name} {value} over its tolerance of {bound}")


def _count_figures(value: Any) -> int:
    """How many numbers a judgement holds: what a verification recomputed."""
    if is_dataclass(value) and not isinstance(value, type):
        return sum(_count_figures(getattr(value, f.name)) for f in fields(value))
    if isinstance(value, Mapping):
        return sum(map(_count_figures, value.values()))
    if isinstance(value, (tuple, list)):
        return sum(map(_count_figures, value))
    return int(isinstance(value, (int, float, np.number)) and not isinstance(value, bool))
