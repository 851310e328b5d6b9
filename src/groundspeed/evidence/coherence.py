"""Builds a record from facts and samples that a stranger may have made: every reference resolves, and every number is
one that a run can have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode
from groundspeed.evidence.record import SCHEMA, Facts, Outcome, Record, Stop
from groundspeed.evidence.revision import installed_of, revisions_of
from groundspeed.evidence.samples import COLUMNS, SEQUENTIAL, TIMED
from groundspeed.evidence.upgrade import upgrade

TELEMETRY = ("sm_clock_mhz", "temperature_c", "power_w")
MOST_S = 9e9
"""Longest interval: about what a 64-bit count of nanoseconds holds."""
SHORTEST_S, LONGEST_S = 1e-12, 1e7
"""Shortest and longest time of one call; the longest also holds for a process. No clock reads values outside this
range, and logarithms of their ratios might leave the range of floating-point numbers."""


def from_facts(value: Any, samples: Mapping[str, npt.NDArray[Any]], where: str) -> Record:
    """Return a record from parsed JSON and columns, or raise BadInput that names what is wrong with them."""
    if isinstance(value, dict) and isinstance(value.get("schema"), int) and value["schema"] > SCHEMA:
        raise BadInput(
            f"{where}: written by a newer groundspeed (schema {value['schema']}, this one reads up to {SCHEMA}); "
            "upgrade groundspeed to read it"
        )
    value, samples = upgrade(value, dict(samples), where)
    facts = decode(Facts, value, where)
    if facts.schema != SCHEMA:
        raise BadInput(f"{where}: schema {facts.schema} does not exist")
    record = Record(**{f.name: getattr(facts, f.name) for f in dataclasses.fields(Facts)}, samples=dict(samples))
    _check_run(record, where)
    _check_processes(record, where)
    _check_entries(record, where)
    _check_samples(record, where)
    return record


def _check_run(record: Record, where: str) -> None:
    for kind, count, most in (("cases", len(record.cases), 2048), ("contenders", len(record.contenders), 128)):
        if count > most:
            raise BadInput(f"{where}: {count:,} {kind} are more than the {most:,} that a bundle may hold")
    for kind, names in (("case", [c.name for c in record.cases]), ("contender", [c.name for c in record.contenders])):
        if len(set(names)) != len(names):
            raise BadInput(f"{where}: a {kind} appears twice")
    baseline, judged = record.run.baseline, record.run.judged
    if baseline not in {c.name for c in record.measured}:
        raise BadInput(f"{where}: the baseline {baseline!r:.80} is not among the measured contenders")
    if record.run.baseline_origin == "chosen afterwards":
        raise BadInput(f"{where}: the baseline of a run is declared or asked for, and not chosen afterwards")
    if strangers := set(judged) - set(record.contender_index):
        raise BadInput(f"{where}: judged contender {min(strangers)!r:.80} is not among the contenders")
    if len({*judged, baseline}) != len(judged) + 1:
        raise BadInput(f"{where}: a contender is judged twice, or the baseline against itself")
    if strangers := set(revisions_of(record.environment, where)) - set(record.contender_index):
        raise BadInput(f"{where}: a revision of {min(strangers)!r:.80}, which is not among the contenders")
    if strangers := set(installed_of(record.environment, where)) - set(revisions_of(record.environment, where)):
        raise BadInput(f"{where}: packages of {min(strangers)!r:.80}, which belongs to no revision")


def _check_processes(record: Record, where: str) -> None:
    if record.run.extended is not None and record.protocol.extension is None:
        raise BadInput(f"{where}: it says whether it was extended, but no extension was declared")
    if any((process.gpu is None) != (record.run.device == "cpu") for process in record.processes):
        raise BadInput(f"{where}: a process names a GPU on a CPU, or none on a GPU")
    if any(not 0 <= p.started <= MOST_S for p in record.processes):  # refuses NaN, too
        raise BadInput(f"{where}: a process has an impossible start")
    if any(p.finished is not None and not 0 <= p.finished - p.started <= LONGEST_S for p in record.processes):
        raise BadInput(f"{where}: a process has an impossible duration")
    if any(not 0 <= p.process < record.declared_processes for p in record.processes):
        raise BadInput(f"{where}: a process number is out of range")
    begun: dict[int, list[int]] = {}
    for process in record.processes:
        begun.setdefault(process.process, []).append(process.attempt)
    if any(attempts != list(range(len(attempts))) for attempts in begun.values()):
        raise BadInput(f"{where}: the attempts of a process are not numbered 0, 1, 2, …")
    if sum(p.finished is not None for p in record.processes) != len(record.finished_attempts):
        raise BadInput(f"{where}: a process finished twice")


def _check_entries(record: Record, where: str) -> None:
    """Check that outcomes, stops, kernels and expert usage belong to cases, contenders and processes that exist."""
    attempts = {(p.process, p.attempt) for p in record.processes}
    entries: list[Outcome | Stop] = [*record.outcomes, *record.stops]
    for entry in entries:
        if entry.case not in record.case_index:
            raise BadInput(f"{where}: unknown case {entry.case!r:.80}")
        if (entry.process, entry.attempt) not in attempts:
            raise BadInput(f"{where}: process {entry.process}, attempt {entry.attempt} was never started")
    if any(not 0 <= stop.elapsed_s <= LONGEST_S for stop in record.stops):
        raise BadInput(f"{where}: a stop has an impossible time")
    for outcome in record.outcomes:
        if not 0 <= (outcome.prepare_s or 0.0) <= LONGEST_S:
            raise BadInput(f"{where}: a first call of {outcome.contender!r:.80} has an impossible duration")
        if outcome.contender not in record.contender_index:
            raise BadInput(f"{where}: unknown contender {outcome.contender!r:.80}")
    if len({(seen.case, seen.contender) for seen in record.launched}) != len(record.launched):
        raise BadInput(f"{where}: the kernels of a contender on a case appear twice")
    for launched in record.launched:
        if launched.case not in record.case_index or launched.contender not in record.contender_index:
            raise BadInput(
                f"{where}: kernels of an unknown contender or case: {launched.contender!r:.80} on {launched.case!r:.80}"
            )
    if len({usage.case for usage in record.usage}) != len(record.usage):
        raise BadInput(f"{where}: the usage of the experts of a case appears twice")
    for usage in record.usage:
        if usage.case not in record.case_index:
            raise BadInput(f"{where}: the usage of experts on unknown case {usage.case!r:.80}")
    keys = {(o.process, o.attempt, o.case, o.contender) for o in record.outcomes}
    if len(keys) != len(record.outcomes):
        raise BadInput(f"{where}: a contender has two outcomes on one case in one process")


def _check_samples(record: Record, where: str) -> None:
    columns = record.samples
    if set(columns) != set(COLUMNS):
        raise BadInput(f"{where}: the samples have the columns {sorted(columns)}, not {sorted(COLUMNS)}")
    if not len(columns["process"]):
        return
    for name, count in (("case", len(record.cases)), ("contender", len(record.contenders))):
        least, greatest = columns[name].min(), columns[name].max()
        if least < 0 or greatest >= count:
            wrong = least if least < 0 else greatest
            raise BadInput(f"{where}: a sample refers to {name} number {wrong}, which does not exist")
    workers = {(p.process, p.attempt): p.workers for p in record.processes}
    for *attempt, worker in set(zip(*(columns[n].tolist() for n in ("process", "attempt", "worker")), strict=True)):
        if not 0 <= worker < workers.get((attempt[0], attempt[1]), 0):
            raise BadInput(f"{where}: a sample belongs to a process or a worker that was never started")
    if columns["launches"].min() < 1 or columns["block"].min() < 0 or columns["position"].min() < 0:
        raise BadInput(f"{where}: a sample has an impossible block, position or number of launches")
    per_call = columns["seconds"] / columns["launches"]
    if not ((per_call >= SHORTEST_S) & (per_call <= LONGEST_S)).all():  # refuses NaN, too
        raise BadInput(f"{where}: a sample has an impossible duration")
    if not (np.abs(columns["start"]) <= LONGEST_S).all() or not (columns["seconds"] <= MOST_S).all():  # or NaN
        raise BadInput(f"{where}: a sample has an impossible start or interval")
    if columns["phase"].max() > SEQUENTIAL or columns["checked"].max() > 1:
        raise BadInput(f"{where}: a sample has an unknown phase or mark")
    odd = any(np.isinf(columns[name]).any() or (columns[name] < 0).any() for name in TELEMETRY)
    if odd or (columns["throttle"] < -1).any():
        raise BadInput(f"{where}: a sample has impossible telemetry")
    _check_once(record, where)


def _check_once(record: Record, where: str) -> None:
    """Check that no contender was timed twice in one block: after sorting, equal keys would be neighbours."""
    timed = record.samples["phase"] >= TIMED
    keys = [record.samples[n][timed] for n in ("process", "attempt", "case", "contender", "phase", "block")]
    order = np.lexsort(keys)
    same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if same.any():
        raise BadInput(f"{where}: a contender was timed twice in one block")
