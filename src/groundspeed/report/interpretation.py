"""What a run means, in sentences that rules derive from its figures; none of them is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from groundspeed.judge.claims import clock_words, noticed, why, with_interval
from groundspeed.judge.grid import Grid
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.roofline import FAR_BELOW, Roofs, intensity, roofs_of_case, share
from groundspeed.judge.verdict import Comparison
from groundspeed.report import text
from groundspeed.report.alike import together, without_numbers

NAMED = 3
"""The number of cases that a sentence names before it counts the rest."""


def interpretation(judgement: Judgement) -> list[str]:
    """Return the sentences: which contenders are wrong; on which cases each judged contender that is not wrong loses,
    wins, ties and is unclear; and how near the roofs are."""
    grids = of_the_right(judgement)
    found = [*_wrong(judgement), *(sentence for grid in grids for sentence in _against_baseline(judgement, grid))]
    return [text.safe(sentence) for sentence in (*found, *_bounds(judgement), *_shares(judgement))]


WRONG = ("INCORRECT", "INVALID")
"""The statuses of work that was not done. Such a contender has no speed worth telling, on these cases or on others."""


def wrong_ones(judgement: Judgement) -> set[str]:
    return {result.contender for case in judgement.cases for result in case.results if result.status in WRONG}


def of_the_right(judgement: Judgement) -> list[Grid]:
    wrong = wrong_ones(judgement)
    return [grid for grid in judgement.grids if grid.contender not in wrong]


def _wrong(judgement: Judgement) -> Iterator[str]:
    for contender in judgement.record.measured:
        results = [(case, case.result(contender.name)) for case in judgement.cases]
        reasons = {status: [(c, r.reason) for c, r in results if r.status == status] for status in WRONG}
        failed = {status: found for status, found in reasons.items() if found}
        for status, found in failed.items():
            where = f"{len(found)} of {text.plural(len(results), 'case')} ({names_of(case for case, _ in found)})"
            yield f"{contender.name} is {status} on {where}: {found[0][1]}."
        if failed and sum(map(len, failed.values())) < len(results):
            yield f"The speed of {contender.name} on the other cases is not given here, because it is wrong on some."


class Compared(NamedTuple):
    case: CaseJudgement
    comparison: Comparison

    def __str__(self) -> str:
        return f"{with_interval(self.comparison.interval)} on {self.case.facts.name}"


def compared(judgement: Judgement, grid: Grid, verdict: str) -> list[Compared]:
    """Return the cases of a grid that have this verdict, from slow to fast."""
    found = [
        Compared(case, c)
        for case in _cases(judgement, grid)
        if (c := case.result(grid.contender).comparison) and c.verdict == verdict
    ]
    return sorted(found, key=lambda one: one.comparison.ratio)


def _cases(judgement: Judgement, grid: Grid) -> list[CaseJudgement]:
    names = set(grid.names)
    return [case for case in judgement.cases if case.facts.name in names]


def _against_baseline(judgement: Judgement, grid: Grid) -> Iterator[str]:
    who, clock = grid.contender, clock_words(judgement, grid.clock)
    of = f"of {text.plural(grid.cases, 'case')}{clock}"
    if lost := compared(judgement, grid, "SLOWER"):
        yield f"{who} is slower than {grid.baseline} on {len(lost)} {of}: {_span(lost)}."
    if won := compared(judgement, grid, "FASTER"):
        yield f"{who} is faster than {grid.baseline} on {len(won)} {of}: {_span(won)}."
    if level := compared(judgement, grid, "SAME"):
        least = max((c.detectable for _, c in level if c.detectable is not None), default=None)
        said = noticed(least).removeprefix("only ")
        yield f"{who} is the same as {grid.baseline} within 1% on {len(level)} {of}: {names_of(level)}; {said}."
    reasons: dict[tuple[str, ...], list[Compared]] = {}
    for one in compared(judgement, grid, "UNCLEAR"):
        reasons.setdefault(without_numbers(why(one.comparison)), []).append(one)
    for cases in reasons.values():
        reason = together([why(one.comparison) for one in cases])
        yield f"{who} against {grid.baseline} is unclear on {len(cases)} {of} ({names_of(cases)}): {reason}."


def _span(found: Sequence[Compared]) -> str:
    """Return the range from the least favourable case to the most favourable."""
    return str(found[0]) if len(found) == 1 else f"from {found[0]} to {found[-1]}"


def names_of(cases: Iterable[Compared | CaseJudgement]) -> str:
    names = [(one.case if isinstance(one, Compared) else one).facts.name for one in cases]
    more = f" and {text.plural(len(names) - NAMED, 'more', '')}" if len(names) > NAMED + 1 else ""
    return ", ".join(names[:NAMED] if more else names) + more


class Standing(NamedTuple):
    """A case under the roofs of its dtype."""

    case: CaseJudgement
    roofs: Roofs
    intensity: float


def _standing(judgement: Judgement) -> list[Standing]:
    found = []
    for case in judgement.cases:
        roofs, x = roofs_of_case(judgement, case), intensity(case.facts)
        if roofs and x is not None and not case.l2_resident:
            found.append(Standing(case, roofs[0], x))
    return found


def _bounds(judgement: Judgement) -> Iterator[str]:
    found = _standing(judgement)
    for origin in dict.fromkeys(one.roofs.origin for one in found):
        alike = [one for one in found if one.roofs.origin == origin]
        memory = sum(one.roofs.bound(one.intensity) == "memory" for one in alike)
        ridges = sorted({round(one.roofs.ridge) for one in alike})
        at = " to ".join(dict.fromkeys(str(ridge) for ridge in (ridges[0], ridges[-1])))
        yield (
            f"By the {origin} roofs, which meet at {at} FLOP per byte, compute limits {len(alike) - memory} and memory "
            f"limits {memory} of {text.plural(len(alike), 'case')}{_but_resident(judgement)}."
        )
    far = [one.case for one in found if (best := _best_share(judgement, one.case)) is not None and best < FAR_BELOW]
    if far:
        yield (
            f"On {text.plural(len(far), 'case')} ({names_of(far)}) even the fastest contender reaches under "
            f"{FAR_BELOW:.0%} of what the roofs allow: launches and latency set the time there, not compute or "
            "memory."
        )


def _but_resident(judgement: Judgement) -> str:
    """Return the clause about the cases that a count of cases under the roofs leaves out."""
    resident = sum(case.l2_resident for case in judgement.cases)
    return f"; the inputs of {text.plural(resident, 'other')} stay in the L2 cache" if resident else ""


def _best_share(judgement: Judgement, case: CaseJudgement) -> float | None:
    wrong = wrong_ones(judgement)
    right = (result for result in case.results if result.contender not in wrong)
    return max((s for result in right if (s := share(judgement, case, result)) is not None), default=None)


def _shares(judgement: Judgement) -> Iterator[str]:
    """Yield how much of the roofs the judged contenders and the baseline reach."""
    standing, wrong = _standing(judgement), wrong_ones(judgement)
    measured = [c.name for c in judgement.record.measured if c.name not in wrong]
    for name in dict.fromkeys((*judgement.record.run.judged, judgement.record.run.baseline)):
        if name not in measured:
            continue
        found = [(s, one) for one in standing if (s := share(judgement, one.case, one.case.result(name))) is not None]
        if found:
            (least, worst), (most, best) = min(found, key=lambda f: f[0]), max(found, key=lambda f: f[0])
            roofs = " or ".join(dict.fromkeys(one.roofs.origin for _, one in found))
            low = f"{text.share(least)} ({worst.case.facts.name}) to " if len(found) > 1 else ""
            over = "; a measured roof is the best that the calibration saw, not a limit" if most > 1 else ""
            yield (
                f"{name} reaches {low}{text.share(most)} ({best.case.facts.name}) of what the {roofs} roofs "
                f"allow{over}."
            )
