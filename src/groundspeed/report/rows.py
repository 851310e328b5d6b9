"""The tables of a report as columns and rows of text, for Markdown and for a page."""

from __future__ import annotations

import math

from groundspeed.case import CLOCKS, DEFAULT_CLOCK
from groundspeed.judge.claims import category_of, ratio_text, ratio_texts, why
from groundspeed.judge.grading.specification import Target
from groundspeed.judge.grading.targets import TRIVIAL_SHARE, goals
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.statistics import Interval
from groundspeed.report import table, text, words
from groundspeed.report.page import Column, Table

VIEWS = {"plain": "untrimmed", "sequential": "one after the other", "unthrottled": "without throttled blocks"}
"""Other views of a comparison, and the headings of their columns. A column appears if any comparison has its view."""

CASE, CONTENDER = Column("case"), Column("contender", choose=True)
VERDICT = Column("verdict", choose=True, word=True)
TALLY = ("FASTER", "SAME", "SLOWER", "UNCLEAR")


def numbers(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, number=True) for title in titles)


def results(judgement: Judgement) -> Table:
    where = "device" if judgement.record.run.device == "cuda" else "host"
    headings, body = table.headings(judgement)[2:], []
    for case in judgement.cases:
        for result in case.results:
            cells = table.cells(judgement, result)
            body.append([case.facts.name, result.contender, *(cells.get(h, "") for h in headings)])
    rates = [heading for heading in headings if heading.endswith(("FLOP/s", "B/s"))]
    work = f"{' and '.join(rates)} count the work that the maths needs (algorithmic bytes); " if rates else ""
    note = (
        "The median is the mean of the process medians on the log scale, with its 95% interval over processes; "
        f"{work}memory is what one call adds on the {where}. Speed-up is baseline time over contender time: above 1 is "
        "faster."
    )
    return Table("Results", (CASE, CONTENDER, *numbers(*headings[:-1]), VERDICT), body, note)


def ratio(interval: Interval | None) -> str:
    return text.NOTHING if interval is None else f"{ratio_text(math.exp(interval.mean))}×"


def with_bounds(interval: Interval) -> tuple[str, str]:
    """Return the ratio and its interval."""
    if interval.n == 1:
        return ratio(interval), text.NOTHING
    middle, low, high = ratio_texts(interval)
    return f"{middle}×", f"{low}–{high}"


def speed_ups(judgement: Judgement, *, on_page: bool = False) -> Table:
    """Return every comparison with the baseline. A page has a column for the processes instead of a table of them."""
    comparisons = [result.comparison for case in judgement.cases for result in case.results if result.comparison]
    views = [view for view in VIEWS if any(getattr(c, view) is not None for c in comparisons)]
    body = []
    for case in judgement.cases:
        for result in case.results:
            if c := result.comparison:
                seen = [" ".join(ratio_text(math.exp(centre.theta.mean)) for centre in c.centres)]
                body.append(
                    [
                        case.facts.name if on_page else words.conditions_of(judgement, case),
                        c.contender,
                        *with_bounds(c.interval),
                        *(ratio(getattr(c, view)) for view in views),
                        text.NOTHING if c.adjusted_p is None else f"{c.adjusted_p:.2g}",
                        *(seen if on_page else ()),
                        c.verdict or text.NOTHING,
                        category_of(c) or text.NOTHING,
                        why(c),
                    ]
                )
    columns = (
        CASE,
        CONTENDER,
        *numbers("speed-up", "95% interval", *(VIEWS[view] for view in views), "p (Holm)"),
        *([Column("by process")] if on_page else []),
        VERDICT,
        Column("category"),
        Column("why"),
    )
    return Table("Speed-ups", columns, body)


def grids(judgement: Judgement) -> Table:
    body = []
    for g in judgement.grids:
        if g.interval and g.mean and g.median and g.min and g.max:
            tally = " / ".join(str(g.verdicts[v]) for v in TALLY)
            spread = [f"{ratio_text(x)}×" for x in (g.mean, g.median, g.min, g.max)]
            name = g.contender if g.clock == DEFAULT_CLOCK else f"{g.contender}, {CLOCKS.get(g.clock, g.clock)}"
            body.append([name, *with_bounds(g.interval), tally, *spread, f"{g.compared} of {g.cases}"])
    headings = ("geometric mean", "95% interval", "faster / same / slower / unclear", "mean", "median", "min", "max")
    return Table("Over all cases", (Column("contender"), *numbers(*headings, "cases")), body)


