"""What changed from base to head: on the screen, as the comment on a pull request, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import groundspeed
from groundspeed.judge.claims import with_interval
from groundspeed.judge.regression import WORDS, Change, Regression
from groundspeed.report import plain_json, text
from groundspeed.report.alike import together, without_numbers
from groundspeed.report.escape import code, escape, markdown_table
from groundspeed.report.layout import hanging

STYLES = {"REGRESSED": "bold red", "IMPROVED": "green", "SAME": "cyan", "UNCLEAR": "yellow", "NO REGRESSION": "green"}
HEADINGS = ("case", "contender", "base", "head", "speed of head", "verdict")
LEFT = (0, 1, 4, 5)
MARK = "<!-- groundspeed compare -->"
"""The marker by which a workflow finds its own comment again."""
MOST, MOST_CHANGED, MOST_SAID = 58_000, 25_000, 15_000
"""The most bytes of a comment, of its first table and of its sentences. GitHub takes 65,536 characters."""
MOST_PACKAGES = 12
"""The most packages that a sentence names; the JSON has all of them."""
PACKAGES = "these differ too, so the times compare the code and the packages together"
SPEED = {
    "paired": "speed of head is base time over head time: below 1, head is slower",
    "anchored": "speed of head is base time over head time, each divided by the time of the anchor in its own run: "
    "below 1, head is slower; it is not the quotient of the two columns, which also contain the difference between "
    "the runs",
    "apart": "speed of head is base time over head time: below 1, head is slower",
}
HOW = {
    "paired": "Both were measured in the same blocks of one run, each in its own process; the interval is over its "
    "processes.",
    "anchored": "Each was compared with a contender that is the same in both bundles; the interval is over the "
    "processes of both (Welch).",
    "apart": "The two bundles have no unchanged contender that shows drift; the interval is over the processes of both "
    "(Welch).",
}


@dataclass(frozen=True)
class Told:
    """A comparison, and what it compares."""

    result: Regression
    base: str
    head: str
    where: str
    """Suite, preset and device."""
    bundles: tuple[str, ...]
    """Identities of the evidence."""


def headline(result: Regression) -> str:
    """Return the overall result in a line: `REGRESSED: 1 regressed, 2 same of 3 comparisons`."""
    said = ", ".join(f"{result.tally[word]} {word.lower()}" for word in WORDS if result.tally[word])
    of = f"{said} of {text.plural(len(result.changes), 'comparison')}" if said else "nothing could be compared"
    unclear = result.tally["UNCLEAR"]
    hiding = sum(change.may_hide for change in result.changes)
    if result.overall == "UNCLEAR" and hiding:
        of += f"; {text.plural(hiding, 'unclear one')} may hide a regression"
    elif result.overall == "NO REGRESSION" and unclear:
        of += "; the unclear ones exclude a slow-down above the floor"
    of += f"; {result.incomplete}" if result.incomplete else ""
    marked = f" ({result.marked})" if result.marked else ""
    return text.safe(f"{result.overall}{marked}: {of}")


def packages(result: Regression) -> str:
    """Return the packages that differ, `torch 2.13.0 → 2.14.0, speedlib none → 1.0`; empty if none do."""
    shown = [f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in result.packages]
    more = f" and {len(shown) - MOST_PACKAGES} more" if len(shown) > MOST_PACKAGES else ""
    return text.safe(", ".join(shown[:MOST_PACKAGES]) + more)


def cells(change: Change, marked: str) -> list[str]:
    times = [text.NOTHING if seconds is None else text.seconds(seconds) for seconds in (change.base_s, change.head_s)]
    speed = with_interval(change.interval) if change.interval else text.NOTHING
    return [change.case, change.contender, *times, speed, f"{change.word} (other hardware)" if marked else change.word]


def reasons(changes: Sequence[Change]) -> Iterator[tuple[str, str]]:
    """Yield a verdict and a sentence for all cases with the same verdict, contender and reason but for its numbers."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[Change]] = {}
    for change in changes:
        if change.word in ("UNCLEAR", "REGRESSED"):
            alike.setdefault((change.word, change.contender, without_numbers(change.reason)), []).append(change)
    for (word, contender, _), some in alike.items():
        reason = together([change.reason for change in some])
        more = f" and {text.plural(len(some) - 1, 'more case')}" if len(some) > 1 else ""
        yield word, text.safe(f"{some[0].case}{more}, {contender}: {reason}{_excluded(some)}")


def _excluded(changes: Sequence[Change]) -> str:
    """Return how much slower head may be in the changes that are UNCLEAR; empty if that is not known of all."""
    lows = [c.lowest for c in changes if c.word == "UNCLEAR" and c.lowest is not None and math.isfinite(c.lowest)]
    if not lows or len(lows) < len(changes):
        return ""
    room = f"room for a slow-down of {-math.expm1(min(lows)):.1%}" if min(lows) < 0 else "no room for a slow-down"
    return f"; the evidence leaves {room}"


