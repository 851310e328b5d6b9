"""What a run means and what to do next, in sentences that rules make of its figures: nothing here is typed by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from groundspeed.judge.claims import BROKEN, clock_words, ratio_text, with_interval
from groundspeed.judge.grid import Grid
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.roofline import FAR_BELOW, Roofs, intensity, roofs_of_case, share
from groundspeed.judge.verdict import BIASED, Comparison
from groundspeed.report import text, words
from groundspeed.report.alike import together, without_numbers

NAMED = 3
"""Cases that a sentence names before it counts the rest."""

NOTHING = "Nothing follows from this run: there is no second contender with a time."


def interpretation(judgement: Judgement) -> list[str]:
    """What is wrong; where each judged contender that is not wins, loses, ties and cannot be told; and how near the
    roofs are."""
    grids = _of_the_right(judgement)
    found = [*_wrong(judgement), *(sentence for grid in grids for sentence in _against_baseline(judgement, grid))]
    return [text.safe(sentence) for sentence in (*found, *_bounds(judgement), *_shares(judgement))]


def recommendations(judgement: Judgement) -> list[str]:
    """Whom to take for what, what to mend, and what would settle the rest."""
    found = [*_mend(judgement), *_take(judgement), *_settle(judgement), *_begin_with(judgement)]
    if judgement.record.declared_processes == 1:
        found.append("Measure in several processes, as every preset does: what one shows, the next may not.")
    return [text.safe(sentence) for sentence in found] or [NOTHING]


WRONG = ("INCORRECT", "INVALID")
"""The work was not done: how fast it was not done, on these cases or on others, is nothing to tell."""


def _wrong_ones(judgement: Judgement) -> set[str]:
    return {result.contender for case in judgement.cases for result in case.results if result.status in WRONG}


def _of_the_right(judgement: Judgement) -> list[Grid]:
    wrong = _wrong_ones(judgement)
    return [grid for grid in judgement.grids if grid.contender not in wrong]


def _wrong(judgement: Judgement) -> Iterator[str]:
    for contender in judgement.record.measured:
        results = [(case, case.result(contender.name)) for case in judgement.cases]
        reasons = {status: [(c, r.reason) for c, r in results if r.status == status] for status in WRONG}
        failed = {status: found for status, found in reasons.items() if found}
        for status, found in failed.items():
            where = f"{len(found)} of {text.plural(len(results), 'case')} ({_names(case for case, _ in found)})"
            yield f"{contender.name} is {status} on {where}: {found[0][1]}."
        if failed and sum(map(len, failed.values())) < len(results):
            yield f"How fast {contender.name} is on the other cases is not told here: who is wrong is not fast."


class Compared(NamedTuple):
    case: CaseJudgement
    comparison: Comparison

    def __str__(self) -> str:
        return f"{with_interval(self.comparison.interval)} on {self.case.facts.name}"


def _compared(judgement: Judgement, grid: Grid, verdict: str) -> list[Compared]:
    """The cases of a grid with this verdict, from slow to fast."""
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
    if lost := _compared(judgement, grid, "SLOWER"):
        yield f"{who} is slower than {grid.baseline} on {len(lost)} {of}: {_span(lost)}."
    if won := _compared(judgement, grid, "FASTER"):
        yield f"{who} is faster than {grid.baseline} on {len(won)} {of}: {_span(won)}."
    if level := _compared(judgement, grid, "SAME"):
        yield f"{who} is the same as {grid.baseline} within 1% on {len(level)} {of}: {_names(level)}."
    reasons: dict[tuple[str, ...], list[Compared]] = {}
    for one in _compared(judgement, grid, "UNCLEAR"):
        reasons.setdefault(without_numbers(words.why(one.comparison)), []).append(one)
    for cases in reasons.values():
        reason = together([words.why(one.comparison) for one in cases])
        yield f"{who} against {grid.baseline} is unclear on {len(cases)} {of} ({_names(cases)}): {reason}."


def _span(found: Sequence[Compared]) -> str:
    """From the least favourable to the most."""
    return str(found[0]) if len(found) == 1 else f"from {found[0]} to {found[-1]}"


def _names(cases: Iterable[Compared | CaseJudgement]) -> str:
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
            f"By the {origin} roofs, which meet at {at} FLOP to a byte, arithmetic binds {len(alike) - memory} and "
            f"memory {memory} of {text.plural(len(alike), 'case')}{_but_resident(judgement)}."
        )
    far = [one.case for one in found if (best := _best_share(judgement, one.case)) is not None and best < FAR_BELOW]
    if far:
        yield (
            f"On {text.plural(len(far), 'case')} ({_names(far)}) even the fastest contender reaches under "
            f"{FAR_BELOW:.0%} of what the roofs allow: launches and latency set the time there, neither arithmetic nor "
            "memory."
        )


def _but_resident(judgement: Judgement) -> str:
    """What a count of cases under the roofs leaves out."""
    resident = sum(case.l2_resident for case in judgement.cases)
    return f"; the inputs of {text.plural(resident, 'other')} stay in the L2 cache" if resident else ""


def _best_share(judgement: Judgement, case: CaseJudgement) -> float | None:
    wrong = _wrong_ones(judgement)
    right = (result for result in case.results if result.contender not in wrong)
    return max((s for result in right if (s := share(judgement, case, result)) is not None), default=None)


def _shares(judgement: Judgement) -> Iterator[str]:
    """How much of the roofs the judged and the baseline reach."""
    standing, wrong = _standing(judgement), _wrong_ones(judgement)
    measured = [c.name for c in judgement.record.measured if c.name not in wrong]
    for name in dict.fromkeys((*judgement.record.run.judged, judgement.record.run.baseline)):
        if name not in measured:
            continue
        found = [(s, one) for one in standing if (s := share(judgement, one.case, one.case.result(name))) is not None]
        if found:
            (least, worst), (most, best) = min(found, key=lambda f: f[0]), max(found, key=lambda f: f[0])
            roofs = " or ".join(dict.fromkeys(one.roofs.origin for _, one in found))
            low = f"{text.share(least)} ({worst.case.facts.name}) to " if len(found) > 1 else ""
            over = ", for a measured roof is the best that the calibration saw and no limit" if most > 1 else ""
            yield (
                f"Of what the {roofs} roofs allow, {name} reaches {low}{text.share(most)} "
                f"({best.case.facts.name}){over}."
            )


def _mend(judgement: Judgement) -> Iterator[str]:
    for contender in judgement.record.measured:
        results = [(case, case.result(contender.name)) for case in judgement.cases]
        for status in (*BROKEN, "OOM"):
            if hit := [case for case, result in results if result.status == status]:
                yield f"Mend {contender.name} first: {status} on {text.plural(len(hit), 'case')} ({_names(hit)})."


def _take(judgement: Judgement) -> Iterator[str]:
    """The fastest by median on each case, with those of whom the evidence does not tell that they are slower; of who
    is wrong anywhere nobody is advised."""
    broken = {r.contender for case in judgement.cases for r in case.results if r.status in BROKEN}
    by_clock: dict[str, dict[tuple[str, ...], list[CaseJudgement]]] = {}
    biased: dict[str, None] = {}
    for case in judgement.cases:
        if any(result.comparison and result.comparison.floor.alarm for result in case.results):
            biased[case.clock] = None
        elif who := _fastest([r for r in case.results if r.latency and r.contender not in broken], judgement):
            by_clock.setdefault(case.clock, {}).setdefault(who, []).append(case)
    for clock, groups in by_clock.items():
        total = sum(map(len, groups.values()))
        said = []
        for who, cases in sorted(groups.items(), key=lambda group: -len(group[1])):
            level = " (the evidence does not tell them apart)" if len(who) > 1 else ""
            where = f"all {total} cases" if len(cases) == total > 1 else f"{len(cases)} of {total} ({_names(cases)})"
            said.append(f"{' or '.join(who)}{level} on {where}")
        yield f"By median time{clock_words(judgement, clock)}, take {'; '.join(said)}."
    for clock in biased:
        yield f"Whom to take{clock_words(judgement, clock)}, cannot be said: {BIASED}."
    if by_clock:
        yield ("Where two have no verdict, such advice rests on their medians and the intervals of these.")


def _fastest(results: Sequence[Result], judgement: Judgement) -> tuple[str, ...]:
    """In the order of the record, so that the same ones are one group whoever is a hair ahead; nobody where there is
    nobody else, or no interval, as of a single process. Whom a verdict calls slower than another is out, whoever that
    is; of the rest, where the two have a verdict it decides, and else whether the intervals of their times overlap."""
    timed = {r.contender: r.latency for r in results if r.latency and math.isfinite(r.latency.high)}
    if len(timed) < 2:
        return ()
    verdicts = {r.contender: r.comparison.verdict for r in results if r.comparison}
    baseline = judgement.record.run.baseline
    beaten = {name for name in timed if verdicts.get(name) == "SLOWER"}
    beaten |= {baseline} if any(verdicts.get(name) == "FASTER" for name in timed) else set()
    left = [name for name in timed if name not in beaten]
    first = min(left, key=lambda name: timed[name].median)
    level = {name for name in left if timed[name].low <= timed[first].high}
    level |= {name for name in left if name == baseline and verdicts.get(first) in ("SAME", "UNCLEAR")}
    level |= {name for name in left if first == baseline and verdicts.get(name) in ("SAME", "UNCLEAR")}
    return tuple(name for name in left if name in level)


def _settle(judgement: Judgement) -> Iterator[str]:
    wrong = _wrong_ones(judgement)
    right = [r.comparison for case in judgement.cases for r in case.results if r.contender not in wrong]
    unclear = [c for c in right if c and c.verdict == "UNCLEAR"]
    helped = [c.needed for c in unclear if c.needed is not None]
    if helped:
        yield (
            f"{text.plural(len(helped), 'unclear comparison')} of {len(unclear)} would be settled by more processes: "
            f"--processes {max(helped)} for all of them, {min(helped)} for the first, at this noise. Whatever that run "
            "says then counts; the better of two does not."
        )
    if len(helped) < len(unclear):
        yield (
            f"More processes would not settle {text.plural(len(unclear) - len(helped), 'unclear comparison')}; the "
            "reason beside each says what stands in its way."
        )


def _begin_with(judgement: Judgement) -> Iterator[str]:
    for grid in _of_the_right(judgement):
        lost = _compared(judgement, grid, "SLOWER")
        if not lost:
            continue
        case, comparison = lost[0]
        behind = f"To make {grid.contender} faster, begin with {case.facts.name}{clock_words(judgement, grid.clock)}"
        roofs, x = roofs_of_case(judgement, case), intensity(case.facts)
        reached = share(judgement, case, case.result(grid.contender))
        under = ""
        if roofs and x is not None and reached is not None:
            binds = "arithmetic" if roofs[0].bound(x) == "compute" else "memory"
            under = f", at {text.share(reached)} of the {roofs[0].origin} roof, where {binds} binds"
        yield f"{behind}: there it is furthest behind ({ratio_text(comparison.ratio)}×){under}."
