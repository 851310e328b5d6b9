"""Runs in a few rows: the geometric means of all contenders, with a row for each clock, or of those that are asked for,
with a row for each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.judge.claims import clock_words, headline, ratio_text, with_interval
from groundspeed.judge.grid import Grid
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.rivals import best_rivals
from groundspeed.report import text
from groundspeed.report.escape import escape


def overview(judgements: Iterable[tuple[str, Judgement]]) -> Iterator[str]:
    """Yield runs against the same baseline as one Markdown table, each under its name; nothing if no contender was
    judged. The judged contenders come last, with the interval and the number of cases for each outcome; the others are
    shown as measured, without a verdict."""
    named = [(name, judgement) for name, judgement in judgements if judgement.grids]
    runs = [judgement for _, judgement in named]
    measured = list(dict.fromkeys(c.name for j in runs for c in j.record.measured))
    judged = [name for name in measured if any(name in j.record.run.judged for j in runs)]
    others = [name for name in measured if name not in judged]
    if not judged:
        return
    baselines = dict.fromkeys(j.record.run.baseline for j in runs)
    devices = dict.fromkeys(j.device_name for j in runs)
    heading = f"speed vs {', '.join(baselines)} on {', '.join(devices)}, geometric mean"
    yield _row(heading, [*others, *(column for name in judged for column in (name, "its cases"))])
    yield "|---|" + "---:|" * len(others) + "---:|---|" * len(judged)
    for name, judgement in named:
        for clock, cases in _by_clock(judgement).items():
            cells = [_seen(judgement, cases, contender) for contender in others]
            for contender in judged:
                grid = next((g for g in judgement.grids if (g.contender, g.clock) == (contender, clock)), None)
                cells += _judged(judgement, grid)
            yield _row(f"{name}, {_many(cases)}{clock_words(judgement, clock)}", cells)


def standing(asked: Iterable[tuple[str, Judgement, str, str]]) -> Iterator[str]:
    """Yield a Markdown table with a row for each (name, run, judged contender, clock): the geometric mean over all
    cases against the baseline of the run, with the number of cases for each outcome, and that against the best rival,
    with its name."""
    yield _row(
        "speed, by the default clock or as stated", ["contender", "vs the baseline", "its cases", "vs the best rival"]
    )
    yield "|---|---|---|---|---|"
    for name, judgement, contender, clock in asked:
        cases = _by_clock(judgement).get(clock, [])
        grid = next(g for g in judgement.grids if (g.contender, g.clock) == (contender, clock))
        against, tally = _judged(judgement, grid)
        said = "" if clock == DEFAULT_CLOCK else clock_words(judgement, clock)
        yield _row(
            f"{name}, {_many(cases)}{said}",
            [contender, f"{against} {grid.baseline}", tally, _against_the_best(judgement, grid)],
        )


def _against_the_best(judgement: Judgement, grid: Grid) -> str:
    who = grid.contender, grid.clock
    found = next((one for one in best_rivals(judgement) if (one.grid.contender, one.grid.clock) == who), None)
    if found is None or found.grid.interval is None:
        return text.NOTHING
    unclear = " UNCLEAR" if found.doubt or found.below_floor else ""
    return f"{with_interval(found.grid.interval)}{unclear} {found.grid.baseline}"


def _many(cases: Sequence[CaseJudgement]) -> str:
    dtypes = dict.fromkeys(str(case.facts.params.get("dtype", "")) for case in cases)
    return text.plural(len(cases), " ".join([*filter(None, ["/".join(dtypes)]), "case"]))


def _by_clock(judgement: Judgement) -> dict[str, list[CaseJudgement]]:
    found: dict[str, list[CaseJudgement]] = {}
    for case in judgement.cases:
        found.setdefault(case.clock, []).append(case)
    return found


def _seen(judgement: Judgement, cases: Sequence[CaseJudgement], contender: str) -> str:
    if contender == judgement.record.run.baseline:
        return "1"
    if contender not in {c.name for c in judgement.record.measured}:
        return text.NOTHING
    found = [c.interval.mean for case in cases if (c := case.result(contender).comparison)]
    if not found:
        return text.NOTHING
    only = f" on {len(found)}" if len(found) < len(cases) else ""
    return f"{ratio_text(math.exp(statistics.fmean(found)))}×{only}"


def _judged(judgement: Judgement, grid: Grid | None) -> list[str]:
    if grid is None or grid.interval is None:
        return [text.NOTHING, text.NOTHING if grid is None else _tally(grid)]
    said = with_interval(grid.interval)
    if grid.broken:
        return [f"no claim ({said} on {grid.compared})", _tally(grid)]
    return [said if headline(judgement, grid)[0] else f"{said} UNCLEAR", _tally(grid)]


def _tally(grid: Grid) -> str:
    counts = {**{verdict.lower(): n for verdict, n in grid.verdicts.items()}, **grid.failed}
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n)


def _row(first: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape(cell) for cell in (first, *cells)) + " |"
