"""What was tried on a kernel, from a log in Markdown (A10): no bundle holds it, so a report is told where it stands."""

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
"""The level of its headings in a report, whose own have the second."""
_CODE = re.compile(r"(`+[^`]*`+)")
_LINK = re.compile(r"!?\[([^][]{0,500})\]\((?:[^()]|\([^()]{0,100}\)){0,500}\)")


class Line(NamedTuple):
    text: str
    depth: int = 0
    """Of a heading, whose words the text is; 0 for everything else."""
    code: bool = False
    """Within a fence, or one of its ends."""


def chosen(log: str, words: str) -> str:
    """The log without its comments; only the parts whose heading has these words in it, where there are some."""
    text = _without_comments(log).strip()
    if not words:
        return text
    kept: list[str] = []
    level = 0  # of the heading whose part is being kept
    for line in _lines(text):
        if line.depth and line.depth <= (level or line.depth):
            level = line.depth if words.casefold() in line.text.casefold() else 0
        if level:
            kept.append(f"{'#' * line.depth} {line.text}" if line.depth else line.text)
    if not kept:
        raise BadInput(f"--log: no heading has {words!r} in it; name words of one, or leave out what is behind the #")
    return "\n".join(kept).strip()


def as_markdown(text: str) -> Iterator[str]:
    """With headings under those of the report. What is HTML in it stays text, and of links their words are left, which
    would lead from where the log lies; what it leaves open ends with it."""
    yield from (line if code else _plain(line) for line, code in _demoted(text))


def as_html(text: str) -> str:
    """The same for a page."""
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
    """One that nobody closed ends the text."""
    kept, at = [], 0
    while (begin := text.find("<!--", at)) >= 0:
        kept.append(text[at:begin])
        end = text.find("-->", begin)
        if end < 0:
            return "".join(kept)
        at = end + len("-->")
    return "".join([*kept, text[at:]])


def _demoted(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is code."""
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
    """Headings of either form, each on one line; a fence that is left open is closed."""
    lines = [safe(line.expandtabs(4)) for line in text.splitlines()]
    tokens = _parser().parse("\n".join(lines))
    found: dict[int, Line | None] = {}
    closing = ""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        begin, end = token.map or (0, 0)
        if token.type == "heading_open" and token.level == 0 and after:
            found |= dict.fromkeys(range(begin + 1, end))  # its underline
            found[begin] = Line(" ".join(after.content.split()), int(token.tag[1:]))
        elif token.type in ("fence", "code_block"):
            found |= {i: Line(lines[i], code=True) for i in range(begin, end)}
            ends = end - begin > 1 and not lines[end - 1].strip().strip(token.markup[:1])
            closing = token.markup if token.level == 0 and not ends else ""  # within a list, it ends with that
    for i, line in enumerate(lines):
        if one := found.get(i, Line(line)):
            yield one
    if closing:
        yield Line(closing, code=True)
