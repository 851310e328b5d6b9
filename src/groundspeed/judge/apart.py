"""Two bundles held against each other: they were measured at different times, and have no blocks in common.

Where both measured something by the same code, the anchor, each contender is seen against it in its own run, block by
block, and the two log ratios against each other: whatever the machine did in between it did to both. Where there is
none, there are the bare times, with the drift in them. Either way by Welch's t over the processes of the two; and a
difference counts where Holm's p allows it and the whole interval lies beyond the floors of both."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from groundspeed.errors import BadInput, unknown
from groundspeed.evidence.record import ContenderFacts, Record
from groundspeed.judge.floors import Floor, floor_for
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.regression import Change, How, Regression, Word, neither, one_sided
from groundspeed.judge.reproduction import is_elsewhere
from groundspeed.judge.statistics import Interval, holm, welch_interval
from groundspeed.judge.stopping import log_ratios
from groundspeed.judge.verdict import ALPHA, BIASED, COARSE, SAME_HIGH, SAME_LOW, centre, outliers_decide

PROTOCOL = ("name", "preset", "looks", "half_width", "warmup_s", "input_sets", "isolated")
"""What of the protocol must be the same. The number of processes need not be: they are not paired."""


@dataclass(frozen=True)
class _Seen:
    """A contender on a case in both bundles."""

    case: str
    contender: str
    base_s: float
    head_s: float
    interval: Interval
    plain: Interval
    """From untrimmed means."""
    floor: Floor
    anchored: bool


def of_bundles(
    base: Judgement, head: Judgement, only: Sequence[str] = (), cases: Sequence[str] = (), force: bool = False
) -> Regression:
    """The contenders that both judge, or those in `only`, on the cases that both have. BadInput where they cannot be
    compared; `force` compares also what other hardware measured."""
    if why := why_not(base.record, head.record):
        raise BadInput(f"these bundles cannot be compared: {why}; measure one of them again like the other")
    where = _other_hardware(base, head)
    if where and not force:
        raise BadInput(f"these bundles are of different hardware ({where}); --force compares them all the same")
    names, left_out = _contenders(base.record, head.record, only)
    chosen, missing = _cases(base, head, cases)
    anchor = anchor_of(base.record, head.record, names)
    seen: list[_Seen] = []
    found: dict[tuple[str, str], Change] = {}
    for before, after in chosen:
        for name in names:
            then, now, case = before.result(name), after.result(name), before.facts.name
            if then.latency and now.latency:
                together = len(chosen) * len(names)
                seen.append(_see(base.record, head.record, before, after, name, anchor, together))
            elif change := one_sided(case, name, then, now):
                found[case, name] = change
            else:
                missing.append(neither(case, name, then, now))
    for one, p in zip(seen, holm([one.interval.p for one in seen]), strict=True):
        found[one.case, one.contender] = _change(one, p, len(seen), _incomplete(base.record, head.record))
    order = [(before.facts.name, name) for before, _ in chosen for name in names]
    how: How = "anchored" if anchor and all(one.anchored for one in seen) else "apart"
    notes = (*_drift(base, head, chosen, anchor), *_differences(base.record, head.record))
    changes = tuple(found[key] for key in order if key in found)
    return Regression(how, changes, (*left_out, *missing), notes, f"other hardware: {where}" if where else "")


def why_not(base: Record, head: Record) -> str | None:
    """Why two records cannot be held against each other, whatever the hardware; or None."""
    parts: list[tuple[str, Any, Any]] = [
        ("suite", base.run.suite, head.run.suite),
        ("device", base.run.device, head.run.device),
    ]
    parts += [(f"protocol's {what}", getattr(base.protocol, what), getattr(head.protocol, what)) for what in PROTOCOL]
    if base.run.device == "cpu":
        parts.append(("number of threads", base.protocol.threads, head.protocol.threads))
    return next((f"the {what} of base is {a!s:.60} and of head {b!s:.60}" for what, a, b in parts if a != b), None)


def _other_hardware(base: Judgement, head: Judgement) -> str:
    if base.device_name != head.device_name:
        return f"{base.device_name} and {head.device_name}"
    return f"two devices of the model {base.device_name}" if is_elsewhere(base.record, head.record) else ""


def _contenders(base: Record, head: Record, only: Sequence[str]) -> tuple[list[str], list[str]]:
    """Whom to compare, and what there is to say of the others."""
    here, there = ([c.name for c in record.measured] for record in (base, head))
    both = [name for name in here if name in there]
    for name in only:
        if name not in both:
            raise unknown("contender of both bundles", name, both)
    judged = [name for name in both if name in base.run.judged and name in head.run.judged]
    wanted = [name for name in both if name in only] if only else judged
    if not wanted:
        raise BadInput("no contender is judged in both bundles; name some that both measured with --only")
    said = [f"{name}: in base alone" for name in here if name not in there]
    said += [f"{name}: in head alone" for name in there if name not in here]
    others = [name for name in both if name not in wanted]
    if others and not only:
        said.append(f"{', '.join(others)}: in both, and not judged in both; --only compares them")
    return wanted, said


def _cases(
    base: Judgement, head: Judgement, patterns: Sequence[str]
) -> tuple[list[tuple[CaseJudgement, CaseJudgement]], list[str]]:
    """The cases that are the same work in both, and what there is to say of the others."""
    there = {case.facts.name: case for case in head.cases}
    here = {case.facts.name for case in base.cases}
    said = [f"{case.facts.name}: in base alone" for case in base.cases if case.facts.name not in there]
    said += [f"{name}: in head alone" for name in there if name not in here]
    both = [(case, there[case.facts.name]) for case in base.cases if case.facts.name in there]
    same = [(a, b) for a, b in both if a.facts.params == b.facts.params]
    said += [f"{a.facts.name}: other work in head than in base" for a, b in both if a.facts.params != b.facts.params]
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
    """With its dtype and clock, without them, or by its shape alone."""
    stem = name.partition("@")[0]
    forms = (name, stem, stem.rsplit("-", 1)[0], stem.rsplit("-", 2)[0])
    return any(fnmatchcase(form, pattern) for form in forms)


def anchor_of(base: Record, head: Record, compared: Sequence[str]) -> str | None:
    """The contender that was the same in both, by its version, its file and on a GPU by what it launched: the baseline
    if it is, else the first."""
    known = {c.name: c for c in head.measured}
    same = [c.name for c in base.measured if c.name not in compared and _same_code(base, head, c, known.get(c.name))]
    return next((name for name in (base.run.baseline, head.run.baseline, *same) if name in same), None)


def _same_code(base: Record, head: Record, then: ContenderFacts, now: ContenderFacts | None) -> bool:
    if now is None or not then.version or (then.version, then.source_sha256) != (now.version, now.source_sha256):
        return False
    seen = [{x.case: (x.kernels, x.binaries) for x in r.launched if x.contender == then.name} for r in (base, head)]
    return all(seen[0][case] == seen[1][case] for case in seen[0].keys() & seen[1].keys())


def _see(
    base: Record, head: Record, then: CaseJudgement, now: CaseJudgement, name: str, anchor: str | None, together: int
) -> _Seen:
    case, confidence = then.facts.name, max(base.protocol.confidence, head.protocol.confidence)
    times = [one.result(name).latency for one in (then, now)]
    references = [one.result(anchor).latency for one in (then, now)] if anchor else [None, None]
    by = anchor if all(references) else None
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
        interval=welch_interval(base_trimmed, head_trimmed, confidence),
        plain=welch_interval(base_plain, head_plain, confidence),
        floor=Floor(math.hypot(*(f.value for f in floors)), origin, any(f.alarm for f in floors)),
        anchored=by is not None,
    )


def _centres(record: Record, case: str, name: str, anchor: str | None) -> Iterator[tuple[float, float]]:
    """Of each finished process, trimmed and plain: how fast it was, against the anchor or by itself; in logarithms, and
    more is faster."""
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
        (f"the run of {side} was interrupted" for side, r in (("base", base), ("head", head)) if not r.complete), ""
    )


def _change(one: _Seen, p: float, family: int, incomplete: str) -> Change:
    word, reason = _verdict(one, p, family, incomplete)
    lowest = min(one.interval.low, one.plain.low)
    hides = word == "UNCLEAR" and not lowest > -one.floor.value
    return Change(
        one.case, one.contender, word, reason, one.base_s, one.head_s, one.interval, lowest, p, may_hide=hides
    )


def _verdict(one: _Seen, p: float, family: int, incomplete: str) -> tuple[Word, str]:
    theta, floor = one.interval, one.floor
    if incomplete:
        return "UNCLEAR", incomplete
    if theta.n < 2:
        return "UNCLEAR", "one process has no interval"
    if theta.sd == 0:
        return "UNCLEAR", COARSE
    if floor.alarm:
        return "UNCLEAR", BIASED
    if reason := outliers_decide(theta, one.plain, ALPHA):
        return "UNCLEAR", reason
    if theta.low >= SAME_LOW and theta.high <= SAME_HIGH:
        return "SAME", "the 95% interval lies within ±1%"
    if p <= ALPHA and (theta.low > floor.value or theta.high < -floor.value):
        beyond = f"p = {p:.2g} after Holm over {family}, and the whole interval over the {floor} of two runs"
        return "IMPROVED" if theta.mean > 0 else "REGRESSED", beyond
    if p <= ALPHA:
        return "UNCLEAR", f"the interval is not wholly over the {floor} of two runs"
    return "UNCLEAR", "two runs do not tell; compare the revisions, which measures both in one run"


def _drift(
    base: Judgement, head: Judgement, cases: Sequence[tuple[CaseJudgement, CaseJudgement]], anchor: str | None
) -> Iterator[str]:
    when = f"base until {base.record.run.finished}, head until {head.record.run.finished}"
    if anchor is None:
        yield (
            f"measured at different times ({when}), and nothing that is the same in both tells how far the machine "
            "drifted in between: drift is in these figures; comparing the revisions measures both in one run"
        )
        return
    pairs = [(a.result(anchor).latency, b.result(anchor).latency) for a, b in cases]
    ratios = [then.median / now.median for then, now in pairs if then and now]
    seen = f", which itself ran {min(ratios):.3f}× to {max(ratios):.3f}× as fast in head" if ratios else ""
    yield f"measured at different times ({when}): each was compared with {anchor} of its own run{seen}"
    if len(ratios) < len(cases):
        without = f"{len(cases) - len(ratios)} of {len(cases)} cases"
        yield f"{without} have no time of {anchor} in both: drift is in their figures"


def _differences(base: Record, head: Record) -> Iterator[str]:
    """What else is not the same."""
    known = {c.name: c for c in head.measured}
    for then in base.measured:
        now = known.get(then.name)
        if now and then.version != now.version:
            yield f"{then.name}: {then.version} in base, {now.version} in head"
    for part, key in (("gpu", "driver"), ("cpu", "governor"), ("packages", "torch"), ("packages", "triton")):
        a, b = (
            r.environment[part].get(key) if isinstance(r.environment.get(part), dict) else None for r in (base, head)
        )
        if a != b:
            yield f"{key}: {a!s:.60} in base, {b!s:.60} in head"
