"""The environment manifest (A7) in words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from groundspeed.report import text
from groundspeed.report.escape import escape

PARTS, ENTRIES = 64, 256
"""The most parts of an environment, and entries of a part, that are shown. A real machine has about a quarter as
many."""
LONGEST, LETTERS = 2_000, 16_000
"""The most characters of an entry, and of a part, that are shown. No real environment has more; longer text is cut, and
the page says how much is left out."""


class Part(NamedTuple):
    name: str
    short: str
    """The entries that share one line."""
    long: list[str]
    """The entries that take a line each."""


def environment_parts(environment: dict[str, Any]) -> Iterator[Part]:
    """Yield the parts of the environment manifest in words, up to the limits above, and say what is left out."""
    for name, part in islice(environment.items(), PARTS):
        entries = part if isinstance(part, dict) else {"": part}
        said = {key: value for key, value in entries.items() if value not in (None, [], {})}
        short: list[str] = []
        long: list[str] = []
        room = LETTERS
        for number, (key, value) in enumerate(said.items()):
            if number == ENTRIES or room <= 0:
                long.append(f"{len(said) - number:,} more left out here; the bundle has them")
                break
            told = _cut(_entry(key, value))
            room -= len(told)
            (long if isinstance(value, (list, dict)) else short).append(told)
        yield Part(_cut(_words(name)), ", ".join(short) or ("" if said else "none"), long)
    if (more := len(environment) - PARTS) > 0:
        yield Part("more", f"{text.plural(more, 'part')} left out here; the bundle has them", [])


def _cut(told: str) -> str:
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}… ({len(told) - LONGEST:,} characters left out here)"


def environment_lines(environment: dict[str, Any]) -> Iterator[str]:
    """Yield the environment manifest as a Markdown list."""
    for part in environment_parts(environment):
        yield f"- **{escape(part.name)}**: {escape(part.short)}".rstrip()
        yield from (f"  - {escape(line)}" for line in part.long)


def _entry(key: str, value: Any) -> str:
    """Return an entry in words. A unit in the key moves to the number: `total 23.5 GiB` for `total_bytes`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for unit, tell in (("_bytes", text.amount_of_bytes), ("_s", text.seconds)):
            if key.endswith(unit):
                return f"{_words(key.removesuffix(unit))} {tell(value)}"
    return f"{_words(key)} {_value(value)}".lstrip()


def _words(key: str) -> str:
    """Return a key of the record as words. An upper-case key is the name of an environment variable and is kept."""
    return key if key.isupper() else key.replace("_", " ")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(_value, value))
    if isinstance(value, dict):
        return "; ".join(f"{key} {_value(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and value > 99_999 else str(value)
