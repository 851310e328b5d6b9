"""The judgement of a record, which holds every figure that a table, report or claim shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.errors import BadInput, unknown
from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.evidence.samples import Seconds
from groundspeed.judge import figures
from groundspeed.judge.figures import Errors, Latency, Memory, Rates
from groundspeed.judge.floors import floor_for, length_of
from groundspeed.judge.grading.specification import Target, packaged
from groundspeed.judge.grading.targets import Label, label, target_for
from groundspeed.judge.grid import Grid, alpha_of, summarise
from groundspeed.judge.limits import Limit, Peaks, cache_of, limit, peaks_of
from groundspeed.judge.observed import Observed
from groundspeed.judge.stopping import log_ratios
from groundspeed.judge.timers import Watched, timers_of
from groundspeed.judge.verdict import Comparison, adjust, centre, compare, judge_family
from groundspeed.judge.views import sequential_thetas, unthrottled_thetas, view_warnings
from groundspeed.judge.warnings import Disturbance, warnings_of

if TYPE_CHECKING:
    from groundspeed.judge.reproduction import Repetition

FLASH = "sdpa-flash"
"""The contender with which requirement A4 compares every contender."""


@dataclass(frozen=True)
class Result:
    """One contender on one case."""

    contender: str
    status: str
    """The status in the record, or INVALID if the contender was faster than the device can be."""
    reason: str | None
    latency: Latency | None
    rates: Rates | None
    memory: Memory
    errors: Errors
    difference_to_flash: float | None
    """The median divided by that of sdpa-flash, minus 1. Below 0 is faster than flash."""
    comparison: Comparison | None
    """The comparison with the baseline; None for the baseline itself, and if one of the two has no time."""


@dataclass(frozen=True)
class CaseJudgement:
    facts: CaseFacts
    limit: Limit | None
    target: Target | None
    target_label: Label | None
    l2_resident: bool
    """Whether the inputs stay in the GPU's cache from call to call, so that bytes per second do not describe its
    memory."""
    results: tuple[Result, ...]

    def result(self, contender: str) -> Result:
        return _of(self.results, contender)

    @property
    def clock(self) -> str:
        return str(self.facts.params.get("clock", DEFAULT_CLOCK))


@dataclass(frozen=True)
class Judgement:
    record: Record
    device_name: str
    peaks: Peaks | None
    cases: tuple[CaseJudgement, ...]
    grids: tuple[Grid, ...]
    """One for each judged contender and each clock."""
    warnings: tuple[Disturbance, ...]
    repetitions: tuple[Repetition, ...] = ()
    """What repeated runs say about the claims of this one, if such runs are at hand."""


def against(record: Record, baseline: str) -> Record:
    """Return the same run against another of its contenders. The new record marks its baseline as chosen afterwards,
    and every claim about it says so."""
    names = [contender.name for contender in record.measured]
    if baseline not in names:
        raise unknown("contender of this run", baseline, names)
    judged = tuple(name for name in record.run.judged if name != baseline)
    if not judged:
        raise BadInput(f"{baseline} is the only contender that this run judges; choose another baseline")
    run = replace(record.run, baseline=baseline, baseline_origin="chosen afterwards", judged=judged)
    return replace(record, run=run, declared=record.declared or record.run)


def judge(record: Record) -> Judgement:
    peaks = peaks_of(record.environment, record.run.device)
    name = device_name(record)
    observed = Observed(record, peaks)
    results = {case.name: _results(record, case, observed) for case in record.cases}
    family = [
        (case, i)
        for case, entries in results.items()
        for i, result in enumerate(entries)
        if result.comparison and result.contender in record.run.judged
    ]
    measured = {contender.name for contender in record.measured}
    contenders = [name for name in record.run.judged if name in measured]

    by_clock = _cases_by_clock(record)
    heads = [(name, clock) for clock in by_clock for name in contenders]

    def grid(name: str, clock: str, adjusted_p: float = 1.0, family: int = 1) -> Grid:
        of_cases = {case: _of(results[case], name) for case in by_clock[clock]}
        return summarise(record, name, clock, of_cases, adjusted_p, family)

    # A single case has no headline of its own: its claim is the headline. Times by different clocks are not averaged.
    whole = [(name, clock) for name, clock in heads if len(by_clock[clock]) > 1]
    means = [grid(name, clock).interval for name, clock in whole]
    headlines = [mean.p if mean else 1.0 for mean in means]
    comparisons = [_comparison(results[case][i]) for case, i in family]
    judged = judge_family(comparisons, record.declared_processes, headlines, alpha_of(record))
    adjusted = dict(zip(whole, adjust(comparisons, headlines)[len(comparisons) :], strict=True))
    together = len(comparisons) + len(headlines)
    for (case, i), comparison in zip(family, judged, strict=True):
        results[case][i] = replace(results[case][i], comparison=comparison)
    cases = tuple(_case(record, facts, tuple(results[facts.name]), peaks, name) for facts in record.cases)
    grids = tuple(grid(name, clock, adjusted.get((name, clock), 1.0), together) for name, clock in heads)
    warnings = (*warnings_of(record), *view_warnings(record, cases))
    return Judgement(record, name, peaks, cases, grids, warnings)


def _cases_by_clock(record: Record) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {} if record.cases else {DEFAULT_CLOCK: []}
    for case in record.cases:
        found.setdefault(str(case.params.get("clock", DEFAULT_CLOCK)), []).append(case.name)
    return found


def _of(results: Sequence[Result], contender: str) -> Result:
    return next(r for r in results if r.contender == contender)


def device_name(record: Record) -> str:
    """Return the name of the device that the work ran on, with the number of threads on a CPU."""
    part: Any = record.environment.get("gpu" if record.run.device == "cuda" else "cpu")
    name = part.get("name") if isinstance(part, dict) else None
    name = name if isinstance(name, str) and name else f"unknown {record.run.device}"
    if record.run.device == "cpu":
        threads = record.protocol.threads
        name += f" ({threads} thread{'s' if threads > 1 else ''})"
    return name


def _case(
    record: Record, facts: CaseFacts, results: tuple[Result, ...], peaks: Peaks | None, device: str
) -> CaseJudgement:
    bound, resident = _limit(record, facts, peaks)
    wanted = packaged()
    column = wanted.column(device) if record.run.device == "cuda" else None
    target = target_for(wanted.of_column(column), record.run.suite, facts)
    target_label = label(target.target_s, bound, target.launches) if target and target.target_s and bound else None
    return CaseJudgement(facts, bound, target, target_label, resident, results)


def _limit(record: Record, facts: CaseFacts, peaks: Peaks | None) -> tuple[Limit | None, bool]:
    """Return the limit of a case, without the bytes that the L2 cache may have served, and whether the inputs stay in
    that cache."""
    cache = cache_of(record, facts)
    moved = max(0, facts.bytes - cache.served_bytes)
    return limit(peaks, facts.flops, moved, str(facts.params.get("dtype"))), cache.resident


def _results(record: Record, case: CaseFacts, observed: Observed) -> list[Result]:
    bound, _ = _limit(record, case, observed.peaks)
    passed: dict[str, Latency] = {}
    statuses: dict[str, tuple[str, str | None]] = {}
    for contender in record.measured:
        name = contender.name
        status, reason = figures.status_of(record, case.name, name)
        latency = figures.latency_of(record, case.name, name) if status == "PASSED" else None
        if latency and (invalid := observed.beyond_physics(case, name, bound)):
            status, reason, latency = "INVALID", invalid, None
        statuses[name] = status, reason
        if latency:
            passed[name] = latency
    return [_result(record, case, c.name, statuses[c.name], passed, observed) for c in record.measured]


def _result(
    record: Record,
    case: CaseFacts,
    name: str,
    status: tuple[str, str | None],
    passed: dict[str, Latency],
    observed: Observed,
) -> Result:
    outcomes, latency = figures.outcomes_of(record, case.name, name), passed.get(name)
    comparison = compare_on(record, case, name, passed, observed.watched, record.seconds)
    if comparison:
        sequential, free = sequential_thetas(record, case.name, name), unthrottled_thetas(record, case.name, name)
        comparison = comparison.with_views(sequential, free, record.protocol.confidence)
    return Result(
        contender=name,
        status=status[0],
        reason=status[1],
        latency=latency,
        rates=figures.rates_of(case, latency, observed.peaks) if latency else None,
        memory=figures.memory_of(outcomes),
        errors=figures.errors_of(outcomes),
        difference_to_flash=latency.median / passed[FLASH].median - 1 if latency and FLASH in passed else None,
        comparison=comparison,
    )


def compare_on(
    record: Record,
    case: CaseFacts,
    contender: str,
    passed: Mapping[str, Latency],
    watched: Watched,
    seconds: Seconds,
) -> Comparison | None:
    """Return the comparison of a contender with the record's baseline on a case; None if it is the baseline, or if one
    of the two is not among the latencies that `passed` has of this case. `seconds` are the record's: one `against`
    another baseline would have to sort its samples again."""
    baseline = record.run.baseline
    if contender == baseline or not passed.keys() >= {contender, baseline}:
        return None
    centres = []
    for process in sorted(record.finished_attempts):
        times = {name: seconds.get((process, case.name, name), {}) for name in (contender, baseline)}
        if theta := log_ratios(times, contender, baseline):
            centres.append(centre(process, theta))
    if not centres:
        return None
    together = len(record.cases) * len({*record.run.judged} & {c.name for c in record.measured})
    clock = str(case.params.get("clock", DEFAULT_CLOCK))
    shorter_s = min(passed[contender].median, passed[baseline].median)
    return compare(
        contender,
        baseline,
        centres,
        floor_for(record.calibration, clock, shorter_s, together),
        record.protocol.confidence,
        timers_of(record, watched, case, contender),
        clock,
        length_of(shorter_s),
    )


def _comparison(result: Result) -> Comparison:
    assert result.comparison is not None
    return result.comparison
