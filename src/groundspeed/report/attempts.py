"""The optimisation attempts on a kernel, from a Markdown log (A10). No bundle holds it, so the user passes its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from groundspeed.errors import BadInput
from groundspeed.report.text import safe

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

TITLE = "Optimisation attempts"
TOP = 3
"""The heading level of the log in a report, whose own headings have level 2."""
_CODE = re.compile(r"(`+[^`]*`+)")
_LINK = re.compile(r"!?\[([^][]{0,500})\]\((?:[^()]|\([^()]{0,100}\)){0,500}\)")


class Line(NamedTuple):
    text: str
    depth: int = 0
    """The level of a heading, whose words are in `text`; 0 for every other line."""
    code: bool = False
    """Whether the line is in a code block or delimits one."""


def chosen(log: str, words: str) -> str:
    """Return the log without its comments. With `words`, keep only the parts whose heading contains them."""
    text = _without_comments(log).strip()
    if not words:
        return text
    kept: list[str] = []
    level = 0  # level of the heading whose part is being kept; 0 while nothing is kept
    for line in _lines(text):
        if line.depth and line.depth <= (level or line.depth):
            level = line.depth if words.casefold() in line.text.casefold() else 0
        if level:
            kept.append(f"{'#' * line.depth} {line.text}" if line.depth else line.text)
    if not kept:
        raise BadInput(f"--log: no heading contains {words!r}; name words of a heading, or leave out the part after #")
    return "\n".join(kept).strip()


def as_markdown(text: str) -> Iterator[str]:
    """Yield the log's lines with headings below those of the report. HTML stays text. Links are reduced to their words,
    because their targets are relative to the log's own folder. A fence that the log leaves open is closed at its
    end."""
    yield from (line if code else _plain(line) for line, code in _demoted(text))


def as_html(text: str) -> str:
    """Return the same as HTML for a page."""
    parser = _parser()
    for name in ("link_open", "link_close"):
        parser.add_render_rule(name, _nothing)
    rendered: str = parser.render("\n".join(line for line, _ in _demoted(text)))
    return rendered


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "autolink"])


def _nothing(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    return ""


def _without_comments(text: str) -> str:
    """Remove HTML comments. An unclosed comment extends to the end of the text."""
    kept, at = [], 0
    while (begin := text.find("<!--", at)) >= 0:
        kept.append(text[at:begin])
        end = text.find("-->", begin)
        if end < 0:
            return "".join(kept)
        at = end + len("-->")
    return "".join([*kept, text[at:]])


def _demoted(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, with headings moved down below those of the report, and whether it is code."""
    lines = list(_lines(text))
    down = TOP - min((line.depth for line in lines if line.depth), default=TOP)
    for line in lines:
        yield f"{'#' * min(6, line.depth + down)} {line.text}" if line.depth else line.text, line.code


def _plain(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(part if i % 2 else _escaped(_LINK.sub(r"\1", part)) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[")


def _lines(text: str) -> Iterator[Line]:
    """Yield the lines of a Markdown text. Headings, underlined ones too, take one line each; an open fence is
    closed."""
    lines = [safe(line.expandtabs(4)) for line in text.splitlines()]
    tokens = _parser().parse("\n".join(lines))
    found: dict[int, Line | None] = {}
    closing = ""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        begin, end = token.map or (0, 0)
        if token.type == "heading_open" and token.level == 0 and after:
            found |= dict.fromkeys(range(begin + 1, end))  # None drops the line: it is the underline
            found[begin] = Line(" ".join(after.content.split()), int(token.tag[1:]))
        elif token.type in ("fence", "code_block"):
            found |= {i: Line(lines[i], code=True) for i in range(begin, end)}
            ends = end - begin > 1 and not lines[end - 1].strip().strip(token.markup[:1])
            closing = token.markup if token.level == 0 and not ends else ""  # a fence within a list ends with the list
    for i, line in enumerate(lines):
        if one := found.get(i, Line(line)):
            yield one
    if closing:
        yield Line(closing, code=True)
