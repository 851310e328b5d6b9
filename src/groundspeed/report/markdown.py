"""The report of a run as Markdown: readable top to bottom by someone who was not in the room."""

from __future__ import annotations

import math
from collections.abc import Iterator

from groundspeed.case import CLOCKS, DEFAULT_CLOCK
from groundspeed.judge.claims import category_of, ratio_text, ratio_texts
from groundspeed.judge.cost import cost_of
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.statistics import Interval
from groundspeed.judge.targets import TRIVIAL_SHARE, goals
from groundspeed.report import table, text, words
from groundspeed.report.calibration import noise_lines, roof_lines
from groundspeed.report.environment import environment_lines
from groundspeed.report.escape import code, escape, markdown_table, paragraph
from groundspeed.report.fairness import contenders, kernels
from groundspeed.report.overview import overview
from groundspeed.report.pivot import pivot
from groundspeed.report.protocol import protocol_lines

NO_PAIR = "There is no pair to compare."


def to_markdown(judgement: Judgement, identity: str, price_per_hour: float | None = None) -> str:
    return "\n".join(_lines(judgement, identity, price_per_hour)) + "\n"


def _lines(judgement: Judgement, identity: str, price_per_hour: float | None) -> Iterator[str]:
    yield f"# {escape(judgement.record.run.suite)} on {escape(judgement.device_name)}"
    yield ""
    for supported, sentence in words.claim_lines(judgement):
        yield f"**{escape(sentence)}**" if supported else paragraph(sentence)
        yield ""
    yield f"{paragraph(words.title(judgement))}. Evidence: bundle {code(identity)}."
    for name, part in (
        ("At a glance", _glance),
        ("Side by side", pivot),
        ("Results", _results),
        ("Speed-ups", _speed_ups),
        ("Over all cases", _grids),
        ("Targets", _targets),
        ("Notes", _notes),
        ("Correctness", _correctness),
        ("Distribution", _distribution),
        ("Every process", _processes),
        ("Fairness record", contenders),
        ("Kernels", kernels),
        ("Protocol", _protocol),
        ("Calibration", _calibration),
        ("Environment", _environment),
    ):
        if lines := list(part(judgement)):
            yield from ("", f"## {name}", "", *lines)
    told = words.cost(cost_of(judgement, price_per_hour))
    yield from ("", "## Cost", "", f"{told}.")
    yield from ("", "## Check it again", "")
    yield from ("```", f"groundspeed verify {identity[:12]}", "```", "")
    yield (
        "`verify` recomputes every figure here from the raw samples. That proves that nothing changed since they were "
        "written; who measured them is for a signature to say, and whether it is true only another run can tell."
    )


def _glance(judgement: Judgement) -> Iterator[str]:
    yield from overview([(judgement.record.run.suite, judgement)])


def _results(judgement: Judgement) -> Iterator[str]:
    where = "device" if judgement.record.run.device == "cuda" else "host"
    body, headings = [], table.headings(judgement)
    for case in judgement.cases:
        for result in case.results:
            cells = table.cells(judgement, result)
            body.append([case.facts.name, result.contender, *(cells.get(h, "") for h in headings[2:])])
    yield from markdown_table(headings, body, left=[i for i, heading in enumerate(headings) if heading in table.LEFT])
    yield ""
    yield (
        "The median is the mean of the process medians on the log scale, its 95% interval goes over processes; "
        f"{headings[4]} and GB/s are on the work that the maths needs (algorithmic bytes); memory is what one call "
        f"adds on the {where}. Speed-up is baseline time over contender time, above 1 is faster."
    )


VIEWS = {"plain": "untrimmed", "sequential": "one after the other", "unthrottled": "without throttled blocks"}
"""A comparison seen otherwise, and the heading of its column, which is there where a comparison has it."""


def _ratio(interval: Interval | None) -> str:
    return text.NOTHING if interval is None else f"{ratio_text(math.exp(interval.mean))}×"


def _with_interval(interval: Interval) -> tuple[str, str]:
    """The ratio, and where it lies."""
    if interval.n == 1:
        return _ratio(interval), text.NOTHING
    ratio, low, high = ratio_texts(interval)
    return f"{ratio}×", f"{low}–{high}"


def _speed_ups(judgement: Judgement) -> Iterator[str]:
    comparisons = [result.comparison for case in judgement.cases for result in case.results if result.comparison]
    views = [view for view in VIEWS if any(getattr(c, view) is not None for c in comparisons)]
    body = []
    for case in judgement.cases:
        for result in case.results:
            if c := result.comparison:
                body.append(
                    [
                        words.conditions_of(judgement, case),
                        c.contender,
                        *_with_interval(c.interval),
                        *(_ratio(getattr(c, view)) for view in views),
                        text.NOTHING if c.adjusted_p is None else f"{c.adjusted_p:.2g}",
                        c.verdict or text.NOTHING,
                        category_of(c) or text.NOTHING,
                        words.why(c),
                    ]
                )
    if not body:
        yield NO_PAIR
        return
    headings = ("case", "contender", "speed-up", "95% interval", *(VIEWS[view] for view in views))
    columns = (*headings, "p (Holm)", "verdict", "category", "why")
    yield from markdown_table(columns, body, left=(0, 1, *range(len(columns) - 3, len(columns))))


