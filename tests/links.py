"""The links of a Markdown text, as a reader of CommonMark and tables sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token


class Link(NamedTuple):
    said: str
    to: str
    """Percent-encoded, as it stands in the page."""


def _inline(content: str) -> Iterator[tuple[Token | None, Token]]:
    """Every line of text, with what was opened before it."""
    before = None
    for token in MarkdownIt("commonmark").enable("table").parse(content):
        if token.type == "inline":
            yield before, token
        before = token


def links(content: str) -> list[Link]:
    found = []
    for _, line in _inline(content):
        inside: Link | None = None
        for token in line.children or ():
            if token.type == "link_open":
                inside = Link("", str(token.attrs["href"]))
            elif token.type == "link_close" and inside:
                found.append(inside)
                inside = None
            elif inside:
                inside = inside._replace(said=inside.said + token.content)
    return found


def anchors(content: str) -> list[str]:
    """Of the headings, as GitHub makes them."""
    headings = [line.content for before, line in _inline(content) if before and before.type == "heading_open"]
    return ["#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