def targets(judgement: Judgement) -> Table:
    """Return the targets; the table is empty if no case has one, as on every CPU."""
    body = []
    for case in judgement.cases:
        limit = text.seconds(case.limit.seconds) if case.limit else "unknown"
        for goal in goals(case):
            missed = [f"{r.contender}{'' if r.latency else f' ({r.status})'}" for r in map(case.result, goal.missed)]
            who = (", ".join(names) or text.NOTHING for names in (goal.reached, missed, goal.undecided))
            time = goal_text(case.target, goal.value)
            body.append([case.facts.name, goal.name, time, goal.label or text.NOTHING, limit, *who])
    columns = (
        CASE,
        Column("goal"),
        *numbers("time"),
        Column("label"),
        *numbers("limit"),
        *map(Column, ("reached by", "not reached by", "not decided")),
    )
    note = (
        "The limit is the least time that the peaks of the device allow. A goal below it is impossible, one that less "
        f"than {TRIVIAL_SHARE:.0%} of the device's rate reaches is trivial, and others are possible. A goal is reached "
        "if the whole 95% interval of the median lies below it, and not reached if the whole interval lies above it."
    )
    return Table("Targets", columns, body, note)


def goal_text(target: Target | None, value: float) -> str:
    """Return a goal as text: `under 4.50 ms`, `over 640 TFLOP/s`, `under 0.600 GB`."""
    if target and target.unit == "TFLOP/s":
        return f"over {text.significant(target.flops / value / 1e12)} TFLOP/s"
    if target and target.unit == "GB":
        return f"under {text.significant(value / 1e9)} GB"
    return f"under {text.seconds(value)}"


def targets_of(judgement: Judgement) -> str:
    gpus = sorted({case.target.gpu for case in judgement.cases if case.target})
    taken = [gpu for gpu in gpus if gpu not in judgement.device_name.replace("-", " ").split()]
    whose = f", the column that {judgement.device_name} uses" if taken else ""
    return (
        f"Goals that a specification sets for {', '.join(gpus)}{whose}: not measurements, and no claim rests on them."
    )


def correctness(judgement: Judgement) -> Table:
    body = []
    for case in judgement.cases:
        for result in case.results:
            errors = result.errors
            values = (errors.max_abs, errors.mean_abs, errors.max_rel, errors.rms_rel)
            body.append([case.facts.name, result.contender, result.status, *map(_error, values)])
    columns = (CASE, CONTENDER, Column("status", word=True), *numbers("max abs", "mean abs", "max rel", "RMS rel"))
    note = "The largest errors seen against the FP64 oracle, before timing and on randomly drawn timed calls."
    return Table("Correctness", columns, body, note)


def _error(value: float | None) -> str:
    return text.NOTHING if value is None else f"{value:.1e}"


def distribution(judgement: Judgement) -> Table:
    body = []
    for case in judgement.cases:
        for result in case.results:
            if x := result.latency:
                times = map(text.seconds, (x.min, x.p5, x.median, x.p95, x.p99, x.max, x.mean, x.std))
                body.append([case.facts.name, result.contender, *times, f"{x.outliers:,} of {x.samples:,}"])
    headings = ("min", "p5", "median", "p95", "p99", "max", "mean", "std", "outside 1.5×IQR")
    note = (
        "Over all timed samples; the median is that of the results. The last column counts the samples that lie more "
        "than 1.5×IQR beyond the quartiles; they are not dropped. A speed-up always trims 20% of the blocks at either "
        "end, and if the untrimmed mean disagrees, the verdict is UNCLEAR."
    )
    return Table("Distribution", (CASE, CONTENDER, *numbers(*headings)), body, note)


def processes(judgement: Judgement, *, brief: bool = False) -> Table:
    """Return what describes one process only. Each process of a judged contender has a row with the statistics within
    it; other contenders have all their speed-ups in one row, because more would be most of a report. With `brief`, that
    holds for all contenders, and nothing is resampled."""
    body = []
    within = () if brief else judgement.record.run.judged
    for case in judgement.cases:
        for result in case.results:
            centres = result.comparison.centres if result.comparison else ()
            if centres and result.contender not in within:
                seen = " ".join(f"{math.exp(centre.theta.mean):.3f}×" for centre in centres)
                rest = [text.NOTHING] * 3
                blocks = " ".join(str(centre.blocks) for centre in centres)
                process = " ".join(str(centre.process + 1) for centre in centres)
                body.append([case.facts.name, result.contender, process, blocks, seen, *rest])
                continue
            for centre in centres:
                low, high = (math.exp(bound) for bound in centre.bootstrap)
                body.append(
                    [
                        case.facts.name,
                        result.contender,
                        str(centre.process + 1),  # people count from 1, files from 0
                        str(centre.blocks),
                        f"{math.exp(centre.theta.mean):.3f}×",
                        f"{low:.3f}–{high:.3f}",
                        f"{centre.t_p:.1g}",
                        f"{centre.wilcoxon_p:.1g}",
                    ]
                )
    headings = ("process", "blocks", "speed-up", "bootstrap (BCa)", "paired t, p", "Wilcoxon, p")
    note = (
        "The last three columns describe a single process (within process): its blocks are not independent of each "
        "other, so no verdict rests on them. The interval of a claim is over processes. A contender that is not judged "
        "has all its processes in one row; the JSON has the rest."
    )
    if brief:
        note = "Each contender has all its processes in one row; the JSON has the statistics within them."
    return Table("Every process", (CASE, CONTENDER, *numbers(*headings)), body, note)
