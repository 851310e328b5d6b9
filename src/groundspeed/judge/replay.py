"""What `verify` checks beyond integrity: that the protocol of a record could have produced this record.

Hashes prove that nothing has changed since the bundle was written. The replay proves that the orders were drawn
and the processes stopped as declared, that every contender was checked, and that all figures follow from the samples.
Neither proves that the samples were ever measured: only another run can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np

from groundspeed.errors import VerificationFailed
from groundspeed.evidence.protocol import NAMES, draw
from groundspeed.evidence.record import Outcome, Record, Stop
from groundspeed.evidence.samples import SEQUENTIAL, TIMED
from groundspeed.judge.declared import DeclaredOf, check_declared, check_usage
from groundspeed.judge.extension import wants_extension
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.stopping import Times, should_stop

SLACK_S = 1.1e-6
"""The most by which rounding may shift times of one clock: starts are recorded in microseconds, intervals in
nanoseconds."""


@dataclass(frozen=True)
class Replay:
    judgement: Judgement
    blocks: int
    stops: int

    @cached_property
    def figures(self) -> int:
        """How many numbers the judgement holds. Counting computes the lazy ones too."""
        return _count_figures((self.judgement.cases, self.judgement.grids))


def replay(record: Record, declared_of: DeclaredOf | None = None) -> Replay:
    """Replay a record. Raise VerificationFailed at the first thing that does not follow from its protocol."""
    if record.protocol.name not in NAMES:
        known = " and ".join(NAMES)
        raise VerificationFailed(
            f"the protocol {record.protocol.name!r:.40} is unknown here; this version replays {known}"
        )
    if declared_of:
        usage = {one.case: one for one in record.usage}
        for case in record.cases:
            declared = declared_of(record.run.suite, dict(case.params))
            check_declared(case, declared)
            if case.name in usage:
                check_usage(usage[case.name], declared)
    blocks = _check_orders(record)
    _check_times(record)
    _check_sequences(record)
    _check_stops(record)
    _check_outcomes(record)
    _check_extension(record)
    judgement = judge(record)
    stops = sum(record.finished_attempts.get(stop.process) == stop.attempt for stop in record.stops)
    return Replay(judgement, blocks, stops)


def _check_times(record: Record) -> None:
    """Check that the samples of each worker follow one another in time, in the order of the file."""
    columns = record.samples
    same = np.ones(max(0, len(columns["start"]) - 1), bool)
    for name in ("process", "attempt", "worker"):
        same &= columns[name][1:] == columns[name][:-1]
    ends = columns["start"][:-1] + columns["seconds"][:-1]
    if (columns["start"][1:][same] < ends[same] - SLACK_S).any():
        raise VerificationFailed("a sample began before the one before it had ended")


def _check_orders(record: Record) -> int:
    """Check that every block ran its contenders in the drawn order. Return the number of blocks."""
    columns, names, seed = record.samples, [c.name for c in record.measured], record.draw_seed
    contenders = [c.name for c in record.contenders]
    rows = np.flatnonzero(columns["phase"] == TIMED)
    keys = [columns[k][rows] for k in ("process", "attempt", "case", "block")]
    together = np.lexsort(keys[::-1])  # groups the rows of a block, in file order
    keys, rows = [key[together] for key in keys], rows[together]
    starts = np.flatnonzero(np.logical_or.reduce([np.diff(key, prepend=-1) != 0 for key in keys]))
    positions = columns["position"][rows].tolist()
    ran = [contenders[i] for i in columns["contender"][rows].tolist()]
    ends = np.append(starts[1:], len(rows))[: len(starts)]
    for process, attempt, case, block, start, end in zip(
        *(column.tolist() for column in (*(key[starts] for key in keys), starts, ends)), strict=True
    ):
        name = record.cases[case].name
        order, took_part = draw(seed, names, process, attempt, name, block), ran[start:end]
        expected = order if len(took_part) == len(order) else [who for who in order if who in took_part]
        if took_part != expected or positions[start:end] != [order.index(who) for who in took_part]:
            raise VerificationFailed(
                f"process {process}, {name}, block {block}: the order is not the one its seed draws"
            )
    return len(starts)


def _check_extension(record: Record) -> None:
    """Check that the declared extension was taken if and only if a verdict was UNCLEAR after the first processes."""
    if record.run.extended is not None and record.run.extended != wants_extension(record):
        what = "extended although no verdict was" if record.run.extended else "not extended although a verdict was"
        raise VerificationFailed(f"the run was {what} UNCLEAR after the first processes")


def _check_sequences(record: Record) -> None:
    """Check the sequential samples: after the blocks of a case, each contender was timed in a row, in the drawn order,
    as often as declared or until it failed."""
    columns, names, seed = record.samples, [c.name for c in record.measured], record.draw_seed
    contenders = [c.name for c in record.contenders]
    rows = columns["phase"] == SEQUENTIAL
    ran: dict[tuple[int, int, int], list[tuple[int, int, str]]] = {}
    keys = ("process", "attempt", "case", "position", "block", "contender")
    for process, attempt, case, position, number, contender in zip(
        *(columns[key][rows].tolist() for key in keys), strict=True
    ):
        ran.setdefault((process, attempt, case), []).append((position, number, contenders[contender]))
    for (process, attempt, case), entries in ran.items():
        name = record.cases[case].name
        order = draw(seed, names, process, attempt, name, "sequence")
        drawn = [(at, n, who) for at, who in enumerate(order) for n in range(record.protocol.sequential)]
        if entries != [entry for entry in drawn if entry in set(entries)]:
            raise VerificationFailed(f"process {process + 1}, {name}: its sequence is not the one its seed draws")
    blocks: dict[tuple[int, int, str], set[int]] = {}
    for stop in record.stops:
        blocks.setdefault((stop.process, stop.attempt, stop.case), set()).add(stop.blocks)
    for process, attempt in record.finished_attempts.items():
        for facts in record.cases:
            key = (process, attempt, facts.name)
            _check_sequence_is_whole(record, process, facts.name, record.outcomes_of_case.get(key, []), blocks.get(key))


def _check_sequence_is_whole(
    record: Record, process: int, case: str, outcomes: list[Outcome], blocks: set[int] | None
) -> None:
    """Check that every contender that passed has all its sequential samples, unless a contender killed the worker
    during the sequence, which begins after `blocks`, the blocks at which the process stopped on the case."""
    if blocks and any(o.lost_worker and o.block in blocks for o in outcomes):
        return
    for outcome in outcomes:
        taken = len(record.sequential_seconds.get((process, case, outcome.contender), ()))
        if outcome.status == "PASSED" and taken != record.protocol.sequential:
            raise VerificationFailed(f"process {process + 1}, {case}, {outcome.contender}: its sequence is incomplete")


def _check_stops(record: Record) -> None:
    """Check that every finished process took the cases in the drawn order and stopped on each exactly when its protocol
    says."""
    by_attempt: dict[tuple[int, int], list[Stop]] = {}
    for stop in record.stops:
        by_attempt.setdefault((stop.process, stop.attempt), []).append(stop)
    names, seed = [case.name for case in record.cases], record.draw_seed
    finished = {(p.process, p.attempt): p for p in record.processes}
    for process, attempt in record.finished_attempts.items():
        stops = by_attempt.get((process, attempt), [])
        stopped = {stop.case for stop in stops}
        if missing := [name for name in names if name not in stopped]:
            raise VerificationFailed(f"process {process} is marked as finished but never stopped on {missing[0]}")
        if len(stops) != len(names):
            raise VerificationFailed(f"process {process} stopped twice on one case")
        if [stop.case for stop in stops] != draw(seed, names, process, attempt, "cases"):
            raise VerificationFailed(f"process {process}: the order of its cases is not the one its seed draws")
        spent = 0.0
        for stop in stops:
            _check_stop(record, stop, spent)
            if stop.elapsed_s < spent:
                raise VerificationFailed(f"process {process}, {stop.case}: time ran backwards")
            spent = stop.elapsed_s
        facts = finished[process, attempt]
        if facts.finished is None or spent > facts.finished - facts.started + SLACK_S:
            raise VerificationFailed(f"process {process} measured for {spent:.1f} s, longer than it lasted")


def _check_stop(record: Record, stop: Stop, spent_s: float) -> None:
    """Check that the outcome of every contender is recorded and that the stop is where the protocol says. `spent_s` is
    the process's measuring time before this case."""
    where = f"process {stop.process}, {stop.case}"
    ended = record.outcomes_of_case.get((stop.process, stop.attempt, stop.case), [])
    if missing := {c.name for c in record.measured} - {o.contender for o in ended}:
        raise VerificationFailed(f"{where}, {min(missing)}: its outcome is missing")
    times: Times = {c.name: record.seconds.get((stop.process, stop.case, c.name), {}) for c in record.measured}
    compared = {name: times[name] for name in times if name in (record.run.baseline, *record.run.judged)}
    fell = [o.block for o in ended if o.block is not None and o.block < stop.blocks]  # a block may end without a sample
    begun = max([-1, *(block for of in times.values() for block in of), *fell]) + 1
    if stop.blocks != begun:
        raise VerificationFailed(
            f"{where}: {begun} blocks were taken, but the record says that it stopped after {stop.blocks}"
        )
    for blocks in sorted({*(look for look in record.protocol.looks if look < stop.blocks), stop.blocks}):
        alive = _alive(ended, blocks)
        seen = {name: {b: s for b, s in of.items() if b < blocks} for name, of in compared.items()}
        # Elapsed time is known only for the stops. At an earlier look it was at least what had been spent before this
        # case, unless the system's clock was set back.
        elapsed = stop.elapsed_s if blocks == stop.blocks else min(spent_s, stop.elapsed_s)
        why = should_stop(record.protocol, blocks, seen, _pairs(record, alive), elapsed)
        if blocks < stop.blocks and why is not None:
            raise VerificationFailed(
                f"{where}: its protocol stops it at block {blocks} ({why}), but it went on to {stop.blocks}"
            )
        if blocks == stop.blocks and why != stop.why and not (not alive and stop.why == "no pair left"):
            raise VerificationFailed(
                f"{where}: stopped at block {blocks} for {stop.why!r}, but its protocol says {why or 'go on'!r}"
            )


