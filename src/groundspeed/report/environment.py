"""The environment manifest (A7) for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from groundspeed.report import text
from groundspeed.report.escape import escape


class Part(NamedTuple):
    name: str
    short: str
    """What fits one line."""
    long: list[str]
    """What takes a line of its own, one each."""


def environment_parts(environment: dict[str, Any]) -> Iterator[Part]:
    """The environment manifest in words."""
    for name, part in environment.items():
        entries = part if isinstance(part, dict) else {"": part}
        said = {key: value for key, value in entries.items() if value not in (None, [], {})}
        short = ", ".join(_entry(key, value) for key, value in said.items() if not isinstance(value, (list, dict)))
        long = [_entry(key, value) for key, value in said.items() if isinstance(value, (list, dict))]
        yield Part(_words(name), short or ("" if said else "none"), long)


def environment_lines(environment: dict[str, Any]) -> Iterator[str]:
    """The same as a Markdown list."""
    for part in environment_parts(environment):
        yield f"- **{escape(part.name)}**: {escape(part.short)}".rstrip()
        yield from (f"  - {escape(line)}" for line in part.long)


def _entry(key: str, value: Any) -> str:
    """`total 23.5 GiB` for `total_bytes`: a unit belongs to the number, not to the name."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for unit, tell in (("_bytes", text.amount_of_bytes), ("_s", text.seconds)):
            if key.endswith(unit):
                return f"{_words(key.removesuffix(unit))} {tell(value)}"
    return f"{_words(key)} {_value(value)}".lstrip()


def _words(key: str) -> str:
    """A key of the record as words; one that is a name out of somebody's environment stays as it is."""
    return key if key.isupper() else key.replace("_", " ")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(map(_value, value))
    if isinstance(value, dict):
        return "; ".join(f"{key} {_value(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and value > 99_999 else str(value)
