"""Checks that every speed number of a text is what a bundle says; each one that is not is a finding."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from groundspeed.judge.judgement import CaseJudgement
from groundspeed.report.text import safe
from groundspeed.report.tied import blocks, conditions
from groundspeed.report.tied.figures import UNTIED, Meant, meant
from groundspeed.report.tied.library import Library
from groundspeed.report.tied.markdown import Span
from groundspeed.report.tied.notation import Figure, Mark, NoFigure, Text, tie_of

EXEMPT = ("docs/log.md",)
"""Notes of failed experiments, which make no claims, by their path from the root."""
WRITE = "`groundspeed claims write` fixes it"
IN_README = {
    "cited": "a README may have only what its own bundles say; move this elsewhere, or tie it",
    "stated": "a README may have only what its own bundles say, and what is only stated cannot be checked; move the "
    "limit or example to another page and link to it, or tie the number",
}


class Finding(NamedTuple):
    line: int
    kind: str
    """The violated rule, in a few words."""
    sentence: str


@dataclass(frozen=True)
class Checked:
    """The result of checking a text."""

    findings: list[Finding]
    counts: Counter[str] = field(default_factory=Counter)
    """The speed numbers of the text, by kind: `tied`, `generated`, `cited`, `stated` or `not tied`."""


def is_exempt(document: Path, library: Library) -> bool:
    path = document.resolve()
    return path.is_relative_to(library.root.resolve()) and path.relative_to(library.root.resolve()).as_posix() in EXEMPT


def check(content: str, document: Path, library: Library) -> Checked:
    """Return all findings of a text, by line."""
    if is_exempt(document, library):
        return Checked([])
    text, counts = Text(content), Counter[str]()
    found = [
        *_blocks(text, document, library),
        *_charts(text, document, library),
        *_marks(text, document, library),
        *_figures(text, document, counts),
    ]
    return Checked(sorted(set(found)), counts)


def _at(text: Text, offset: int, kind: str, sentence: str) -> Finding:
    return Finding(text.markdown.line_number(offset), kind, safe(" ".join(sentence.split())))


def _blocks(text: Text, document: Path, library: Library) -> Iterator[Finding]:
    for block in text.blocks:
        if block.content is None:
            end = "a fence around its output" if block.kind == "output" else "`<!-- end -->` after it"
            yield _at(text, block.at, "no end", f"the block {block.kind} has no end; add {end}")
            continue
        try:
            now = blocks.made(block, document, library)
        except NoFigure as error:
            yield _at(text, block.at, error.kind, str(error))
            continue
        if text.content[slice(*block.content)] != now:
            first = _first_difference(text.content[slice(*block.content)], now)
            at = text.markdown.lines[min(text.markdown.row(block.content.start) + first, len(text.markdown.lines) - 1)]
            yield _at(
                text, at.start, "out of date", f"the block {block.kind} differs from what the code makes now; {WRITE}"
            )


def _first_difference(old: str, new: str) -> int:
    both = zip(old.splitlines(), new.splitlines(), strict=False)
    same = [a == b for a, b in both]
    return same.index(False) if False in same else len(same)


def _charts(text: Text, document: Path, library: Library) -> Iterator[Finding]:
    for chart in text.charts:
        try:
            for path, content in blocks.drawn(chart, document, library):
                if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != content:
                    yield _at(
                        text, chart.at, "out of date", f"{path.name} differs from what the code draws now; {WRITE}"
                    )
        except NoFigure as error:
            yield _at(text, chart.at, error.kind, str(error))


def _marks(text: Text, document: Path, library: Library) -> Iterator[Finding]:
    ties = [Resolved(mark, library) for mark in text.marks if mark.kind == "tied"]
    beside: dict[Span, list[Resolved]] = {}
    for tie in ties:
        beside.setdefault(text.markdown.sentence(tie.mark.span.start), []).append(tie)
    for together in beside.values():
        cases = [tie.right.cases[0] for tie in together if tie.right and len(tie.right.cases) == 1]
        for tie in together:
            yield from _tied(text, tie, cases)
    for mark in text.marks:
        at = mark.span.start
        if "--" in mark.said:
            yield _at(text, at, "bad mark", f"{mark.said!r:.80} has a `--`, which ends a comment on some pages")
        if mark.kind == "tied":
            continue
        if not mark.said:
            what = "a URL or a name" if mark.kind == "cited" else "what it is: a limit, a constant, an example"
            yield _at(text, at, "no source", f"`{mark.kind}:` has no source; give {what}")
        elif _is_readme(document):
            yield _at(text, at, f"{mark.kind} here", IN_README[mark.kind])


class Resolved:
    """A tie, with what it means or why it has no meaning."""

    def __init__(self, mark: Mark, library: Library) -> None:
        self.mark = mark
        self.right: Meant | None = None
        self.error: NoFigure | None = None
        if mark.figure is None:
            why = "there is no number right before this tie; write one, or `?×` for `claims write` to fill"
            self.error = NoFigure("nothing tied", why)
            return
        try:
            tie = tie_of(mark.said)
            source = library.bundle(tie.bundle)
            self.right = meant(tie, mark.figure.unit, source)
            library.quote(source, self.right.cases)
        except NoFigure as error:
            self.error = error


def _tied(text: Text, tie: Resolved, beside: list[CaseJudgement]) -> Iterator[Finding]:
    """Yield the findings of a tie. `beside` are the single cases for which the sentence has numbers."""
    figure, right = tie.mark.figure, tie.right
    if tie.error or figure is None or right is None:
        assert tie.error is not None
        yield _at(text, figure.span.start if figure else tie.mark.span.start, tie.error.kind, str(tie.error))
        return
    at, said, sentence = figure.span.start, _said(text, figure.span), _around(text, figure)
    yield from (_at(text, at, kind, why) for kind, why in _compared(text, figure, right))
    for kind, why in conditions.contradictions(sentence, right.cases, beside, right.judgement):
        yield _at(text, at, kind, f"{said}: {why}; correct the sentence or the tie")
    for other in right.not_against:
        if re.search(rf"(?<![\w-]){re.escape(other)}(?![\w-])", sentence):
            why = f"the sentence names {other}, but this is {right.of}; correct the sentence or the tie"
            yield _at(text, at, "wrong baseline", f"{said}: {why}")
    if right.unclear and "unclear" not in sentence.lower():
        yield _at(text, at, "unclear", f"{said} supports no claim ({right.unclear}); say UNCLEAR in its sentence")


def _around(text: Text, figure: Figure) -> str:
    """Return the sentence of a figure as it is shown and, in a table, the heading of its column."""
    head = text.heads.get(figure.span.start, "")
    return f"{text.markdown.shown[slice(*text.markdown.sentence(figure.span.start))]} {head}"


def _said(text: Text, span: Span) -> str:
    return " ".join(text.content[slice(*span)].split())[:80]


def _compared(text: Text, figure: Figure, right: Meant) -> Iterator[tuple[str, str]]:
    """Yield (kind, why) for what is wrong with a figure; the value is compared first, then the interval."""
    reads = right.written[0] if not right.has_interval else "{} ({}–{})".format(*right.written)
    for name, span, exact, written in zip(
        ("figure", "low end", "high end"),
        (figure.value, figure.low, figure.high),
        right.exact,
        right.written,
        strict=True,
    ):
        if span is None:
            continue
        said = text.content[slice(*span)]
        if name != "figure" and not right.has_interval:
            yield "wrong value", f"{right.of} has no interval, but {_said(text, figure.span)!r} gives one; {WRITE}"
            return
        if kind := _wrong(said, exact, written):
            yield kind, f"the {name} of {right.of} is {written}, not {said[:40]} (it reads {reads}); {WRITE}"
            return
    if figure.low is None and figure.unit.of == "speed-up":
        yield "interval omitted", f"{_said(text, figure.span)!r} is {reads} of {right.of}; {WRITE}"


def _wrong(said: str, exact: float, written: str) -> str | None:
    """Return None if a number is right, `wrong rounding` if it is off by less than one unit of its last place, else
    `wrong value`."""
    plain = said.replace(",", "")
    if plain == written.replace(",", ""):
        return None
    if not re.fullmatch(r"\d+(\.\d+)?", plain):
        return "wrong value"
    last_place = 10.0 ** -len(plain.partition(".")[2])
    return "wrong rounding" if abs(float(plain) - exact) < last_place else "wrong value"


def _figures(text: Text, document: Path, counts: Counter[str]) -> Iterator[Finding]:
    """Yield the speed numbers to which no mark or block applies, and count all of them by kind."""
    tied = {mark.figure.span.start for mark in text.marks if mark.kind == "tied" and mark.figure}
    spoken = {kind: _merged([m.covers for m in text.marks if m.kind == kind]) for kind in ("cited", "stated")}
    for figure in text.figures:
        start = figure.span.start
        if not text.must_be_tied(figure):
            continue
        kind = "generated" if text.generated(start) else "tied" if start in tied else ""
        kind = kind or next((word for word, spans in spoken.items() if _among(spans, start)), "")
        counts[kind or "not tied"] += 1
        if not kind:
            yield _at(
                text,
                start,
                "not tied",
                f"{_said(text, figure.span)!r} has no bundle behind it; {_way_out(figure, document)}",
            )


def _merged(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start < found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _among(spans: list[Span], offset: int) -> bool:
    at = bisect_right(spans, offset, key=lambda span: span.start) - 1
    return at >= 0 and spans[at].holds(offset)


def _is_readme(document: Path) -> bool:
    return document.name.upper().startswith("README")


def _way_out(figure: Figure, document: Path) -> str:
    if figure.unit.of in UNTIED:
        return "give the speed-up as `1.23×` and tie that"
    otherwise = "move it to another page" if _is_readme(document) else "mark it as cited or stated"
    return f"tie it with <!-- tied: BUNDLE CONTENDER CASE -->, or {otherwise}"


def write(content: str, document: Path, library: Library) -> tuple[str, dict[Path, str]]:
    """Return the text with every block and tied number corrected, and the files of its charts. What cannot be resolved
    is left as it is, for `check` to report."""
    if is_exempt(document, library):
        return content, {}
    text, edits, files = Text(content), [], dict[Path, str]()
    for block in text.blocks:
        try:
            if block.content is not None:
                edits.append((block.content, blocks.made(block, document, library)))
        except NoFigure:
            pass  # told by check
    for chart in text.charts:
        try:
            files.update(blocks.drawn(chart, document, library))
        except NoFigure:
            pass  # told by check
    for mark in text.marks:
        tie = Resolved(mark, library) if mark.kind == "tied" else None
        if tie and tie.right and mark.figure:
            edits += _edits(mark.figure, tie.right)
    for span, new in sorted(edits, reverse=True):
        content = content[: span.start] + new + content[span.end :]
    return content, files


def _edits(figure: Figure, right: Meant) -> Iterator[tuple[Span, str]]:
    spans = (figure.value, figure.low, figure.high)
    yield from ((span, new) for span, new in zip(spans, right.written, strict=True) if span and new != "–")
    if figure.low is None and figure.unit.of == "speed-up":
        yield Span(figure.after, figure.after), f" ({right.written[1]}–{right.written[2]})"
