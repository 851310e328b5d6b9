"""The notation by which a text says where its numbers come from: figures, marks and generated blocks."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from groundspeed.errors import BadInput
from groundspeed.report.tied import spoken
from groundspeed.report.tied.markdown import Comment, Markdown, Span

SPEED_UP = "×"
_PARTS = {"": 1.0, "milli": 1e-3, "m": 1e-3, "micro": 1e-6, "µ": 1e-6, "u": 1e-6, "nano": 1e-9, "n": 1e-9}
_LETTERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}

_NUMBER = r"(?:\d[\d,]*(?:\.\d+)?(?:e-?\d{1,3})?|\?)"
_A_SECOND = r"(?:/s(?:ec)?\b| (?:per|a) second\b)"
_FLOPS = rf"(?i:[MGTP]FLOP(?:s/s|s?{_A_SECOND}|s)|(?:mega|giga|tera|peta)flop(?:s?{_A_SECOND}|s))(?!\w)"
_UNITS = (
    r"(?:×|(?<=\d)[xX])(?![\w×])(?!\s?\d)(?!\s[A-Z]+\d)",  # not 64×16, 1.5×IQR or 8× H100
    rf"[×xX](?=\s*(?:{spoken.FASTER}|speed)|\s+{spoken.AS_FAST})",
    r"fold\b(?!\s+cross)",
    r"(?:[mµμun]s(?:ecs?)?|(?:milli|micro|nano)seconds?)\b(?!/)",
    r"s(?:ec(?:ond)?s?)?\b",
    r"[KMG]iB\b(?!/)",
    _FLOPS,
    rf"[MGT]i?B{_A_SECOND}",
    rf"[kMGT]?\s?(?:tokens|tok|queries|samples){_A_SECOND}",
    rf"times\s+(?:{spoken.FASTER}|{spoken.AS_FAST}|as\s+long\b|{spoken.THE_SPEED})",
    rf"{spoken.PERCENT}(?:\s+of\s+(?:the\s+|its\s+)?peak\b|{spoken.OF_PERCENT})",
)
_DASH = r"\s{0,9}[–—-]\s{0,9}"
"""With blanks, because an entity is longer than its dash."""
_FIGURE = re.compile(
    rf"(?<![\w.,])(?P<value>{_NUMBER})(?:\*\*|__|[*_`](?=[\s×%]))?(?:\s{{0,200}}[*_]{{0,2}}|-)(?P<unit>{'|'.join(_UNITS)})"
    rf"(?:[*_]*\s{{0,3}}\((?:95% CI\s)?(?P<low>{_NUMBER}){_DASH}(?P<high>{_NUMBER})\))?"
)
_PLAIN = re.compile(rf"[\s*_~<>≈`]*(?P<value>{_NUMBER})(?:[*_]*\s?\((?P<low>{_NUMBER}){_DASH}(?P<high>{_NUMBER})\))?")
_HEAD_UNIT = re.compile(
    r"(?P<unit>(?i:[MGTP]FLOP(?:/s|s)|(?:mega|giga|tera|peta)flops?\b)|[MGT]i?B/s|tokens/s|\b(?:ms|[µμ]s|ns)\b|×(?!\d))|"
    r"(?P<ratio>speed-?ups?\b|speed vs\b)"
)
_BETWEEN = re.compile(r"[*_`\s]{0,4}")
"""Matches what may be between a figure and its mark: the end of bold text or of code."""


@dataclass(frozen=True)
class Unit:
    """The quantity of a number: `speed-up`, `seconds`, `flops`, `bytes`, `memory`, `share`, a count: `tokens`,
    `queries` or `samples`, or what cannot be tied: `percent` and `words`. `size` is that of one unit."""

    of: str
    size: float = 1.0


WHOLE_SECONDS = Unit("seconds")


def unit_of(said: str) -> Unit:
    word = re.sub(r"\s", "", said).replace("μ", "µ").replace("persecond", "/s").replace("asecond", "/s")
    if time := re.fullmatch(r"(milli|m|micro|µ|u|nano|n|)s(?:ec(?:ond)?s?)?", word):
        return Unit("seconds", _PARTS[time[1]])
    if rate := re.match(r"(mega|giga|tera|peta|[mgtp])flop", word, re.IGNORECASE):
        return Unit("flops", _LETTERS[rate[1][0].upper()])
    if rate := re.fullmatch(r"([MGT])(i?)B/s(?:ec)?", word):
        return Unit("bytes", 1024.0 ** (" KMGT".index(rate[1])) if rate[2] else _LETTERS[rate[1]])
    if amount := re.fullmatch(r"([KMG])iB", word):
        return Unit("memory", 1024.0 ** (" KMG".index(amount[1])))
    if count := re.fullmatch(r"([kMGT]?)(tokens|tok|queries|samples)/s(?:ec)?", word):
        return Unit({"tok": "tokens"}.get(count[2], count[2]), _LETTERS[count[1]])
    if word.startswith(("%", "percent")):
        return Unit("share" if word.endswith("peak") else "percent")
    return Unit("speed-up")


class NoFigure(BadInput):
    """Raised for a mark that has no meaning; `kind` is the kind of the resulting finding."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class Figure(NamedTuple):
    """A number with its unit and, if it has one, its interval, each with its place in the text."""

    span: Span
    value: Span
    after: int
    """The end of the unit, where a missing interval is inserted."""
    low: Span | None
    high: Span | None
    unit: Unit