def show(console: Console, told: Told) -> None:
    result = told.result
    console.print(Text(text.safe(f"{told.base} → {told.head}: {told.where}"), style="bold"))
    console.print()
    if result.changes:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for i, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="left" if i in LEFT else "right", overflow="fold", no_wrap=i > 1)
        for change in result.changes:
            style = STYLES[change.word]
            row = [text.safe(cell) for cell in cells(change, result.marked)]
            table.add_row(*(Text(cell, style=style if i > 3 else "") for i, cell in enumerate(row)))
        console.print(table)
        console.print(Text(SPEED[result.how], style="dim"))
        console.print()
    for word, sentence in reasons(result.changes):
        console.print(hanging(console, Text(f"{word:<9}", style=STYLES[word]), Text(sentence)))
    versions = [f"{packages(result)}; {PACKAGES}"] if result.packages else []
    for word, sentences in (("left out", result.left_out), ("packages", versions), ("note", result.notes)):
        for sentence in sentences:
            console.print(hanging(console, Text(f"{word:<9}", style="dim"), Text(text.safe(sentence), style="dim")))
    console.print()
    console.print(Text(headline(result), style=STYLES[result.overall]))


def to_markdown(told: Told) -> str:
    """Return the comment on a pull request: the verdict, what changed, and the rest folded, as far as there is room."""
    without = "\n".join(_markdown(told, 0))
    return "\n".join(_markdown(told, MOST - _size(without))) + "\n"


def _size(line: str) -> int:
    return len(line.encode()) + 1


def _cut(lines: Sequence[str], room: int, item: str = "") -> Iterator[str]:
    """Yield the first lines that fit in `room` bytes, then how many more there are."""
    for i, line in enumerate(lines):
        room -= _size(line)
        if room < 0:
            yield from ([] if item else [""])
            yield f"{item}{len(lines) - i} more in the evidence"
            return
        yield line


def _table(changes: Sequence[Change], marked: str, room: int) -> Iterator[str]:
    headings, alignment, *rows = markdown_table(HEADINGS, [cells(c, marked) for c in changes], LEFT)
    yield from (headings, alignment)
    yield from _cut(rows, room)


def _markdown(told: Told, room: int) -> Iterator[str]:
    """Yield the comment, with `room` bytes for the table of all comparisons."""
    result = told.result
    yield MARK
    yield f"### groundspeed: {escape(headline(result))}"
    yield ""
    yield f"{escape(told.base)} → {escape(told.head)}, {escape(told.where)}."
    if result.packages:
        yield from ("", f"Packages: {escape(packages(result))}; {PACKAGES}.")
    changed = [c for c in result.changes if c.word in ("REGRESSED", "IMPROVED") or c.may_hide]
    if changed:
        yield ""
        changed.sort(key=lambda c: WORDS.index(c.word))
        yield from _table(changed, result.marked, MOST_CHANGED)
    yield from ("", "<details><summary>All comparisons, and how they were made</summary>", "")
    if len(changed) < len(result.changes):
        yield from _table(result.changes, result.marked, room)
        yield ""
    yield f"S{SPEED[result.how][1:]}. {HOW[result.how]}"
    yield ""
    said = [f"- **{word}**: {escape(sentence)}" for word, sentence in reasons(result.changes)]
    said += [f"- {escape(sentence)}" for sentence in result.notes]
    said += [f"- left out: {escape(sentence)}" for sentence in result.left_out]
    yield from _cut(said, MOST_SAID, "- ")
    if told.bundles:
        yield from (f"- evidence: {code(f'groundspeed verify {identity[:12]}')}" for identity in told.bundles)
        yield f"- groundspeed {escape(groundspeed.__version__)}"
    yield from ("", "</details>")


def to_json(told: Told) -> str:
    result = told.result
    return (
        plain_json.dump(
            {
                "overall": result.overall,
                "how": result.how,
                "base": told.base,
                "head": told.head,
                "where": told.where,
                "marked": result.marked or None,
                "incomplete": result.incomplete or None,
                "bundles": list(told.bundles),
                "packages": [dict(zip(("name", "base", "head"), one, strict=True)) for one in result.packages],
                "changes": [_row(change) for change in result.changes],
                "left_out": list(result.left_out),
                "notes": list(result.notes),
            },
            indent=1,
        )
        + "\n"
    )


def _row(change: Change) -> dict[str, object]:
    theta = change.interval
    logs = (theta.mean, theta.low, theta.high) if theta else (math.nan,) * 3
    ratio, low, high = (math.exp(min(x, 700.0)) if math.isfinite(x) else None for x in logs)
    return {
        "case": change.case,
        "contender": change.contender,
        "verdict": change.word,
        "reason": change.reason,
        "base_s": change.base_s,
        "head_s": change.head_s,
        "speed": ratio,
        "low": low,
        "high": high,
        "p_holm": change.adjusted_p,
        "may_hide_a_regression": change.may_hide,
    }
