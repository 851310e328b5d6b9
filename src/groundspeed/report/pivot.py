"""A run at a glance: a row for each case and a column for each contender, with the fastest in bold."""

from __future__ import annotations

from collections.abc import Iterator

from groundspeed.judge.claims import with_interval
from groundspeed.judge.floors import SHORT_WORK_S
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.report import table, text
from groundspeed.report.escape import escape


def pivot(judgement: Judgement) -> Iterator[str]:
    """Yield a Markdown table; nothing if fewer than two contenders passed. It shows rates if the work is long enough
    for them to mean something, and times if it is short or was not counted. The last columns compare the judged
    contenders with the baseline."""
    names = [c.name for c in judgement.record.measured if _passed(judgement, c.name)]
    judged = [name for name in judgement.record.run.judged if name in names]
    if len(names) < 2:
        return
    counted = all(case.facts.flops for case in judgement.cases)
    rate = table.flop_unit(judgement) if counted and not _is_short(judgement) else None
    versus = [f"{name} vs {judgement.record.run.baseline}" for name in judged]
    yield _row(f"case, {rate[1] if rate else 'median time'}", *names, *versus)
    yield "|---|" + "---:|" * (len(names) + len(versus))
    for case in judgement.cases:
        cells = [_cell(case, name, rate) for name in names]
        yield _row(case.facts.name, *cells, *(_speed_up(case.result(name)) for name in judged), raw=len(cells))


def _passed(judgement: Judgement, contender: str) -> bool:
    return any(case.result(contender).latency for case in judgement.cases)


def _is_short(judgement: Judgement) -> bool:
    medians = [r.latency.median for case in judgement.cases for r in case.results if r.latency]
    return sum(median < SHORT_WORK_S for median in medians) > len(medians) / 2


def _cell(case: CaseJudgement, contender: str, rate: tuple[float, str] | None) -> str:
    result = case.result(contender)
    if result.latency is None or result.rates is None:
        return escape(result.status)
    said = text.significant(result.rates.flops / rate[0]) if rate else text.seconds(result.latency.median)
    fastest = min(r.latency.median for r in case.results if r.latency)
    return f"**{escape(said)}**" if result.latency.median == fastest else escape(said)


def _speed_up(result: Result) -> str:
    c = result.comparison
    if c is None:
        return text.NOTHING
    return f"{with_interval(c.interval)} {c.verdict or ''}".rstrip()


def _row(first: str, *cells: str, raw: int = 0) -> str:
    """Return a row; the first `raw` of the cells are already Markdown."""
    return "| " + " | ".join([escape(first), *cells[:raw], *map(escape, cells[raw:])]) + " |"