def _grids(judgement: Judgement) -> Iterator[str]:
    body = []
    for g in judgement.grids:
        if g.interval and g.mean and g.median and g.min and g.max:
            tally = " / ".join(str(g.verdicts[v]) for v in ("FASTER", "SAME", "SLOWER", "UNCLEAR"))
            numbers = [f"{ratio_text(x)}×" for x in (g.mean, g.median, g.min, g.max)]
            name = g.contender if g.clock == DEFAULT_CLOCK else f"{g.contender}, {CLOCKS.get(g.clock, g.clock)}"
            body.append([name, *_with_interval(g.interval), tally, *numbers, f"{g.compared} of {g.cases}"])
    if not body:
        yield NO_PAIR
        return
    headings = (
        "contender",
        "geometric mean",
        "95% interval",
        "faster / same / slower / unclear",
        "mean",
        "median",
        "min",
        "max",
        "cases",
    )
    yield from markdown_table(headings, body, left=(0,))


def _targets(judgement: Judgement) -> Iterator[str]:
    """Nothing where no case has a target, as on every CPU."""
    gpus = sorted({case.target.gpu for case in judgement.cases if case.target})
    if not gpus:
        return
    yield f"Goals that a specification sets for {escape(', '.join(gpus))}: no measurements, and no claim rests on them."
    yield ""
    body = []
    for case in judgement.cases:
        limit = text.seconds(case.limit.seconds) if case.limit else "not known"
        for goal in goals(case):
            missed = [f"{r.contender}{'' if r.latency else f' ({r.status})'}" for r in map(case.result, goal.missed)]
            who = (", ".join(names) or text.NOTHING for names in (goal.reached, missed, goal.undecided))
            time = f"under {text.seconds(goal.seconds)}"
            body.append([case.facts.name, goal.name, time, goal.label or text.NOTHING, limit, *who])
    headings = ("case", "goal", "time", "label", "limit", "reached by", "not reached by", "not decided")
    yield from markdown_table(headings, body, left=(0, 1, 3, 5, 6, 7))
    yield ""
    yield (
        "The limit is the least time that the peaks of the device allow. A goal under it is impossible; one that less "
        f"than {TRIVIAL_SHARE:.0%} of the device's rate reaches is trivial; others are possible. A goal is reached "
        "where the whole 95% interval of the median lies under it, and not reached where all of it lies above."
    )


def _notes(judgement: Judgement) -> Iterator[str]:
    found = [f"- **{escape(note.word)}**: {escape(note.sentence)}" for note in words.notes(judgement)]
    yield from found or ["Nothing to note."]


def _correctness(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            errors = result.errors
            values = (errors.max_abs, errors.mean_abs, errors.max_rel, errors.rms_rel)
            numbers = [text.NOTHING if v is None else f"{v:.1e}" for v in values]
            body.append([case.facts.name, result.contender, result.status, *numbers])
    yield from markdown_table(
        ("case", "contender", "status", "max abs", "mean abs", "max rel", "RMS rel"), body, left=(0, 1, 2)
    )
    yield ""
    yield "The largest errors seen against the FP64 oracle, before timing and on randomly drawn timed calls."


def _distribution(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            if x := result.latency:
                times = map(text.seconds, (x.min, x.p5, x.median, x.p95, x.p99, x.max, x.mean, x.std))
                body.append([case.facts.name, result.contender, *times, f"{x.outliers:,} of {x.samples:,}"])
    if not body:
        yield "No contender has a time."
        return
    headings = ("case", "contender", "min", "p5", "median", "p95", "p99", "max", "mean", "std", "outside 1.5×IQR")
    yield from markdown_table(headings, body, left=(0, 1))
    yield ""
    yield (
        "Over all timed samples; the median is that of the results. The last column counts the samples that lie more "
        "than 1.5×IQR beyond the quartiles; they are not dropped. A speed-up trims 20% of the blocks from either end, "
        "whatever they are, and where the untrimmed mean says otherwise the verdict is UNCLEAR."
    )


def _processes(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            for centre in result.comparison.centres if result.comparison else ():
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
    if not body:
        yield NO_PAIR
        return
    yield from markdown_table(
        ("case", "contender", "process", "blocks", "speed-up", "bootstrap (BCa)", "paired t, p", "Wilcoxon, p"),
        body,
        left=(0, 1),
    )
    yield ""
    yield (
        "The last three columns describe one process each (within process): its blocks are not independent of each "
        "other, so they are no basis for a verdict. The interval of a claim goes over processes."
    )


def _protocol(judgement: Judgement) -> Iterator[str]:
    yield from protocol_lines(judgement.record)


def _calibration(judgement: Judgement) -> Iterator[str]:
    """The floors that the verdicts use, and measured roofs beside the datasheet's; nothing where the run has none."""
    if calibration := judgement.record.calibration:
        yield f"From bundle {code(calibration.identity[:12])}, {escape(calibration.finished)}."
        yield ""
        lines = (*roof_lines(calibration, judgement.peaks), *noise_lines(calibration, judgement.record.run.device))
        yield from (f"- {escape(line)}" for line in lines)


def _environment(judgement: Judgement) -> Iterator[str]:
    yield from environment_lines(judgement.record.environment)
