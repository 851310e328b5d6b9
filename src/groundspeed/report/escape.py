"""Text out of a bundle in Markdown, where it stays text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from groundspeed.report import text

_MARKUP = re.compile(r"[|`*_\[\]\\~$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""What Markdown or GitHub makes something of inside a line: bare addresses become links, $…$ a formula."""
_LINE_START = re.compile(r"^(\d*)([#+=.)-])")


def escape(value: object) -> str:
    """Text out of a bundle as Markdown that stays text: no HTML, no table cell of its own, no link, no formula."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(text.safe(value), quote=False))


def paragraph(value: object) -> str:
    """Text at the start of a line, where it could be a heading, a list, a quote or indented code."""
    return _LINE_START.sub(r"\1\\\2", escape(str(value).lstrip()))


def code(value: object) -> str:
    """Text between backticks, in which nothing can be escaped."""
    return f"`{text.safe(value).replace('`', '')}`"


def markdown_table(headings: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int]) -> Iterator[str]:
    left = set(left)
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "|".join("---" if i in left else "---:" for i in range(len(headings))) + "|"
    for row in body:
        yield "| " + " | ".join(escape(cell) for cell in row) + " |"
