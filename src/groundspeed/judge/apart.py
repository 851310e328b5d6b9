"""The comparison of two bundles, which were measured at different times and have no blocks in common.

Each contender is compared block by block with the anchor of its own run, the same code in both runs; the two log ratios
are then compared by Welch's t over the processes of both. That removes only what the machine did to both runs alike. So
a difference counts if Holm's p allows it, if the whole interval lies beyond the floors of both runs plus their spread
plus what unchanged code moved from run to run (judge/between.py), and if the mean exceeds what slow processes that one
run may have missed are worth (judge/missed.py). Without an anchor, or if the anchor itself moved by more than the
floor, nothing follows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from groundspeed.case import FUNCTIONS
from groundspeed.errors import BadInput, unknown
from groundspeed.evidence.record import Record
from groundspeed.judge.between import Between, Pair, between, notes_of
from groundspeed.judge.floors import Floor, floor_for, length_of, spread_floor
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.missed import Missed, missed_by
from groundspeed.judge.regression import Change, How, Regression, Word, neither, one_sided
from groundspeed.judge.reproduction import is_elsewhere
from groundspeed.judge.rule import Kind
from groundspeed.judge.statistics import Interval, holm, welch_interval
from groundspeed.judge.stopping import log_ratios
from groundspeed.judge.verdict import ALPHA, BIASED, COARSE, SAME_HIGH, SAME_LOW, centre, outliers_decide

PROTOCOL = ("name", "preset", "looks", "half_width", "warmup_s", "input_sets", "isolated")
"""The protocol fields that must be equal. The number of processes may differ: they are not paired."""


@dataclass(frozen=True)
class _Seen:
    """A contender on a case in both bundles."""

    case: str
    contender: str
    base_s: float
    head_s: float
    kind: Kind
    centres: tuple[list[float], list[float]]
    """The process centres of base and of head."""
    interval: Interval
    plain: Interval
    """From untrimmed means."""
    floor: Floor
    """The floors of both machines, combined."""
    anchor_moved: float | None
    """None if nothing shows the drift."""
    allowance: float
    """By how much two runs may differ beyond what the processes of each show."""
    doubt: str
    """Why one of the runs does not believe its own comparison; else empty."""


def of_bundles(
    base: Judgement, head: Judgement, only: Sequence[str] = (), cases: Sequence[str] = (), force: bool = False
) -> Regression:
    """Compare the contenders that both bundles judge, or those in `only`, on the cases that both have. Raise BadInput
    if the bundles cannot be compared. `force` also compares bundles from different hardware."""
    if why := why_not(base.record, head.record):
        raise BadInput(f"these bundles cannot be compared: {why}; repeat one run with the settings of the other")
    where = _other_hardware(base, head)
    if where and not force:
        raise BadInput(f"these bundles are from different hardware ({where}); use --force to compare them anyway")
    names, left_out = _contenders(base.record, head.record, only)
    chosen, missing = _cases(base, head, cases)
    runs = between(base.record, head.record, chosen, names)
    seen: list[_Seen] = []
    found: dict[tuple[str, str], Change] = {}
    for before, after in chosen:
        for name in names:
            then, now, case = before.result(name), after.result(name), before.facts.name
            if then.latency and now.latency:
                together = len(chosen) * len(names)
                seen.append(_see(base.record, head.record, before, after, name, runs, together))
            elif change := one_sided(case, name, then, now):
                found[case, name] = change
            else:
                missing.append(neither(case, name, then, now))
    family = _Family(len(seen), _spread(base.record, head.record, seen), _incomplete(base.record, head.record))
    missed = _missed(base.record, head.record, seen)
    for one, out, p in zip(seen, missed, holm([one.interval.p for one in seen]), strict=True):
        found[one.case, one.contender] = _change(one, out, p, family)
    order = [(before.facts.name, name) for before, _ in chosen for name in names]
    how: How = "anchored" if runs.anchor and all(one.anchor_moved is not None for one in seen) else "apart"
    notes = tuple(notes_of(base, head, chosen, runs))
    changes = tuple(found[key] for key in order if key in found)
    marked = f"other hardware: {where}" if where else ""
    return Regression(how, changes, (*left_out, *missing), notes, marked, family.incomplete)


def why_not(base: Record, head: Record) -> str | None:
    """Return why two records cannot be compared even on the same hardware, or None."""
    parts: list[tuple[str, Any, Any]] = [("suite", base.run.suite, head.run.suite)]
    parts += [(f"protocol's {what}", getattr(base.protocol, what), getattr(head.protocol, what)) for what in PROTOCOL]
    if base.run.device == head.run.device == "cpu":
        parts.append(("number of threads", base.protocol.threads, head.protocol.threads))
    if base.run.suite == FUNCTIONS and not all("name" in case.params for case in base.cases):
        return "the compared functions have no name; only gs.compare(name=…) says that two runs do the same work"
    return next((f"the {what} is {a!s:.60} in base and {b!s:.60} in head" for what, a, b in parts if a != b), None)


def _other_hardware(base: Judgement, head: Judgement) -> str:
    if base.record.run.device != head.record.run.device or base.device_name != head.device_name:
        return f"{base.device_name} and {head.device_name}"
    return f"two devices of the model {base.device_name}" if is_elsewhere(base.record, head.record) else ""


def _contenders(base: Record, head: Record, only: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the contenders to compare, and notes on those left out."""
    here, there = ([c.name for c in record.measured] for record in (base, head))
    both = [name for name in here if name in there]
    for name in only:
        if name not in both:
            raise unknown("contender of both bundles", name, both)
    judged = [name for name in both if name in base.run.judged and name in head.run.judged]
    wanted = [name for name in both if name in only] if only else judged
    if not wanted:
        measured = ", ".join(both) or "none"
        raise BadInput(f"no contender is judged in both bundles; use --only with one that both measured: {measured}")
    said = [f"{name}: only in base" for name in here if name not in there]
    said += [f"{name}: only in head" for name in there if name not in here]
    others = [name for name in both if name not in wanted]
    if others and not only:
        said.append(f"{', '.join(others)}: measured in both but not judged in both; use --only to compare anyway")
    return wanted, said


