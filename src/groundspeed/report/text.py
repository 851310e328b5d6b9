"""Numbers and names as text. Units live here and nowhere else; inside, everything is seconds and bytes."""

from __future__ import annotations

import math

NOTHING = "–"


def safe(text: object) -> str:
    """Text out of a bundle without control characters: it cannot move a cursor, colour a line or hide one."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def significant(value: float, digits: int = 3) -> str:
    """`digits` significant digits, without an exponent: 0.0414, 1.38, 877, 1,380."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NOTHING
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    return next(((size, unit) for size, unit in steps if abs(value) >= size), steps[-1])


_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_COUNT = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def seconds(value: float) -> str:
    size, unit = _scaled(value, _TIME)
    return f"{significant(value / size)} {unit}"


def seconds_range(low: float, high: float, like: float) -> str:
    """`1.36–1.39`, in the unit of `like`."""
    size, _ = _scaled(like, _TIME)
    if not math.isfinite(high):
        return NOTHING
    return f"{significant(low / size)}–{significant(high / size)}"


def amount_of_bytes(value: float | None) -> str:
    if value is None:
        return NOTHING
    size, unit = _scaled(value, _BYTES)
    return f"{significant(value / size) if size > 1 else int(value)} {unit}"


def count(value: float) -> str:
    size, unit = _scaled(value, _COUNT)
    return f"{significant(value / size)}{unit}"


def share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"