def _alive(ended: list[Outcome], blocks: int) -> set[str]:
    """Return the contenders that were still being measured after this many blocks."""
    return {o.contender for o in ended if o.status == "PASSED" or (o.block is not None and o.block >= blocks)}


def _pairs(record: Record, alive: set[str]) -> list[tuple[str, str]]:
    baseline = record.run.baseline
    return [(c, baseline) for c in record.run.judged if c in alive and baseline in alive]


def _check_outcomes(record: Record) -> None:
    """Check that in every finished process a contender that passed was checked and timed to the end, and that any
    other contender was not timed after it failed."""
    columns = record.samples
    checked = (columns["checked"] == 1) & (columns["phase"] == TIMED)
    were_checked = set(
        zip(*(columns[k][checked].tolist() for k in ("process", "attempt", "case", "contender")), strict=True)
    )
    blocks = {(s.process, s.attempt, s.case): s.blocks for s in record.stops}
    for process, attempt in record.finished_attempts.items():
        for i, case in enumerate(record.cases):
            key = (process, attempt, case.name)
            outcomes = {o.contender: o for o in record.outcomes_of_case[key]}
            # If a contender killed the worker, those after it in the order have no sample of that block.
            cut_short = {o.block for o in outcomes.values() if o.lost_worker and o.block in range(blocks[key])}
            for contender in record.measured:
                where = f"process {process}, {case.name}, {contender.name}"
                outcome = outcomes[contender.name]
                samples = record.seconds.get((process, case.name, contender.name), {})
                if outcome.status != "PASSED":
                    if max(samples, default=-1) > (-1 if outcome.block is None else outcome.block):
                        raise VerificationFailed(f"{where}: {outcome.status}, but timed after that")
                    continue
                if (process, attempt, i, record.contender_index[contender.name]) not in were_checked:
                    raise VerificationFailed(f"{where}: no timed call was checked against the oracle")
                if len(samples.keys() | cut_short) != blocks[key]:
                    raise VerificationFailed(f"{where}: samples are missing")
                _check_errors(case.tolerance, outcome, where)


def _check_errors(tolerance: Mapping[str, float], outcome: Outcome, where: str) -> None:
    for name, bound in tolerance.items():
        value: float | None = getattr(outcome, name)
        if value is None or value > bound:
            why = "is missing" if value is None else f"{value} exceeds the tolerance of {bound}"
            raise VerificationFailed(f"{where}: PASSED, but its {name} {why}")


def _count_figures(value: Any) -> int:
    """Return how many numbers a judgement holds, all of which a verification recomputes."""
    if is_dataclass(value) and not isinstance(value, type):
        described = (name for name, of in vars(type(value)).items() if isinstance(of, cached_property))
        return sum(_count_figures(getattr(value, name)) for name in (*(f.name for f in fields(value)), *described))
    if isinstance(value, Mapping):
        return sum(map(_count_figures, value.values()))
    if isinstance(value, (tuple, list)):
        return sum(map(_count_figures, value))
    return int(isinstance(value, (int, float, np.number)) and not isinstance(value, bool))