class Mark(NamedTuple):
    kind: str
    """tied, cited or stated."""
    said: str
    span: Span
    figure: Figure | None
    """The figure right before the mark, which a tie is about."""
    covers: Span
    """The text to which a cited or stated mark applies."""


class Tie(NamedTuple):
    bundle: str
    contender: str
    case: str
    baseline: str | None


class Block(NamedTuple):
    """The text between a marker and its end, which is generated from bundles."""

    kind: str
    """output, overview, standing, glance, claims or notes."""
    of: str
    at: int
    start: int
    """The start of its first line."""
    content: Span | None
    """None if its end is missing."""


class Chart(NamedTuple):
    file: str
    bundle: str
    at: int


def tie_of(said: str) -> Tie:
    words = said.split()
    if len(words) == 3 or (len(words) == 5 and words[3] == "vs"):
        return Tie(words[0], words[1], words[2], words[4] if len(words) == 5 else None)
    raise NoFigure(
        "bad mark",
        f"{said!r:.80} does not name a claim; write `tied: BUNDLE CONTENDER CASE`, where `all` or `all@CLOCK` is the "
        "mean over all cases, and `vs BASELINE` may follow",
    )


_MARK = re.compile(r"(?P<kind>tied|cited|stated):?(?:\s+(?P<said>.*))?", re.DOTALL)
_BLOCK = re.compile(r"(?P<kind>output|overview|standing|glance|claims|notes): (?P<of>.+)", re.DOTALL)
_CHART = re.compile(r"chart: (?P<file>\S+\.svg) (?P<bundle>\S+)")


