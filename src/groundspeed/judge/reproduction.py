"""Whether new evidence agrees with the claims of an earlier run, and how far they can be trusted for that."""

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
    """One claim, then and now."""

    what: str
    """The case, or all of them by a clock."""
    contender: str
    then: tuple[Verdict, Interval]
    now: tuple[Verdict | None, Interval | None]
    why: str
    """Why it was not measured now, where it was not."""

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
        """Whether the two intervals have nothing in common: then the size is another, whatever the verdict."""
        then, now = self.then[1], self.now[1]
        return now is not None and (now.low > then.high or now.high < then.low)


def repeated(then: Judgement, now: Judgement) -> list[Repeated]:
    """Every claim of the earlier run with what the new one says: headlines first."""
    return [*_headlines(then, now), *_cases(then, now)]


def _headlines(then: Judgement, now: Judgement) -> Iterator[Repeated]:
    grids = {(grid.contender, grid.clock): grid for grid in now.grids}
    for grid in then.grids:
        verdict = _verdict(grid)
        if grid.cases > 1 and grid.interval and verdict:
            new = grids.get((grid.contender, grid.clock))
            found = (_verdict(new), new.interval) if new else (None, None)
            yield Repeated(all_cases(grid), grid.contender, (verdict, grid.interval), found, "it was not measured here")


def all_cases(grid: Grid) -> str:
    """What a headline is about."""
    return f"all {grid.cases} cases{'' if grid.clock == DEFAULT_CLOCK else f' @{grid.clock}'}"


def _verdict(grid: Grid) -> Verdict | None:
    """What a headline says of a mean; None where there is no claim."""
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
    """What another run of the same says."""

    elsewhere: bool
    """Whether it ran on other hardware."""
    answers: dict[tuple[str, str], Answer]
    """(what a claim is about, its contender) → the answer."""


def with_repetitions(judgement: Judgement, others: Sequence[Judgement]) -> Judgement:
    """The same judgement, knowing what repetitions of its run say."""
    found = tuple(
        Repetition(
            hardware(judgement) != hardware(other),
            {(claim.what, claim.contender): claim.answer for claim in repeated(judgement, other)},
        )
        for other in others
    )
    return replace(judgement, repetitions=found)


def hardware(judgement: Judgement) -> tuple[str, frozenset[str | None]]:
    """The model, and of GPUs which ones of that model."""
    return judgement.device_name, gpus(judgement.record)


def gpus(record: Record) -> frozenset[str | None]:
    return frozenset(process.gpu for process in record.processes)


def trust(judgement: Judgement, what: str, contender: str) -> str:
    """How far a claim can be trusted: whether its contender shared a process with those it is compared with, and what
    repetitions say: `cooperative`, `isolated, reproduced elsewhere`, …"""
    words = ["isolated" if judgement.record.protocol.isolated else "cooperative"]
    answers = [(r.answers.get((what, contender)), r.elsewhere) for r in judgement.repetitions]
    if any(answer == "disagrees" for answer, _ in answers):
        words.append("not reproduced")
    elif any(answer == "agrees" for answer, _ in answers):
        far = any(answer == "agrees" and elsewhere for answer, elsewhere in answers)
        words.append("reproduced elsewhere" if far else "reproduced")
    return ", ".join(words)