def _cases(base: Judgement, head: Judgement, patterns: Sequence[str]) -> tuple[list[Pair], list[str]]:
    """Return the cases that are the same work in both bundles, and notes on those left out."""
    there = {case.facts.name: case for case in head.cases}
    here = {case.facts.name for case in base.cases}
    said = [f"{case.facts.name}: only in base" for case in base.cases if case.facts.name not in there]
    said += [f"{name}: only in head" for name in there if name not in here]
    both = [(case, there[case.facts.name]) for case in base.cases if case.facts.name in there]
    same = [(a, b) for a, b in both if a.facts.params == b.facts.params]
    said += [f"{a.facts.name}: different work in base and head" for a, b in both if a.facts.params != b.facts.params]
    names = [a.facts.name for a, _ in same]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise unknown("case of both bundles", pattern, names)
    if not same:
        raise BadInput("the two bundles have no case in common; measure the same cases in both")
    if patterns:
        same = [(a, b) for a, b in same if any(_matches(a.facts.name, pattern) for pattern in patterns)]
    return same, said


def _matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a case by its full name, without its clock, or without its dtype."""
    stem = name.partition("@")[0]
    forms = (name, stem, stem.rsplit("-", 1)[0], stem.rsplit("-", 2)[0])
    return any(fnmatchcase(form, pattern) for form in forms)


def _see(
    base: Record, head: Record, then: CaseJudgement, now: CaseJudgement, name: str, runs: Between, together: int
) -> _Seen:
    case, confidence = then.facts.name, max(base.protocol.confidence, head.protocol.confidence)
    times = [one.result(name).latency for one in (then, now)]
    moved = runs.anchor_moved(case)
    by = runs.anchor if moved is not None else None
    references = [one.result(by).latency for one in (then, now)] if by else []
    centres = [list(_centres(record, case, name, by)) for record in (base, head)]
    (base_trimmed, head_trimmed), (base_plain, head_plain) = (
        [[x[i] for x in some] for some in centres] for i in (0, 1)
    )
    medians = [latency.median for latency in times if latency]
    shorter = min(medians + [latency.median for latency in references if latency])
    floors = [floor_for(record.calibration, then.clock, shorter, together) for record in (base, head)]
    origin = next((floor.origin for floor in floors if floor.origin != "calibrated"), floors[0].origin)
    return _Seen(
        case=case,
        contender=name,
        base_s=medians[0],
        head_s=medians[1],
        kind=(name, by or "", then.clock, length_of(shorter)),
        centres=(base_trimmed, head_trimmed),
        interval=welch_interval(base_trimmed, head_trimmed, confidence),
        plain=welch_interval(base_plain, head_plain, confidence),
        floor=Floor(math.hypot(*(f.value for f in floors)), origin, any(f.alarm for f in floors)),
        anchor_moved=moved,
        allowance=runs.allowance(case),
        doubt=next(_doubts(name, then, now), ""),
    )


def _doubts(name: str, then: CaseJudgement, now: CaseJudgement) -> Iterator[str]:
    for side, case in (("base", then), ("head", now)):
        comparison = case.result(name).comparison
        if comparison and not comparison.believed:
            yield f"in {side}, {comparison.reason}"


def _centres(record: Record, case: str, name: str, anchor: str | None) -> Iterator[tuple[float, float]]:
    """Yield the trimmed and the plain log speed of each finished process, relative to the anchor if there is one.
    Larger is faster. Without an anchor the median stands in for the trimmed mean."""
    for process in sorted(record.finished_attempts):
        own = record.seconds.get((process, case, name), {})
        if anchor is None:
            if own:
                logs = [-math.log(seconds) for seconds in own.values()]
                yield statistics.median(logs), statistics.fmean(logs)
        elif theta := log_ratios({name: own, anchor: record.seconds.get((process, case, anchor), {})}, name, anchor):
            found = centre(process, theta)
            yield found.theta.mean, found.plain_mean


def _incomplete(base: Record, head: Record) -> str:
    return next(
        (f"the {side} run was interrupted" for side, r in (("base", base), ("head", head)) if not r.complete), ""
    )


def _spread(base: Record, head: Record, seen: Sequence[_Seen]) -> float:
    processes = min(base.declared_processes, head.declared_processes)
    floor = spread_floor([one.interval for one in seen], processes)
    return floor.value if floor else 0.0


def _missed(base: Record, head: Record, seen: Sequence[_Seen]) -> list[Missed]:
    before, after = ([one.centres[side] for one in seen] for side in (0, 1))
    declared = base.declared_processes, head.declared_processes
    return missed_by([one.kind for one in seen], before, after, declared)


@dataclass(frozen=True)
class _Family:
    """What the comparisons of two bundles have in common."""

    size: int
    spread: float
    """The difference that their spread over processes could produce by chance."""
    incomplete: str


def _change(one: _Seen, missed: Missed, p: float, family: _Family) -> Change:
    if reason := _disbelieved(one, family):
        return Change(
            one.case, one.contender, "UNCLEAR", reason, one.base_s, one.head_s, one.interval, None, p, may_hide=True
        )
    word, reason = _verdict(one, missed, p, family)
    lowest = min(one.interval.low, one.plain.low) - family.spread - one.allowance - missed.hidden.value
    hides = word == "UNCLEAR" and not lowest > -one.floor.value
    return Change(
        one.case, one.contender, word, reason, one.base_s, one.head_s, one.interval, lowest, p, may_hide=hides
    )


def _disbelieved(one: _Seen, family: _Family) -> str:
    """Return why the interval says nothing, not even about what lies outside it, or an empty string."""
    if family.incomplete:
        return family.incomplete
    if one.anchor_moved is None:
        return "no unchanged contender shows how far the machine drifted; compare the revisions instead"
    if one.interval.sd == 0:
        return COARSE
    if one.floor.alarm:
        return BIASED
    if one.doubt:
        return one.doubt
    if abs(one.anchor_moved) > one.floor.value + family.spread:
        return "the anchor, which did not change, moved by more than the floor; compare the revisions instead"
    return ""


def _verdict(one: _Seen, missed: Missed, p: float, family: _Family) -> tuple[Word, str]:
    theta, apart = one.interval, family.spread + one.allowance
    if theta.n < 2:
        return "UNCLEAR", "a single process has no interval"
    if reason := outliers_decide(theta, one.plain, ALPHA):
        return "UNCLEAR", reason
    if theta.low - apart >= SAME_LOW and theta.high + apart <= SAME_HIGH:
        within = "the 95% interval, widened by what two runs may differ by, lies within ±1%"
        if missed.hidden.value > SAME_HIGH:
            return "UNCLEAR", f"{within}, but outlying processes in similar comparisons give an {missed.hidden}"
        return "SAME", within
    over, rare = one.floor.value + apart, missed.floor(theta.mean)
    beyond_noise = theta.low > over or theta.high < -over
    if p <= ALPHA and beyond_noise and abs(theta.mean) > rare.value:
        beyond = (
            f"p = {p:.2g} after Holm's correction in a family of {family.size}, and the whole interval is beyond "
            f"{math.expm1(over):.1%}: the {one.floor} plus what two runs may differ by"
        )
        return "IMPROVED" if theta.mean > 0 else "REGRESSED", beyond
    if p <= ALPHA and beyond_noise:
        return "UNCLEAR", f"the difference is below the {rare}: one of the runs may have missed slow processes"
    if p <= ALPHA:
        return (
            "UNCLEAR",
            "part of the interval is within the floor plus what two runs may differ by; compare the revisions instead",
        )
    return "UNCLEAR", "two separate runs cannot decide this; compare the revisions, which measures both in one run"
