"""Whether new evidence agrees with the claims of an earlier run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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
            clock = "" if grid.clock == "default" else f" @{grid.clock}"
            what = f"all {grid.cases} cases{clock}"
            yield Repeated(what, grid.contender, (verdict, grid.interval), found, "it was not measured here")


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