@dataclass(frozen=True)
class Text:
    """A text, parsed once."""

    content: str

    @cached_property
    def markdown(self) -> Markdown:
        return Markdown(self.content)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks in order. A block in which another one begins has no end."""
        found: list[Block] = []
        for comment in self.markdown.comments:
            begins = _BLOCK.fullmatch(comment.said)
            if begins and self.markdown.alone(comment):
                start = self._next_line(comment)
                inside = self._inside_fence(start) if begins["kind"] == "output" else None
                found.append(Block(begins["kind"], " ".join(begins["of"].split()), comment.start, start, inside))
            elif comment.said == "end" and found and found[-1].kind != "output" and found[-1].content is None:
                found[-1] = found[-1]._replace(content=Span(found[-1].start, comment.start))
        return found

    def _next_line(self, comment: Comment) -> int:
        return self.markdown.lines[self.markdown.row(comment.end - 1)].end

    def _inside_fence(self, start: int) -> Span | None:
        fence = self.markdown.fence_at(start)
        if fence is None or fence.start != start:
            return None
        first, last = self.markdown.row(fence.start), self.markdown.row(fence.end - 1)
        return Span(self.markdown.lines[first].end, self.markdown.lines[last].start) if last > first else None

    @cached_property
    def charts(self) -> list[Chart]:
        found = [(comment, _CHART.fullmatch(comment.said)) for comment in self.markdown.comments]
        return [Chart(match["file"], match["bundle"], comment.start) for comment, match in found if match]

    def generated(self, offset: int) -> bool:
        """Return whether an offset is in a generated block."""
        at = bisect_right(self._made, offset, key=lambda span: span.start) - 1
        return at >= 0 and self._made[at].holds(offset)

    @cached_property
    def _made(self) -> list[Span]:
        return [block.content for block in self.blocks if block.content]

    @cached_property
    def figures(self) -> list[Figure]:
        """Every number of a speed, in order, and the other numbers that may be tied: whole seconds and amounts of
        memory."""
        shown, heads = self.markdown.shown, self._under_heads
        found = {match.start("value"): _figure(match) for match in _FIGURE.finditer(shown)}
        for match, kind in spoken.found_in(shown):
            found.setdefault(match.start("value"), _figure(match, Unit(kind)))
        return sorted((heads | found).values())

    def must_be_tied(self, figure: Figure) -> bool:
        """Return whether a number claims a speed by itself. `1×` is no claim, whole seconds are the length of a run or
        a limit, and memory is no speed."""
        value = self.content[slice(*figure.value)]
        if value == "?" or figure.unit.of == "memory" or (figure.unit.of == "speed-up" and value == "1"):
            return False
        return figure.unit != WHOLE_SECONDS or "." in value

    @cached_property
    def heads(self) -> dict[int, str]:
        """The heading of the column of each figure in a table, by the figure's start."""
        starts, found = [figure.span.start for figure in self.figures], dict[int, str]()
        for _, head, cell in self.markdown.table_cells():
            found.update(dict.fromkeys(starts[bisect_left(starts, cell.start) : bisect_left(starts, cell.end)], head))
        return found

    @cached_property
    def _under_heads(self) -> dict[int, Figure]:
        """Plain numbers of tables whose headings have the unit: the heading of their column, or that of the first for
        all columns."""
        found: dict[int, Figure] = {}
        for first, head, cell in self.markdown.table_cells():
            unit = _HEAD_UNIT.search(head) or _HEAD_UNIT.search(first)
            match = unit and _PLAIN.match(self.markdown.shown, *cell)
            if unit and match and not _FIGURE.match(self.markdown.shown, match.start("value")):
                found[match.start("value")] = _figure(match, unit_of(unit["unit"] or SPEED_UP))
        return found

    @cached_property
    def marks(self) -> list[Mark]:
        ends = {figure.span.end: figure for figure in self.figures}
        found = []
        for comment in self.markdown.comments:
            match = _MARK.fullmatch(comment.said)
            if match is None or self.generated(comment.start):
                continue
            figure = None
            for back in range(5):
                at = comment.start - back
                if at in ends and _BETWEEN.fullmatch(self.content, at, comment.start):
                    figure = ends[at]
                    break
            alone = self.markdown.alone(comment)
            covers = self.markdown.below(comment) if alone else self.markdown.sentence(comment.start)
            span = Span(comment.start, comment.end)
            found.append(Mark(match["kind"], " ".join((match["said"] or "").split()), span, figure, covers))
        return found


def _figure(match: re.Match[str], unit: Unit | None = None) -> Figure:
    parts = match.groupdict()

    def span(name: str) -> Span | None:
        return Span(*match.span(name)) if parts.get(name) else None

    value, after = Span(*match.span("value")), match.end("unit") if "unit" in parts else match.end("value")
    return Figure(
        Span(value.start, match.end()), value, after, span("low"), span("high"), unit or unit_of(match["unit"])
    )
