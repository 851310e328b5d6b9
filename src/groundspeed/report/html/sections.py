"""The parts of the page that Markdown presents differently: headlines, the matrix of cases and contenders, kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from groundspeed.judge.claims import clock_words, headline, ratio_text, ratio_texts, why
from groundspeed.judge.figures import Errors
from groundspeed.judge.grid import BROKEN, Grid
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.report import text, words
from groundspeed.report.page import Column, Table
from groundspeed.report.rows import TALLY, numbers

LONGEST_KERNEL = 300
"""The most characters of a kernel's name; C++ templates can fill a page. The JSON has the full names."""


class Part(NamedTuple):
    """A part of a bar: the cases with one verdict or status, and the number of cases before them."""

    word: str
    cases: int
    before: int


@dataclass(frozen=True)
class Headline:
    """A judged contender over all cases of a clock: the judge's mean over its grid, never the best shape."""

    contender: str
    over: str
    ratio: str
    interval: str
    verdict: str
    sentence: str
    broken: str
    """The statuses of BROKEN that it ended with, each with its number of cases; empty if there are none. With any of
    them there is no ratio, because the other cases alone are no answer."""
    parts: list[Part]
    cases: int


def headlines(judgement: Judgement) -> list[Headline]:
    found = []
    for grid in judgement.grids:
        supported, sentence = headline(judgement, grid)
        ratio, interval, verdict = "", "", "" if supported else "no claim"
        broken = " and ".join(
            f"{status} on {count} of {text.plural(grid.cases, 'case')}"
            for status, count in grid.failed.items()
            if status in BROKEN
        )
        if not broken and grid.interval and grid.interval.n > 1:
            middle, low, high = ratio_texts(grid.interval)
            ratio, interval = f"{middle}×", f"{low}–{high}"
            if supported:
                verdict = "SAME" if grid.same else "FASTER" if grid.interval.mean > 0 else "SLOWER"
        elif not broken and grid.ratio:
            ratio = f"{ratio_text(grid.ratio)}×"
        over = f"vs {grid.baseline}{clock_words(judgement, grid.clock)}"
        parts = list(_parts(grid))
        found.append(Headline(grid.contender, over, ratio, interval, verdict, sentence, broken, parts, grid.cases))
    return found


def _parts(grid: Grid) -> Iterator[Part]:
    before = 0
    for word, count in (*((v, grid.verdicts[v]) for v in TALLY), *grid.failed.items()):
        if count:
            yield Part(word, count, before)
            before += count


ANSWER = ("case", "contender", "verdict", "speed-up")


def answer_first(table: Table) -> Table:
    """Return the table with the verdict right after the contender: a narrow screen shows only the first columns."""
    titles = [column.title for column in table.columns]
    order = sorted(range(len(titles)), key=lambda i: ANSWER.index(titles[i]) if titles[i] in ANSWER else len(ANSWER))
    return replace(table, columns=[table.columns[i] for i in order], rows=[[r[i] for i in order] for r in table.rows])


class Cell(NamedTuple):
    said: str
    word: str
    why: str


class MatrixRow(NamedTuple):
    case: str
    conditions: str
    cells: list[Cell]


def columns_of_matrix(judgement: Judgement) -> list[str]:
    """Return the contenders, the judged ones first: a narrow screen shows only the first columns."""
    names = [contender.name for contender in judgement.record.measured]
    return sorted(names, key=lambda name: name not in judgement.record.run.judged)


def matrix(judgement: Judgement) -> list[MatrixRow]:
    names = columns_of_matrix(judgement)
    return [
        MatrixRow(
            case.facts.name,
            words.conditions_of(judgement, case),
            [_cell(judgement, case, case.result(name)) for name in names],
        )
        for case in judgement.cases
    ]


def _cell(judgement: Judgement, case: CaseJudgement, result: Result) -> Cell:
    if result.status != "PASSED":
        return Cell(result.status, result.status, result.reason or "")
    if result.contender == judgement.record.run.baseline:
        return Cell("baseline", "baseline", "")
    c = result.comparison
    if c is None:
        return Cell("PASSED", "PASSED", "the baseline has no time on this case")
    return Cell(f"{ratio_text(c.ratio)}×", c.verdict or "", why(c) if c.verdict else "not judged")


def correctness(judgement: Judgement) -> Table:
    """Return the largest errors of each contender over all cases."""
    body = []
    for contender in judgement.record.measured:
        results = [case.result(contender.name) for case in judgement.cases]
        passed = sum(result.status == "PASSED" for result in results)
        failed = {r.status: None for r in results if r.status != "PASSED"}
        worst = [_largest([r.errors for r in results], name) for name in ("max_abs", "mean_abs", "max_rel", "rms_rel")]
        said = f"{passed} of {len(results)}" + (f", the others {', '.join(failed)}" if failed else "")
        body.append([contender.name, said, *worst])
    note = (
        "The largest errors over all cases against the FP64 oracle, before timing and on randomly drawn timed calls. "
        "A wrong result has no time."
    )
    columns = (Column("contender"), Column("passed"), *numbers("max abs", "mean abs", "max rel", "RMS rel"))
    return Table("Correctness by contender", columns, body, note)


def _largest(errors: list[Errors], name: str) -> str:
    found = [value for error in errors if (value := getattr(error, name)) is not None]
    return f"{max(found):.1e}" if found else text.NOTHING


class Kernels(NamedTuple):
    contender: str
    short: list[str]
    full: list[str]


def kernels(judgement: Judgement) -> list[Kernels]:
    """Return the kernels that each contender was seen to launch over all cases; nothing on a CPU."""
    seen: dict[str, dict[str, None]] = {}
    for launched in judgement.record.launched:
        seen.setdefault(launched.contender, {}).update(dict.fromkeys(launched.kernels))
    return [
        Kernels(
            contender,
            list(dict.fromkeys(map(words.short_kernel, names))),
            [name if len(name) <= LONGEST_KERNEL else f"{name[:LONGEST_KERNEL]}…" for name in names],
        )
        for contender, names in seen.items()
    ]


def timers(judgement: Judgement) -> str:
    """Return how far two timers of the same calls differ (D8); empty if only one watched."""
    watched = [c.timers for case in judgement.cases for r in case.results if (c := r.comparison) and c.timers]
    if not watched:
        return ""
    apart = max(abs(t.clock - t.profiler) for t in watched)
    return (
        f"The profiler also timed {text.plural(len(watched), 'comparison')}: the speed-ups by the two timers differ by "
        f"at most {math.expm1(apart):.1%}."
    )
