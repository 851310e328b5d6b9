"""Parses shapes as a user writes them: `S=777,D=96`."""

from __future__ import annotations

from collections.abc import Iterable

from groundspeed.errors import BadInput, unknown

MAX_DIGITS = 9
"""The most digits of a number that a user writes: a record could hold far more than any machine can do."""


def parts_of(text: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the parts of a shape as they were written, by key."""
    known, found = list(keys), dict[str, str]()
    for part in map(str.strip, text.split(",")):
        key = part.partition("=")[0]
        if key not in known:
            raise unknown("key in --shape", key, known, see=f"The keys are {', '.join(known)}.")
        if key in found:
            raise BadInput(f"--shape {text:.200}: {key} is given twice")
        found[key] = part
    return found


def whole_number(part: str, example: str, *, least: int = 1) -> int:
    key, _, value = part.partition("=")
    if not value.isascii() or not value.isdigit() or (least and not value.strip("0")):
        at_least = " of at least 1" if least else ""
        raise BadInput(f"--shape {part}: {key} needs a whole number{at_least}, as in --shape {example}")
    if len(value) > MAX_DIGITS:
        raise BadInput(f"--shape {part:.40}: {key} is out of range")
    return int(value)
