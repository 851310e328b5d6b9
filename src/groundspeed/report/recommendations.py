"""What to do next, by rules from the figures of a run: what was seen, its likely cause, what to try."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from groundspeed.judge.claims import clock_words, ratio_text
from groundspeed.judge.grid import BROKEN
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.roofline import intensity, roofs_of_case, share
from groundspeed.judge.verdict import BIASED, Comparison
from groundspeed.report import text
from groundspeed.report.interpretation import compared, names_of, of_the_right, wrong_ones
from groundspeed.report.page import Column, Table

NOTHING = "This run has no recommendations: there is no second contender with a time."
NOTE = (
    "If two contenders have a verdict, it decides, and UNCLEAR puts neither ahead; if they have none, such advice "
    "rests on their medians and the intervals of these."
)


class Advice(NamedTuple):
    seen: str
    cause: str
    """Likely, but not known."""
    try_: str


def table(judgement: Judgement) -> Table:
    """Return the table of recommendations, without rows if there are none."""
    found = recommendations(judgement)
    note = NOTE if any(advice.try_.startswith(TAKE) for advice in found) else ""
    columns = [Column(title) for title in ("what was seen", "likely cause", "what to try")]
    return Table("Recommendations", columns, [list(advice) for advice in found], note)


def recommendations(judgement: Judgement) -> list[Advice]:
    """Return what to fix, which contender to use for what, what would settle the rest, and where to begin."""
    found = [*_mend(judgement), *_take(judgement), *_settle(judgement), *_begin_with(judgement)]
    if judgement.record.declared_processes == 1:
        found.append(
            Advice("a single process", "another process may differ", "measure in several, as every preset does")
        )
    return [Advice(*map(text.safe, advice)) for advice in found]


def _mend(judgement: Judgement) -> Iterator[Advice]:
    for contender in judgement.record.measured:
        results = [(case, case.result(contender.name)) for case in judgement.cases]
        for status in (*BROKEN, "OOM"):
            if hit := [(case, result) for case, result in results if result.status == status]:
                where = f"{text.plural(len(hit), 'case')} ({names_of(case for case, _ in hit)})"
                yield Advice(f"{contender.name} is {status} on {where}", str(hit[0][1].reason), "fix it first")


TAKE = "use "
BY_VERDICT, BY_INTERVAL = "verdict", "interval"
SLOWER_BY = {
    (BY_VERDICT,): "all others are slower, by verdict",
    (BY_INTERVAL,): "all others are slower, by interval; there is no verdict",
    (BY_INTERVAL, BY_VERDICT): "all others are slower, by verdict or, without one, by interval",
}


class Fastest(NamedTuple):
    who: tuple[str, ...]
    """In the order of the record, so that the same contenders form one group whichever of them is slightly ahead."""
    unclear: tuple[str, ...]
    """Those of them whose verdict UNCLEAR alone keeps one contender from being ahead."""


def _take(judgement: Judgement) -> Iterator[Advice]:
    """Recommend the fastest by median on each case, with those that the evidence does not show to be slower. A
    contender that is wrong on any case is never recommended."""
    broken = {r.contender for case in judgement.cases for r in case.results if r.status in BROKEN}
    by_clock: dict[str, dict[Fastest, list[CaseJudgement]]] = {}
    slower_by: dict[tuple[str, Fastest], set[str]] = {}
    biased: dict[str, None] = {}
    for case in judgement.cases:
        if any(result.comparison and result.comparison.floor.alarm for result in case.results):
            biased[case.clock] = None
        elif found := _fastest([r for r in case.results if r.latency and r.contender not in broken], judgement):
            fastest, by = found
            by_clock.setdefault(case.clock, {}).setdefault(fastest, []).append(case)
            slower_by.setdefault((case.clock, fastest), set()).update(by)
    for clock, groups in by_clock.items():
        total = sum(map(len, groups.values()))
        for fastest, cases in sorted(groups.items(), key=lambda group: -len(group[1])):
            where = f"all {total} cases" if len(cases) == total > 1 else f"{len(cases)} of {total} ({names_of(cases)})"
            how = tuple(sorted(slower_by[clock, fastest]))
            advice = _advice(fastest, how, where + clock_words(judgement, clock), judgement.record.run.baseline)
            timed = {r.contender: None for case in cases for r in case.results if r.latency and r.contender in broken}
            left_out = f"; not counted, having failed on other cases: {', '.join(timed)}" if timed else ""
            yield advice._replace(cause=advice.cause + left_out)
    for clock in biased:
        seen = f"no contender can be called the fastest{clock_words(judgement, clock)}"
        yield Advice(seen, BIASED, "calibrate again on an otherwise idle machine")


def _advice(fastest: Fastest, slower_by: tuple[str, ...], where: str, baseline: str) -> Advice:
    who, unclear = fastest
    if unclear:
        verb = "is" if len(unclear) == 1 else "are"
        open_ = "and intervals cannot decide what a verdict leaves open"
        why = f"{' and '.join(unclear)} against {baseline} {verb} UNCLEAR, {open_}"
        return Advice(
            f"neither {' nor '.join(who)} ahead on {where}",
            why,
            "settle that first; the reason of that verdict says how",
        )
    if len(who) == 1:
        return Advice(f"{who[0]} ahead on {where}", SLOWER_BY[slower_by], f"{TAKE}{who[0]} there")
    any_, seen = "either" if len(who) == 2 else "any", f"{', '.join(who[:-1])} and {who[-1]} first on {where}"
    return Advice(seen, "the evidence does not show which is faster", f"{TAKE}{any_}, or measure more")


def _fastest(results: Sequence[Result], judgement: Judgement) -> tuple[Fastest, set[str]] | None:
    """Return the fastest and what shows that the others are slower; None if fewer than two contenders have a time with
    an interval, which a single process does not give. A contender is out if verdicts make it slower than another one in
    `results`; a baseline that is wrong on another case is not in `results`. Between two that have no verdict, the
    intervals of their times decide."""
    timed = {r.contender: r.latency for r in results if r.latency and math.isfinite(r.latency.high)}
    if len(timed) < 2:
        return None
    comparisons = {r.contender: r.comparison for r in results if r.comparison}
    verdicts = {name: comparison.verdict for name, comparison in comparisons.items()}
    baseline = judgement.record.run.baseline
    outrun = any(verdicts.get(name) == "FASTER" for name in timed)
    beaten = {name for name in timed if verdicts.get(name) == "SLOWER" and (outrun or baseline in timed)}
    beaten |= {baseline} if outrun else set()
    left = [name for name in timed if name not in beaten]
    first = min(left, key=lambda name: timed[name].median)
    level: set[str] = set()
    unclear: set[str] = set()
    for name in left:
        other = name if first == baseline else first
        judged = comparisons.get(other) if baseline in (first, name) else None
        if timed[name].low <= timed[first].high or (judged and _may_be_alike(judged)):
            level.add(name)
        elif judged and judged.verdict == "UNCLEAR":
            level.add(name)
            unclear.add(other)
        elif verdicts.get(first) == "UNCLEAR" and verdicts.get(name) in ("FASTER", "SAME"):
            # If `first` were ahead of a contender that is no slower than the baseline, it would also be ahead of the
            # baseline.
            level.add(name)
            unclear.add(first)
    has_verdict = first == baseline or verdicts.get(first) == "FASTER"
    slower_by = {BY_VERDICT if has_verdict and name in beaten else BY_INTERVAL for name in timed if name not in level}
    return Fastest(*(tuple(name for name in left if name in some) for some in (level, unclear))), slower_by


def _may_be_alike(c: Comparison) -> bool:
    """Return whether the two may be equally fast. UNCLEAR alone does not say so: outliers or disagreeing timers may
    leave open only how large a difference is."""
    return c.verdict == "SAME" or (c.verdict == "UNCLEAR" and c.interval.low <= 0 <= c.interval.high)


def _settle(judgement: Judgement) -> Iterator[Advice]:
    wrong = wrong_ones(judgement)
    right = [r.comparison for case in judgement.cases for r in case.results if r.contender not in wrong]
    unclear = [c for c in right if c and c.verdict == "UNCLEAR"]
    helped = [c.needed for c in unclear if c.needed is not None]
    if helped:
        yield Advice(
            f"{len(helped)} of {text.plural(len(unclear), 'unclear comparison')} that more processes would settle",
            "too few processes for this noise",
            f"--processes {max(helped)}{_of_all(helped)}, at this noise level; that run then counts, not the better "
            "of the two",
        )
    if len(helped) < len(unclear):
        yield Advice(
            f"{len(unclear) - len(helped)} of {text.plural(len(unclear), 'unclear comparison')} that more processes "
            "would not settle",
            "the reason beside each speed-up",
            "what that reason names; if it is noise, a quieter machine or longer work, then groundspeed calibrate",
        )


def _of_all(helped: Sequence[int]) -> str:
    return f" for all of them, {min(helped)} for the first" if min(helped) < max(helped) else ""


def _begin_with(judgement: Judgement) -> Iterator[Advice]:
    for grid in of_the_right(judgement):
        lost = compared(judgement, grid, "SLOWER")
        if not lost:
            continue
        case, comparison = lost[0]
        roofs, x = roofs_of_case(judgement, case), intensity(case.facts)
        reached = share(judgement, case, case.result(grid.contender))
        under, binds = "", "unknown: no roof shows what limits it"
        if roofs and x is not None and reached is not None:
            under = f", at {text.share(reached)} of the {roofs[0].origin} roof"
            binds = f"it is {roofs[0].bound(x)}-bound there"
        where = f"{case.facts.name}{clock_words(judgement, grid.clock)}"
        yield Advice(
            f"{grid.contender} is furthest behind on {where}: {ratio_text(comparison.ratio)}×{under}",
            binds,
            f"start there to make {grid.contender} faster",
        )
