"""Characters as a reader sees them, at the offsets of the source."""

from __future__ import annotations

import html
import re

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|br|code|em|font|i|kbd|mark|math|nobr|samp|small|span|strong|sub|sup|tt|u|var|wbr)"
    r"(?:\s[^<>]{0,200})?/?>"
)
"""Tags that only format the text within a line."""
_ESCAPED = re.compile(r"\\(?=[!-/:-@\[-`{}~])")
_TIMES = re.compile(r"\$?\\times(?![A-Za-z])\$?")
_STRUCTURE = "|`<>"
"""Characters that mean nothing to Markdown if they are written as an entity."""
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("⨯✕✖⨉", "×"),
        "％": "%",
        **dict.fromkeys("\u2010\u2011", "-"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\xad", " "),
    }
)


def shown(text: str) -> str:
    """Return the text with entities, escapes, TeX's `\\times` and formatting tags as they are shown, each at the end of
    its place, so that what follows stays where it is."""
    text = text.translate(_ALIKE)
    if "&" in text:
        text = _ENTITY.sub(_character, text)
    if "\\" in text:
        text = _TIMES.sub(lambda found: "×".rjust(len(found[0])), text)
        text = _ESCAPED.sub(_unescaped, text)
    return _TAG.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text) if "<" in text else text


def _character(found: re.Match[str]) -> str:
    """Return the character of an entity. A digit or a point fills its place, so that its number stays one number."""
    said = html.unescape(found[0])
    if said == found[0]:
        return said
    said = said.translate(_ALIKE)
    said = " " if said in _STRUCTURE or not said.isprintable() or len(said) > len(found[0]) else said
    fill = said if said.isdigit() else "," if said in ".," else " "
    return said.rjust(len(found[0]), fill[0])


def _unescaped(found: re.Match[str]) -> str:
    return "," if found.string[found.end()] in ".," else " "
