"""The parts of a Markdown text that matter here: fences, comments, rows of tables, sentences. Every step takes linear
time, because the text may be hostile."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from groundspeed.report.tied import characters

_FENCE = re.compile(r"[ \t>]*(?P<mark>`{3,}|~{3,})")
_OPENS = re.compile("`+|<!--")
_BEGINS = re.compile(r"\s*(?:[-*+] |\d{1,9}[.)] |#{1,6} |\|)")
"""Matches a line that begins a list item, a heading or the row of a table."""
_SENTENCE_END = re.compile(r"[.!?][)*_`\"”]{0,3}\s+(?=[*_`\"“(\[]{0,3}[A-Z])")
_ADDRESS = re.compile(r"\]\([^()\s]*\)|https?://[^\s<>)\]]+")


class Span(NamedTuple):
    start: int
    end: int

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


class Comment(NamedTuple):
    start: int
    end: int
    said: str


@dataclass(frozen=True)
class Markdown:
    content: str

    @cached_property
    def lines(self) -> list[Span]:
        """The lines, each including its line end."""
        ends = [found.end() for found in re.finditer(r"\n|\Z", self.content)]
        return [Span(start, end) for start, end in zip([0, *ends], ends, strict=False) if start < end]

    @cached_property
    def _starts(self) -> list[int]:
        return [line.start for line in self.lines]

    def row(self, offset: int) -> int:
        """Return the index of the line that holds this offset."""
        return max(0, bisect_right(self._starts, offset) - 1)

    def line_number(self, offset: int) -> int:
        return self.row(offset) + 1

    def line(self, row: int) -> str:
        return self.content[self.lines[row].start : self.lines[row].end].rstrip("\r\n")

    @cached_property
    def fences(self) -> list[Span]:
        """The blocks of fenced code, including the fences; one that is not closed extends to the end of the text."""
        found, begun, mark = [], None, ""
        for row, line in enumerate(self.lines):
            match = _FENCE.match(self.line(row))
            if begun is None and match:
                begun, mark = line.start, match["mark"]
            elif begun is not None and match and match["mark"].startswith(mark) and not self._after(row, match):
                found.append(Span(begun, line.end))
                begun = None
        return found if begun is None else [*found, Span(begun, len(self.content))]

    def _after(self, row: int, match: re.Match[str]) -> str:
        return self.line(row)[match.end() :].strip()

    def fence_at(self, offset: int) -> Span | None:
        found = bisect_right(self._fence_starts, offset) - 1
        return self.fences[found] if found >= 0 and self.fences[found].holds(offset) else None

    @cached_property
    def _fence_starts(self) -> list[int]:
        return [fence.start for fence in self.fences]

    @cached_property
    def comments(self) -> list[Comment]:
        """HTML comments outside of code."""
        found, at = [], 0
        while match := _OPENS.search(self.content, at):
            if fence := self.fence_at(match.start()):
                at = fence.end
            elif match[0] != "<!--":
                at = self._code_end(match)
            elif (end := self.content.find("-->", match.end())) >= 0:
                found.append(Comment(match.start(), end + 3, self.content[match.end() : end].strip()))
                at = end + 3
            else:
                break
        return found

    def _code_end(self, ticks: re.Match[str]) -> int:
        """Return the end of the code that these backticks begin, or their own end if they begin none."""
        ends = self._ticks.get(len(ticks[0]), [])
        next_ = bisect_right(ends, ticks.end())
        inside = next_ < len(ends) and ends[next_] <= self._until_empty[self.row(ticks.start())]
        return ends[next_] if inside else ticks.end()

    @cached_property
    def _ticks(self) -> dict[int, list[int]]:
        """The ends of all runs of backticks, by the length of the run."""
        found: dict[int, list[int]] = {}
        for run in re.finditer("`+", self.content):
            found.setdefault(len(run[0]), []).append(run.end())
        return found

    @cached_property
    def shown(self) -> str:
        """The text that a reader sees, at the same offsets: without comments and addresses, entities decoded."""
        parts, at = [], 0
        for comment in self.comments:
            parts += [self.content[at : comment.start], _blank(self.content[comment.start : comment.end])]
            at = comment.end
        return characters.shown(_ADDRESS.sub(lambda found: _blank(found[0]), "".join([*parts, self.content[at:]])))

    def alone(self, comment: Comment) -> bool:
        """Return whether the lines of a comment contain nothing but comments."""
        rows = range(self.row(comment.start), self.row(comment.end - 1) + 1)
        return all(self._is_empty[row] for row in rows)

    def below(self, comment: Comment) -> Span:
        """Return the text below a comment that is alone: to the end of a fence, or to the next empty line."""
        row = self.row(comment.end - 1) + 1
        if row >= len(self.lines):
            return Span(comment.end, comment.end)
        start = self.lines[row].start
        fence = self.fence_at(start)
        return Span(start, fence.end if fence else self._until_empty[row])

    def sentence(self, offset: int) -> Span:
        """Return the sentence around an offset, or its row in a table, or its line in code."""
        at = bisect_right(self._sentences, offset)
        return Span(self._sentences[at - 1], [*self._sentences[at : at + 1], len(self.content)][0])

    @cached_property
    def _shown_lines(self) -> list[str]:
        return [self.shown[line.start : line.end] for line in self.lines]

    @cached_property
    def _is_empty(self) -> list[bool]:
        return [not text.strip() for text in self._shown_lines]

    @cached_property
    def _until_empty(self) -> list[int]:
        """For each line, the start of the next empty one."""
        ends, end = [], len(self.content)
        for row in reversed(range(len(self.lines))):
            end = end if self.line(row).strip() else self.lines[row].start
            ends.append(end)
        return ends[::-1]

    @cached_property
    def _sentences(self) -> list[int]:
        """The offsets at which sentences begin."""
        starts, before = {0, *(found.end() for found in _SENTENCE_END.finditer(self.shown))}, ""
        for line, text in zip(self.lines, self._shown_lines, strict=True):
            if not text.strip() or not before.strip() or _BEGINS.match(text) or self.fence_at(line.start):
                starts.add(line.start)
            before = "" if self.fence_at(line.start) else text
        return sorted(starts)

    def table_cells(self) -> Iterator[tuple[str, str, Span]]:
        """Yield each cell below the head of a table, with the headings of the first column and of its own."""
        head: list[str] | None = None
        for row in range(1, len(self.lines)):
            line = self.line(row)
            if not line.lstrip().startswith("|"):
                head = None
            elif head is None and _is_rule(line) and not self.fence_at(self.lines[row].start):
                above = self.lines[row - 1]
                head = [self.shown[cell.start : cell.end] for cell in _cells(self.shown, above)]
            elif head is not None:
                cells = zip(head, _cells(self.shown, self.lines[row]), strict=False)
                yield from ((head[0], name, cell) for name, cell in cells)


def _cells(text: str, line: Span) -> list[Span]:
    bars = [found.start() for found in re.finditer(r"(?<!\\)\|", text[line.start : line.end])]
    return [Span(line.start + a + 1, line.start + b) for a, b in pairwise(bars)]


def _is_rule(line: str) -> bool:
    return "-" in line and set(line) <= set("|:- \t")


def _blank(text: str) -> str:
    """Return blanks of the same length and with the same line breaks."""
    return re.sub(r"[^\n]", " ", text)
