"""Escapes text from a bundle so that it stays text in Markdown."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from groundspeed.report import text

_MARKUP = re.compile(r"[|`*_\[\]\\~$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters that Markdown or GitHub interprets within a line: bare addresses become links, and $…$ a formula."""
_LINE_START = re.compile(r"^(\d*)([#+=.)-])")


def escape(value: object) -> str:
    """Return text from a bundle as Markdown that stays text: no HTML, no new table cell, no link, no formula."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(text.safe(value), quote=False))


def paragraph(value: object) -> str:
    """Escape text for the start of a line, where it could become a heading, a list, a quote or indented code."""
    return _LINE_START.sub(r"\1\\\2", escape(str(value).lstrip()))


def code(value: object) -> str:
    """Return text as inline code. Backticks are removed, because nothing can be escaped inside it."""
    return f"`{text.safe(value).replace('`', '')}`"


class Markdown(str):
    """Text that is already Markdown and is not escaped again."""


def link(said: object, way: str) -> Markdown:
    """Return a link. `way` is what `anchor` returns."""
    return Markdown(f"[{escape(said)}]({way})")


def reference(label: str) -> Markdown:
    """Return a link whose target a `definition` elsewhere on the page gives; for long paths."""
    return Markdown(f"[{escape(label)}]")


def definition(label: str, way: str) -> str:
    """Return the line that gives the target of a `reference`. `way` is what `way_to` returns."""
    return f"{reference(label)}: {way}"


def way_to(path: Path, folder: Path) -> str:
    """Return the relative URL of `path` from a page in `folder`. Both are resolved first, because a relative path
    across a symbolic link would lead to the wrong place."""
    return quote(os.fsencode(os.path.relpath(path.resolve(), folder.resolve())))


def anchor(heading: str) -> str:
    """Return the URL of one of our headings on the same page. It may contain only letters, spaces and hyphens."""
    return f"#{heading.lower().replace(' ', '-')}"


def joined(separator: str, parts: Iterable[str]) -> str:
    """Join the parts. The result is text, or Markdown if one of them is Markdown; the other parts are then escaped."""
    found = list(parts)
    if not any(isinstance(part, Markdown) for part in found):
        return text.safe(separator.join(found))
    return Markdown(escape(separator).join(map(as_markdown, found)))


def as_markdown(value: str) -> str:
    """Return the value, escaped unless it is Markdown."""
    return value if isinstance(value, Markdown) else escape(value)


def markdown_table(headings: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int]) -> Iterator[str]:
    left = set(left)
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "|".join("---" if i in left else "---:" for i in range(len(headings))) + "|"
    for row in body:
        yield "| " + " | ".join(map(as_markdown, row)) + " |"
