"""The report of a run as Markdown: readable top to bottom by someone who was not in the room."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from groundspeed.judge.claims import category_of, ratio_text
from groundspeed.judge.judgement import Judgement
from groundspeed.report import table, text


def to_markdown(judgement: Judgement, identity: str) -> str:
    return "\n".join(_lines(judgement, identity)) + "\n"


def _lines(judgement: Judgement, identity: str) -> Iterator[str]:
    yield f"# {escape(judgement.record.run.suite)} on {escape(judgement.device_name)}"
    yield ""
    for supported, sentence in table.claim_lines(judgement):
        yield f"**{escape(sentence)}**" if supported else escape(sentence)
        yield ""
    yield f"{escape(table.title(judgement))}. Evidence: bundle `{identity}`."
    for name, part in (
        ("Results", _results),
        ("Speed-ups", _speed_ups),
        ("Over all cases", _grids),
        ("Notes", _notes),
        ("Correctness", _correctness),
        ("Every process", _processes),
        ("Contenders", _contenders),
        ("Protocol", _protocol),
        ("Environment", _environment),
    ):
        yield from ("", f"## {name}", "")
        yield from part(judgement)
    yield from ("", "## Check it again", "")
    yield from ("```", f"groundspeed verify {identity[:12]}", "```", "")
    yield (
        "`verify` recomputes every figure here from the raw samples. That proves that nothing changed since they were "
        "written; who measured them is for a signature to say, and whether it is true only another run can tell."
    )


def _results(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            cells = table.cells(judgement, result)
            body.append([case.facts.name, result.contender, *(cells.get(h, "") for h in table.HEADINGS[2:])])
    yield from _table(table.HEADINGS, body, left=(0, 1, 10))
    yield ""
    yield (
        "Median over all timed samples with the 95% interval over processes; TFLOP/s and GB/s on the work that the "
        "maths needs (algorithmic bytes); memory is what one call adds on the host. Speed-up is baseline time over "
        "contender time, above 1 is faster."
    )


def _speed_ups(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            if c := result.comparison:
                body.append(
                    [
                        table.conditions_of(case),
                        c.contender,
                        f"{ratio_text(c.ratio)}×",
                        f"{ratio_text(c.low)}–{ratio_text(c.high)}" if c.interval.n > 1 else text.NOTHING,
                        f"{ratio_text(math.exp(c.plain.mean))}×",
                        text.NOTHING if c.adjusted_p is None else f"{c.adjusted_p:.2g}",
                        c.verdict or text.NOTHING,
                        category_of(c) or text.NOTHING,
                        c.reason,
                    ]
                )
    if not body:
        yield "There is no pair to compare."
        return
    yield from _table(
        ("case", "contender", "speed-up", "95% interval", "untrimmed", "p (Holm)", "verdict", "category", "why"),
        body,
        left=(0, 1, 6, 7, 8),
    )


def _grids(judgement: Judgement) -> Iterator[str]:
    body = []
    for g in judgement.grids:
        if g.interval and g.mean and g.median and g.min and g.max:
            low, high = math.exp(g.interval.low), math.exp(min(g.interval.high, 700))
            interval = f"{ratio_text(low)}–{ratio_text(high)}" if g.interval.n > 1 else text.NOTHING
            tally = " / ".join(str(g.verdicts[v]) for v in ("FASTER", "SAME", "SLOWER", "UNCLEAR"))
            numbers = [f"{ratio_text(x)}×" for x in (math.exp(g.interval.mean), g.mean, g.median, g.min, g.max)]
            body.append([g.contender, numbers[0], interval, tally, *numbers[1:], f"{g.compared} of {g.cases}"])
    if not body:
        yield "There is no pair to compare."
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
    yield from _table(headings, body, left=(0,))


def _notes(judgement: Judgement) -> Iterator[str]:
    found = False
    for note in table.notes(judgement):
        found = True
        yield f"- {escape(note.plain)}"
    if not found:
        yield "Nothing to note."


def _correctness(judgement: Judgement) -> Iterator[str]:
    body = []
    for case in judgement.cases:
        for result in case.results:
            errors = result.errors
            values = (errors.max_abs, errors.mean_abs, errors.max_rel, errors.rms_rel)
            numbers = [text.NOTHING if v is None else f"{v:.1e}" for v in values]
            body.append([case.facts.name, result.contender, result.status, *numbers])
    yield from _table(
        ("case", "contender", "status", "max abs", "mean abs", "max rel", "RMS rel"), body, left=(0, 1, 2)
    )
    yield ""
    yield "The largest errors seen against the FP64 oracle, before timing and on randomly drawn timed calls."


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
                        str(centre.process),
                        str(centre.blocks),
                        f"{math.exp(centre.theta.mean):.3f}×",
                        f"{low:.3f}–{high:.3f}",
                        f"{centre.t_p:.1g}",
                        f"{centre.wilcoxon_p:.1g}",
                    ]
                )
    yield from _table(
        ("case", "contender", "process", "blocks", "speed-up", "bootstrap (BCa)", "paired t, p", "Wilcoxon, p"),
        body,
        left=(0, 1),
    )
    yield ""
    yield (
        "The last three columns describe one process each (within process): its blocks are not independent of each "
        "other, so they are no basis for a verdict. The interval of a claim goes over processes."
    )


def _contenders(judgement: Judgement) -> Iterator[str]:
    body = [
        [c.name, c.description, c.version or text.NOTHING, c.status or "measured", c.reason or ""]
        for c in judgement.record.contenders
    ]
    yield from _table(("contender", "what it is", "version", "status", "reason"), body, left=range(5))


def _protocol(judgement: Judgement) -> Iterator[str]:
    p, run = judgement.record.protocol, judgement.record.run
    looks = ", ".join(map(str, p.looks))
    yield from (
        f"- `{escape(p.name)}`, preset {escape(p.preset)}, {p.processes} fresh processes, seed {p.seed}.",
        f"- Each block times every contender once, in random order. A process stops at {looks} blocks, when the "
        f"95% half-width of every judged log ratio is at most {p.half_width:.1%}, else at the last.",
        f"- {p.threads} thread{'s' if p.threads > 1 else ''}; warm-up at least {p.warmup_s:g} s; {p.input_sets} sets "
        f"of random inputs in rotation; a sample has {p.timeout_s:g} s.",
        f"- Baseline {escape(run.baseline)}, {run.baseline_origin}; judged: {escape(', '.join(run.judged)) or 'none'}.",
        f"- groundspeed {escape(run.version)}, commit {escape(run.commit or 'unknown')}, from {escape(run.started)} to "
        f"{escape(run.finished)}.",
    )


def _environment(judgement: Judgement) -> Iterator[str]:
    yield from environment_lines(judgement.record.environment)


def environment_lines(environment: dict[str, Any]) -> Iterator[str]:
    """The environment manifest as a Markdown list."""
    for name, part in environment.items():
        if isinstance(part, dict):
            inner = ", ".join(f"{key} {_value(value)}" for key, value in part.items() if value not in (None, [], {}))
            yield f"- **{escape(name)}**: {escape(inner) or 'none'}"
        else:
            yield f"- **{escape(name)}**: {escape(_value(part))}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 99_999 else str(value)


def escape(value: object) -> str:
    """Text out of a bundle as Markdown that stays text: no HTML, no table cell of its own, no link."""
    plain = html.escape(text.safe(value), quote=False)
    return "".join(f"\\{c}" if c in "|`*_[]\\" else c for c in plain)


def _table(headings: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int]) -> Iterator[str]:
    left = set(left)
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "|".join("---" if i in left else "---:" for i in range(len(headings))) + "|"
    for row in body:
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"
