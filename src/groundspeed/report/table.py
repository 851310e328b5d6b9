"""The table of a run for a terminal: wide where there is room, a few lines a contender where there is not."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from groundspeed.judge.claims import case_claim, conditions, headline, ratio_text
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.report import text

STYLES = {"FASTER": "green", "SAME": "cyan", "SLOWER": "red", "UNCLEAR": "yellow", "INCORRECT": "bold red"}
HEADINGS = (
    "case",
    "contender",
    "median",
    "95% interval",
    "TFLOP/s",
    "% peak",
    "GB/s",
    "tokens/s",
    "memory",
    "speed-up",
    "verdict",
)


def run_table(judgement: Judgement, console: Console) -> RenderableType:
    """All cases and contenders."""
    wide = _wide(judgement)
    if console.measure(wide).minimum <= console.width:
        return wide
    return _narrow(judgement)


def cells(judgement: Judgement, result: Result) -> dict[str, str]:
    """The figures of one contender on one case, as text, by heading."""
    latency, rates, comparison = result.latency, result.rates, result.comparison
    if latency is None or rates is None:
        return {"verdict": result.status}
    speed_up, verdict = text.NOTHING, text.NOTHING
    if result.contender == judgement.record.run.baseline:
        speed_up, verdict = "1", "baseline"
    elif comparison:
        speed_up = f"{ratio_text(comparison.ratio)}×"
        if comparison.interval.n > 1:
            speed_up += f" ({ratio_text(comparison.low)}–{ratio_text(comparison.high)})"
        verdict = comparison.verdict or text.NOTHING
    return {
        "median": text.seconds(latency.median),
        "95% interval": text.seconds_range(latency.low, latency.high, latency.median),
        "TFLOP/s": text.significant(rates.flops / 1e12),
        "% peak": text.share(rates.flops_share),
        "GB/s": text.significant(rates.bytes / 1e9),
        "tokens/s": text.count(rates.counts["tokens"]) if "tokens" in rates.counts else text.NOTHING,
        "memory": text.amount_of_bytes(result.memory.extra_bytes),
        "speed-up": speed_up,
        "verdict": verdict,
    }


def _wide(judgement: Judgement) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        left = heading in ("case", "contender", "verdict")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for case in judgement.cases:
        for i, result in enumerate(case.results):
            row = cells(judgement, result)
            name = text.safe(case.facts.name) if i == 0 else ""
            table.add_row(
                Text(name),
                Text(text.safe(result.contender)),
                *(Text(row.get(heading, ""), style=_style(heading, row)) for heading in HEADINGS[2:]),
                end_section=i == len(case.results) - 1 and len(case.results) > 3,
            )
    return table


def _narrow(judgement: Judgement) -> Group:
    parts: list[RenderableType] = []
    for case in judgement.cases:
        parts.append(Text(text.safe(case.facts.name), style="bold"))
        for result in case.results:
            row = cells(judgement, result)
            first = Text(f"{text.safe(result.contender)}  ")
            first.append(f"{row['median']} ({row['95% interval']})  " if "median" in row else "")
            first.append(f"{row['speed-up']} " if row.get("speed-up", text.NOTHING) not in (text.NOTHING, "1") else "")
            first.append(row["verdict"], style=_style("verdict", row))
            parts.append(Padding(first, (0, 0, 0, 2)))
            if "median" in row:
                rest = (
                    f"{row['TFLOP/s']} TFLOP/s ({row['% peak']} of peak), {row['GB/s']} GB/s, "
                    f"{row['tokens/s']} tokens/s, {row['memory']}"
                )
                parts.append(Padding(Text(rest, style="dim"), (0, 0, 0, 4)))
    return Group(*parts)


def _style(heading: str, row: dict[str, str]) -> str:
    return STYLES.get(row["verdict"], "") if heading in ("verdict", "speed-up") else ""


def notes(judgement: Judgement) -> Iterator[Text]:
    """What a reader of the table must know: failures, doubts, what was not measured, warnings with remedies."""
    for case in judgement.cases:
        for result in case.results:
            where = f"{text.safe(case.facts.name)}, {text.safe(result.contender)}"
            if result.status != "PASSED":
                yield _note(result.status, f"{where}: {text.safe(result.reason)}")
            elif result.comparison and result.comparison.verdict == "UNCLEAR":
                yield _note("UNCLEAR", f"{where}: {text.safe(result.comparison.reason)}")
    for warning in judgement.warnings:
        yield _note("warning", f"{text.safe(warning.message)}; {text.safe(warning.remedy)}")
    missing: dict[str, list[str]] = {}
    for contender in judgement.record.contenders:
        if contender.status == "ABSENT":
            missing.setdefault("ABSENT", []).append(contender.name)
        elif contender.status:
            missing.setdefault(f"{contender.status}, {contender.reason}", []).append(contender.name)
    if missing:
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in missing.items())
        suite = judgement.record.run.suite
        yield _note("not measured", text.safe(f"{listed}; `groundspeed list {suite}` says why"))


def _note(word: str, sentence: str) -> Text:
    note = Text()
    note.append(f"{word}  ", style=STYLES.get(word, "yellow" if word == "warning" else "dim"))
    note.append(sentence, style="dim" if word == "not measured" else "")
    return note


def claim_lines(judgement: Judgement) -> Iterator[tuple[bool, str]]:
    """The run's headline for each judged contender: a claim, or why there is none."""
    for grid in judgement.grids:
        supported, sentence = headline(judgement, grid)
        yield supported, text.safe(sentence)
    if not judgement.grids:
        yield False, "No claim: only the baseline was measured, so there is nothing to compare it with."


def case_claims(judgement: Judgement) -> Iterator[str]:
    """Every claim about a single case."""
    for case in judgement.cases:
        for result in case.results:
            if claim := case_claim(judgement, case, result):
                yield text.safe(claim)


def title(judgement: Judgement) -> str:
    record = judgement.record
    took = f"{len(record.finished_attempts)} of {record.protocol.processes} processes"
    return text.safe(
        f"{record.run.suite}, {record.protocol.preset}: {len(record.cases)} cases, {took}, {judgement.device_name}, "
        f"baseline {record.run.baseline} ({record.run.baseline_origin})"
    )


def conditions_of(case: CaseJudgement) -> str:
    return text.safe(conditions(case.facts))
