"""Whether a later run agrees with the claims of an earlier one, and how far those claims can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.record import Record
from groundspeed.judge.grid import Grid
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.statistics import Interval
from groundspeed.judge.verdict import Verdict

Answer = Literal["agrees", "disagrees", "too weak", "not measured"]


@dataclass(frozen=True)
class Repeated:
    """One claim in the earlier and in the later run."""

    what: str
    """The case, or all cases of one clock."""
    contender: str
    then: tuple[Verdict, Interval]
    now: tuple[Verdict | None, Interval | None]
    why: str
    """Why it was not measured now, if it was not."""

    @property
    def answer(self) -> Answer:
        verdict, interval = self.now
        if interval is None:
            return "not measured"
        if verdict in (None, "UNCLEAR"):
            return "too weak"
        return "agrees" if verdict == self.then[0] else "disagrees"

    @property
    def apart(self) -> bool:
        """Whether the two intervals do not overlap. If so, the size was not reproduced, whatever the verdict."""
        then, now = self.then[1], self.now[1]
        return now is not None and (now.low > then.high or now.high < then.low)


def repeated(then: Judgement, now: Judgement) -> list[Repeated]:
    """Return every claim of the earlier run with what the new run says about it, headlines first. If the file of the
    contender or of the baseline has changed, the new run says nothing about the claim."""
    before = {c.name: c.source_sha256 for c in then.record.measured}
    changed = {c.name for c in now.record.measured if before.get(c.name, c.source_sha256) != c.source_sha256}
    if then.record.run.baseline in changed:
        changed |= set(before)
    return [
        replace(claim, now=(None, None), why="its file has changed") if claim.contender in changed else claim
        for claim in (*_headlines(then, now), *_cases(then, now))
    ]


def _headlines(then: Judgement, now: Judgement) -> Iterator[Repeated]:
    grids = {(grid.contender, grid.clock): grid for grid in now.grids}
    for grid in then.grids:
        verdict = _verdict(grid)
        if grid.cases > 1 and grid.interval and verdict:
            new = grids.get((grid.contender, grid.clock))
            found = (_verdict(new), new.interval) if new else (None, None)
            yield Repeated(all_cases(grid), grid.contender, (verdict, grid.interval), found, "it was not measured here")


def all_cases(grid: Grid) -> str:
    """Return what a headline is about, in words."""
    return f"all {grid.cases} cases{'' if grid.clock == DEFAULT_CLOCK else f' @{grid.clock}'}"


def _verdict(grid: Grid) -> Verdict | None:
    """Return the verdict of a headline, or None if it makes no claim."""
    if grid.broken:
        return None
    if grid.same:
        return "SAME"
    if grid.decided and grid.interval:
        return "FASTER" if grid.interval.mean > 0 else "SLOWER"
    return None


def _cases(then: Judgement, now: Judgement) -> Iterator[Repeated]:
    results = {(case.facts.name, r.contender): r for case in now.cases for r in case.results}
    for case in then.cases:
        for result in case.results:
            c = result.comparison
            if c is None or c.verdict in (None, "UNCLEAR"):
                continue
            new = results.get((case.facts.name, result.contender))
            found = new.comparison if new else None
            yield Repeated(
                case.facts.name,
                result.contender,
                (c.verdict, c.interval),
                (found.verdict, found.interval) if found else (None, None),
                f"{new.status}: {new.reason}" if new and new.status != "PASSED" else "it was not measured here",
            )


def overall(answers: list[Repeated]) -> Literal["reproduced", "not reproduced", "not decided"]:
    words = {repeated.answer for repeated in answers}
    if "disagrees" in words:
        return "not reproduced"
    return "reproduced" if words == {"agrees"} else "not decided"


@dataclass(frozen=True)
class Repetition:
    """What another run of the same work says."""

    elsewhere: bool
    """Whether it ran on other hardware."""
    claims: dict[tuple[str, str], Repeated]
    """(what the claim is about, contender) → the repeated claim."""


def with_repetitions(judgement: Judgement, others: Sequence[Judgement]) -> Judgement:
    """Return the same judgement with what repetitions of its run say. Only the same contenders can repeat a claim: in
    the same version, and from the same file if they come from one."""
    found = []
    for other in others:
        if not is_repetition(judgement.record, other.record):
            continue
        same = _identical(judgement.record, other.record)
        claims = [claim for claim in repeated(judgement, other) if {claim.contender, other.record.run.baseline} <= same]
        by_claim = {(claim.what, claim.contender): claim for claim in claims}
        found.append(Repetition(is_elsewhere(judgement.record, other.record), by_claim))
    return replace(judgement, repetitions=tuple(found))


def is_repetition(then: Record, now: Record) -> bool:
    """Return whether one run repeats the work of another: measured after it, with its own random draws."""
    cases = {case.name: case.params for case in now.cases}
    return (
        (then.run.suite, then.run.baseline) == (now.run.suite, now.run.baseline)
        and all(cases.get(case.name, case.params) == case.params for case in then.cases)
        and then.protocol.seed != now.protocol.seed
        and then.run.finished <= now.run.started
    )


def _identical(then: Record, now: Record) -> set[str]:
    """Return the contenders that are the same in both runs."""
    before = {c.name: (c.version, c.source_sha256) for c in then.measured}
    return {c.name for c in now.measured if before.get(c.name) == (c.version, c.source_sha256)}


def is_elsewhere(then: Record, now: Record) -> bool:
    """Return whether two runs were certainly on different hardware: another CPU, or other GPUs, all of them known."""
    if then.run.device != now.run.device:
        return True
    if then.run.device == "cuda":
        return None not in gpus(then) | gpus(now) and gpus(then).isdisjoint(gpus(now))
    before, after = (record.environment.get("cpu") for record in (then, now))
    if not isinstance(before, dict) or not isinstance(after, dict):
        return False
    return any(before.get(key) != after.get(key) for key in ("name", "cores"))


def gpus(record: Record) -> frozenset[str | None]:
    """Return the identifiers of the GPUs that the processes ran on."""
    return frozenset(process.gpu for process in record.processes)


def trust(judgement: Judgement, what: str, contender: str) -> str:
    """Return how far a claim can be trusted, for example `cooperative` or `isolated, reproduced elsewhere`: whether its
    contender shared a process with those it is compared with, and what repetitions say."""
    words = ["isolated" if judgement.record.protocol.isolated else "cooperative"]
    found = [(r.claims[what, contender], r.elsewhere) for r in judgement.repetitions if (what, contender) in r.claims]
    agreeing = [(claim.apart, elsewhere) for claim, elsewhere in found if claim.answer == "agrees"]
    if any(claim.answer == "disagrees" for claim, _ in found):
        words.append("not reproduced")
    elif agreeing:
        close = [elsewhere for apart, elsewhere in agreeing if not apart]
        word = "reproduced" if close else "verdict reproduced, size not"
        words.append(f"{word} elsewhere" if close and any(close) else word)
    return ", ".join(words)
