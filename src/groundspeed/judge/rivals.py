"""A judged contender against the best of its rivals: the rival against which it stands worst."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from groundspeed.evidence.record import ContenderFacts
from groundspeed.judge.claims import interpreted
from groundspeed.judge.grid import Grid, summarise
from groundspeed.judge.judgement import CaseJudgement, Judgement, against, compare_on
from groundspeed.judge.timers import Watched, watched

OURS = "ours"


@dataclass(frozen=True)
class BestRival:
    """The least favourable of the means against each rival: that whose interval reaches lowest. The rival with the
    luckiest samples is not asked for."""

    grid: Grid
    """The contender over all cases that it passed, with this rival as the baseline; nothing in it is judged."""
    rivals: int
    """How many rivals did all of these cases."""
    declared: int
    """The number of cases of the run by this clock."""
    left_out: tuple[str, ...]
    """Rivals that were measured, but did not pass all of these cases."""
    doubt: str | None
    """Why no claim may rest on it: a doubt about the mean against this rival, or about that against another, which may
    be lower than it seems."""

    @property
    def below_floor(self) -> bool:
        """Whether the interval excludes 1, but the mean is below the floor."""
        theta, floor = self.grid.interval, self.grid.floor
        return bool(theta and floor and theta.low * theta.high > 0 and abs(theta.mean) <= floor.value)


def best_rivals(judgement: Judgement) -> Iterator[BestRival]:
    """Yield the best rival of each judged contender by each clock, if at least two rivals did all cases that the
    contender passed. There is none if the run supports no claim about the contender for a reason that has nothing to do
    with its baseline: it was interrupted or has one process, or the contender is wrong on a case."""
    record = judgement.record
    if not record.complete or record.declared_processes == 1 or interpreted(record):
        return
    seen = watched(record)
    for grid in judgement.grids:
        if not grid.broken:
            found = _best(judgement, grid, seen)
            yield from [found] if found else []


def is_rival(contender: ContenderFacts) -> bool:
    """Return whether a contender is neither ours nor the user's own: of those, the record has a hash of the code."""
    return contender.source_sha256 is None and contender.name != OURS and not contender.name.startswith(f"{OURS}-")


def _best(judgement: Judgement, grid: Grid, seen: Watched) -> BestRival | None:
    names, who = set(grid.names), grid.contender
    cases = [case for case in judgement.cases if case.facts.name in names and case.result(who).latency]
    rivals = [c.name for c in judgement.record.measured if is_rival(c) and c.name != who]
    able = [name for name in rivals if all(case.result(name).latency for case in cases)]
    if not cases or len(able) < 2:
        return None
    grids = [_over(judgement, grid, rival, cases, seen) for rival in able]
    worst = min((g for g in grids if g.interval), key=lambda g: g.interval.low if g.interval else 0.0, default=None)
    if worst is None:
        return None
    elsewhere = next((f"against {g.baseline}, {g.doubt}" for g in grids if g.doubt), None)
    left_out = tuple(name for name in rivals if name not in able)
    return BestRival(worst, len(able), grid.cases, left_out, worst.doubt or elsewhere)


def _over(judgement: Judgement, grid: Grid, rival: str, cases: list[CaseJudgement], seen: Watched) -> Grid:
    """Return what `show --baseline RIVAL` finds over these cases. It is compared but not judged again, which would take
    several times as long."""
    record = judgement.record
    other = record if rival == record.run.baseline else against(record, rival)
    results = {}
    for case in cases:
        result = case.result(grid.contender)
        if rival != record.run.baseline:
            passed = {r.contender: r.latency for r in case.results if r.latency}
            again = compare_on(other, case.facts, grid.contender, passed, seen, record.seconds)
            result = replace(result, comparison=again)
        results[case.facts.name] = result
    return summarise(other, grid.contender, grid.clock, results)
