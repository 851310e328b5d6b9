"""The table of a run for a terminal: wide if there is room, else a few lines per contender."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from groundspeed.judge.claims import with_interval
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.report import text

STYLES = {
    "FASTER": "green",
    "SAME": "cyan",
    "SLOWER": "red",
    "UNCLEAR": "yellow",
    "INCORRECT": "bold red",
    "INVALID": "bold red",
}
LEFT = ("case", "contender", "speed-up", "verdict")
COUNTED = "FLOP/s and GB/s count the work that the maths needs (algorithmic)"
_MEANT = {
    "cpu": "memory is what one call adds on the host",
    "cuda": "memory is what one call adds on the device; times are the device's, with a cold L2 cache, "
    "unless a case ends in @warm, @graph (replayed from a CUDA graph) or @eager (as a caller sees it)",
}

_UNBOUNDED = 1_000_000


def legend(judgement: Judgement) -> str:
    """Return what the columns of the table mean."""
    counted = any(case.facts.flops or case.facts.bytes for case in judgement.cases) or not judgement.cases
    return "; ".join(filter(None, (COUNTED if counted else "", _MEANT[judgement.record.run.device])))


def run_table(judgement: Judgement, console: Console) -> RenderableType:
    """Return all cases and contenders in the widest layout that fits the console."""
    for table in (_wide(judgement, grouped=False), _wide(judgement, grouped=True)):
        needed = console.measure(table, options=console.options.update(max_width=_UNBOUNDED)).maximum
        if needed <= console.width:
            return table
    return _narrow(judgement, console.width)


def flop_heading(judgement: Judgement) -> str:
    """Return `TFLOP/s`, or `GFLOP/s` if nothing reaches one TFLOP/s."""
    return flop_unit(judgement)[1]


def flop_unit(judgement: Judgement) -> tuple[float, str]:
    """Return the FLOP/s in one unit, and the unit. The whole run shares it, so that figures can be compared."""
    rates = [result.rates.flops for case in judgement.cases for result in case.results if result.rates]
    return text.flop_rate_unit(max(rates, default=0.0))


def headings(judgement: Judgement) -> tuple[str, ...]:
    """Return the headings, without the share of peak if no row has one, as on every CPU, without tokens if there are
    none, and without rates if the work was not counted."""
    rated = [result.rates for case in judgement.cases for result in case.results if result.rates]
    peak = ("% peak",) if any(rates.flops_share is not None for rates in rated) else ()
    tokens = ("tokens/s",) if any("tokens" in rates.counts for rates in rated) else ()
    counted = (flop_heading(judgement),) if any(rates.flops for rates in rated) or not rated else ()
    moved = ("GB/s",) if any(rates.bytes for rates in rated) or not rated else ()
    rates = (*counted, *peak, *moved, *tokens)
    return ("case", "contender", "median", "95% interval", *rates, "memory", "speed-up", "verdict")


def cells(judgement: Judgement, result: Result) -> dict[str, str]:
    """Return the figures of a contender on a case as text, by heading; only the status if it failed."""
    latency, rates, comparison = result.latency, result.rates, result.comparison
    if latency is None or rates is None:
        return {"verdict": result.status}
    speed_up, verdict = text.NOTHING, text.NOTHING
    if result.contender == judgement.record.run.baseline:
        speed_up, verdict = "1", "baseline"
    elif comparison:
        speed_up = with_interval(comparison.interval)
        verdict = comparison.verdict or text.NOTHING
    size, flop_rate = flop_unit(judgement)
    return {
        "median": text.seconds(latency.median),
        "95% interval": text.seconds_range(latency.low, latency.high, latency.median),
        flop_rate: text.significant(rates.flops / size) if rates.flops else text.NOTHING,
        "% peak": text.share(rates.flops_share),
        "GB/s": text.significant(rates.bytes / 1e9) if rates.bytes else text.NOTHING,
        "tokens/s": text.count(rates.counts["tokens"]) if "tokens" in rates.counts else text.NOTHING,
        "memory": text.amount_of_bytes(result.memory.extra_bytes),
        "speed-up": speed_up,
        "verdict": verdict,
    }


def _wide(judgement: Judgement, *, grouped: bool) -> Table:
    """Return a table with a row for each contender. The case is beside it or, if `grouped`, which is narrower, on a
    line above its contenders."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    columns = headings(judgement)
    for heading in columns[1:] if grouped else columns:
        table.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=True)
    for case in judgement.cases:
        name = Text(text.safe(case.facts.name), style="bold" if grouped else "")
        if grouped:
            table.add_row(name)
        for i, result in enumerate(case.results):
            row = cells(judgement, result)
            contender = Text(f"{'  ' if grouped else ''}{text.safe(result.contender)}")
            first = (contender,) if grouped else (name if i == 0 else Text(), contender)
            table.add_row(*first, *(Text(row.get(h, ""), style=_style(h, row)) for h in columns[2:]))
    return table


def _narrow(judgement: Judgement, width: int) -> Group:
    """Return two lines per contender, in columns; on a very narrow terminal, a line for each piece."""
    entries = [(case, result, _pieces(judgement, result)) for case in judgement.cases for result in case.results]
    widths = [max((cell_len(piece.plain) for _, _, p in entries for piece in (p[i],)), default=0) for i in range(4)]
    aligned = 2 + sum(w + 2 for w in widths[:3]) + widths[3] <= width
    parts: list[RenderableType] = []
    above: CaseJudgement | None = None
    for case, result, pieces in entries:
        if case is not above:
            parts.append(Text(text.safe(case.facts.name), style="bold"))
            above = case
        if aligned:
            for piece, w in zip(pieces[:3], widths[:3], strict=True):
                piece.append(" " * (w + 2 - cell_len(piece.plain)))
            parts.append(_indented(Text().join(pieces), 2))
        else:
            name, time, speed_up, verdict = pieces
            parts.append(_indented(name, 2))
            result_line = Text(" ").join([speed_up, verdict]) if speed_up.plain else verdict
            parts += [_indented(piece, 4) for piece in (time, result_line) if piece.plain]
        if rest := _rates(judgement, result):
            parts.append(_indented(Text(rest, style="dim"), 4))
    return Group(*parts)


def _pieces(judgement: Judgement, result: Result) -> tuple[Text, Text, Text, Text]:
    """Return contender, time, speed-up and verdict."""
    row = cells(judgement, result)
    time = row.get("median", "")
    if row.get("95% interval", text.NOTHING) != text.NOTHING:
        time += f" ({row['95% interval']})"
    speed_up = row.get("speed-up", "") if row.get("speed-up") not in (text.NOTHING, "1") else ""
    style = _style("verdict", row)
    return (
        Text(text.safe(result.contender)),
        Text(time),
        Text(speed_up, style=style),
        Text(row["verdict"], style=style),
    )


def _rates(judgement: Judgement, result: Result) -> str:
    row = cells(judgement, result)
    unit = flop_heading(judgement)
    parts = {unit: unit, "% peak": "of peak", "GB/s": "GB/s", "tokens/s": "tokens/s", "memory": "memory"}
    return ", ".join(
        f"{row[key]} {after}" for key, after in parts.items() if row.get(key, text.NOTHING) != text.NOTHING
    )


def _indented(content: Text, by: int) -> Padding:
    return Padding(content, (0, 0, 0, by), expand=False)


def _style(heading: str, row: dict[str, str]) -> str:
    return STYLES.get(row["verdict"], "") if heading in ("verdict", "speed-up") else ""
