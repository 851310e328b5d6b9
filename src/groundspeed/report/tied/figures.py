"""What a tie means: the figure from the bundle that it names, as the laboratory writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from groundspeed.errors import unknown
from groundspeed.evidence.bundle import Bundle
from groundspeed.judge.claims import headline, ratio_texts
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.rivals import best_rivals, is_rival
from groundspeed.judge.statistics import Interval
from groundspeed.report import text
from groundspeed.report.tied.notation import NoFigure, Tie, Unit

ALL = "all"
BEST_RIVAL = "best-rival"
"""In place of a baseline: the rival against which the contender stands worst."""


@dataclass(frozen=True)
class Source:
    """A verified bundle, and its judgement."""

    bundle: Bundle
    judgement: Judgement


@dataclass(frozen=True)
class Meant:
    """The figure that a tie means, exact and as it is written."""

    exact: tuple[float, float, float]
    """The value and the ends of its interval, which are NaN if there is none."""
    written: tuple[str, str, str]
    of: str
    """What the figure is of, in words."""
    judgement: Judgement
    cases: tuple[CaseJudgement, ...]
    unclear: str | None
    """Why the laboratory makes no claim about it, if it makes none."""
    not_against: tuple[str, ...] = ()
    """Other rivals, which the sentence of a figure against the best one must not name."""

    @property
    def has_interval(self) -> bool:
        return not math.isnan(self.exact[1])


UNTIED = {
    "percent": "a percentage does not say whether it is of the time or of the speed; give the speed-up, `1.23×`",
    "words": "a speed in words has no digits to compare; give the speed-up, `1.23×`",
}
"""Why a number of this unit cannot be tied."""


def meant(tie: Tie, unit: Unit, source: Source) -> Meant:
    if unit.of in UNTIED:
        raise NoFigure("not tied", UNTIED[unit.of])
    judgement, short = source.judgement, source.bundle.short
    baseline, contenders = judgement.record.run.baseline, {c.name: c for c in judgement.record.contenders}
    if tie.contender not in contenders:
        raise _unknown("contender", tie.contender, [c.name for c in judgement.record.measured], short)
    facts = contenders[tie.contender]
    if facts.status is not None:
        raise NoFigure(
            "unknown contender",
            f"{tie.contender} was {facts.status} in {short} ({facts.reason}); tie a contender that was measured",
        )
    name, _, clock = tie.case.partition("@")
    if tie.baseline == BEST_RIVAL:
        return _against_the_best(tie, unit, source, clock or "default")
    if tie.baseline not in (None, baseline):
        raise NoFigure(
            "wrong baseline", f"the baseline of {short} is {baseline}, not {tie.baseline!r:.80}; correct the tie"
        )
    if name == ALL:
        return _over_all(tie, unit, source, clock or "default")
    case = next((c for c in judgement.cases if tie.case in (c.facts.name, *c.facts.aliases)), None)
    if case is None:
        known = [n for c in judgement.cases for n in (c.facts.name, *c.facts.aliases)]
        raise _unknown("case", tie.case, [*known, ALL], short)
    result = case.result(tie.contender)
    if result.latency is None:
        raise NoFigure(
            "no figure", f"{tie.contender} was {result.status} on {tie.case} ({result.reason}) and has no time to quote"
        )
    return _of_case(tie, unit, source, case, result)


def _unknown(kind: str, given: str, known: Iterable[str], short: str) -> NoFigure:
    offer = str(unknown(kind, given, known)).partition("; ")[2]
    return NoFigure(f"unknown {kind}", f"there is no {kind} {given!r:.80} in {short}; {offer}")


def _check_clock(tie: Tie, judgement: Judgement, clock: str, short: str) -> None:
    clocks = list(dict.fromkeys(case.clock for case in judgement.cases))
    if clock not in clocks:
        known = [ALL if name == "default" else f"{ALL}@{name}" for name in clocks]
        raise _unknown("case", tie.case, known, short)


def _over_all(tie: Tie, unit: Unit, source: Source, clock: str) -> Meant:
    judgement, short = source.judgement, source.bundle.short
    if unit.of != "speed-up":
        raise NoFigure("no figure", f"over all cases there is a mean of speed-ups only; tie this {unit.of} to a case")
    _check_clock(tie, judgement, clock, short)
    grid = next((g for g in judgement.grids if (g.contender, g.clock) == (tie.contender, clock)), None)
    if grid is None or grid.interval is None:
        raise NoFigure(
            "no figure",
            f"{tie.contender} has no mean with an interval over all cases of {short}: it was not judged there; tie a "
            "single case, or measure it with --judge",
        )
    supported, sentence = headline(judgement, grid)
    cases = tuple(case for case in judgement.cases if case.facts.name in grid.names)
    of = f"{tie.contender} vs {grid.baseline} over {text.plural(len(cases), 'case')} of {short}"
    return _speed_up(grid.interval, of, judgement, cases, None if supported else sentence)


def _against_the_best(tie: Tie, unit: Unit, source: Source, clock: str) -> Meant:
    judgement, short = source.judgement, source.bundle.short
    _check_clock(tie, judgement, clock, short)
    if unit.of != "speed-up" or tie.case.partition("@")[0] != ALL:
        raise NoFigure("no figure", f"against the best rival there is a mean of speed-ups only; tie `{ALL}`")
    everyone = ((one.grid.contender, one.grid.clock, one) for one in best_rivals(judgement))
    found = next((one for *who, one in everyone if who == [tie.contender, clock]), None)
    if found is None or found.grid.interval is None:
        raise NoFigure(
            "no figure",
            f"{short} has no best rival of {tie.contender} by this clock: two rivals must have done its cases",
        )
    unclear = found.doubt or ("the mean is below the floor" if found.below_floor else None)
    cases = tuple(case for case in judgement.cases if case.facts.name in found.grid.names)
    of = f"{tie.contender} vs {found.grid.baseline}, its best rival, over {text.plural(len(cases), 'case')} of {short}"
    named = (found.grid.baseline, tie.contender)
    others = tuple(c.name for c in judgement.record.measured if is_rival(c) and c.name not in named)
    return replace(_speed_up(found.grid.interval, of, judgement, cases, unclear), not_against=others)


def _of_case(tie: Tie, unit: Unit, source: Source, case: CaseJudgement, result: Result) -> Meant:
    of = f"{tie.contender} on {tie.case} of {source.bundle.short}"
    if unit.of == "speed-up":
        c = result.comparison
        if c is None:
            raise NoFigure(
                "no figure", f"there is no speed-up of {of}: it is the baseline, or the baseline has no time there"
            )
        return _speed_up(c.interval, of, source.judgement, (case,), c.reason if c.verdict == "UNCLEAR" else None)
    value, low, high = _amount(unit, result, of)
    written = [f"{v:.1f}" if unit.of == "share" else text.significant(v / unit.size) for v in (value, low, high)]
    exact = (value / unit.size, low / unit.size, high / unit.size)
    return Meant(exact, (written[0], written[1], written[2]), of, source.judgement, (case,), None)


def _speed_up(
    theta: Interval, of: str, judgement: Judgement, cases: tuple[CaseJudgement, ...], unclear: str | None
) -> Meant:
    if theta.n == 1:
        raise NoFigure("no figure", f"{of} was measured in one process, which supports no claim; measure it in several")
    return Meant(
        (math.exp(theta.mean), math.exp(theta.low), math.exp(theta.high)),
        ratio_texts(theta),
        of,
        judgement,
        cases,
        unclear,
    )


def _amount(unit: Unit, result: Result, of: str) -> tuple[float, float, float]:
    """Return the value and the ends of its interval, NaN if it has none, in seconds, bytes or other base units."""
    latency, rates = result.latency, result.rates
    assert latency is not None
    assert rates is not None
    if unit.of == "seconds":
        return latency.median, latency.low, latency.high
    value: float | None
    if unit.of == "memory":
        value = result.memory.extra_bytes
    elif unit.of == "share":
        value = None if rates.flops_share is None else 100 * rates.flops_share
    else:
        told = {"flops": rates.flops or None, "bytes": rates.bytes or None}  # 0: how much work it is was not said
        value = told[unit.of] if unit.of in told else rates.counts.get(unit.of)
    if value is None:
        raise NoFigure("no figure", f"the bundle does not have the {unit.of} of {of}; tie something that was measured")
    if unit.of in ("memory", "share"):
        return value, math.nan, math.nan
    return value, value * latency.median / latency.high, value * latency.median / latency.low
