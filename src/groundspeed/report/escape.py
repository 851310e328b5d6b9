"""Text out of a bundle in Markdown, where it stays text."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

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


class Markdown(str):
    """Text that is Markdown already: it is not escaped again."""


def link(said: object, way: str) -> Markdown:
    """`way`: as `anchor` makes it."""
    return Markdown(f"[{escape(said)}]({way})")


def reference(label: str) -> Markdown:
    """A link of which the page says elsewhere, by `definition`, where it leads: for ways that are long."""
    return Markdown(f"[{escape(label)}]")


def definition(label: str, way: str) -> str:
    """`way`: as `way_to` makes it."""
    return f"{reference(label)}: {way}"


def way_to(path: Path, folder: Path) -> str:
    """From a page that lies in `folder`. Both as they really lie: a link among the folders would lead astray."""
    return quote(os.fsencode(os.path.relpath(path.resolve(), folder.resolve())))


def anchor(heading: str) -> str:
    """Of a heading of ours, in letters, spaces and hyphens, on the same page."""
    return f"#{heading.lower().replace(' ', '-')}"


def joined(separator: str, parts: Iterable[str]) -> str:
    """Of text, text; with Markdown among it, Markdown in which the rest stays text."""
    found = list(parts)
    if not any(isinstance(part, Markdown) for part in found):
        return text.safe(separator.join(found))
    return Markdown(escape(separator).join(map(as_markdown, found)))


def as_markdown(value: str) -> str:
    """Escaped, unless it is Markdown."""
    return value if isinstance(value, Markdown) else escape(value)


def markdown_table(headings: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int]) -> Iterator[str]:
    left = set(left)
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "|".join("---" if i in left else "---:" for i in range(len(headings))) + "|"
    for row in body:
        yield "| " + " | ".join(map(as_markdown, row)) + " |"
