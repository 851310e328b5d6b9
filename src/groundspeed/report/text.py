"""Numbers and names as text. Units exist only here; everywhere else values are in seconds and bytes."""

from __future__ import annotations

import math

NOTHING = "–"

Steps = tuple[tuple[float, str], ...]

_TIME: Steps = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES: Steps = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_COUNT: Steps = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_FLOP_RATE: Steps = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"))

_ROUNDS_UP = 0.9995
"""From this share of a unit on, three digits round up to one of it: 999.7 µs is 1.00 ms, not 1,000 µs."""


def safe(text: object) -> str:
    """Return text from a bundle without control characters, so that it cannot move a cursor or colour or hide a
    line."""
    said = str(text)
    return said if said.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in said)


def significant(value: float, digits: int = 3) -> str:
    """Return a value with `digits` significant digits and without an exponent: 0.0414, 1.38, 877, 1,380."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else NOTHING
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 9.996 has the exponent of 10.0
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def _scaled(value: float, steps: Steps) -> tuple[float, str]:
    return next(((size, unit) for size, unit in steps if abs(value) >= size * _ROUNDS_UP), steps[-1])


def seconds(value: float) -> str:
    if not math.isfinite(value):
        return NOTHING
    size, unit = _scaled(value, _TIME)
    return f"{significant(value / size)} {unit}"


def seconds_range(low: float, high: float, like: float) -> str:
    """Return a range, `1.36–1.39`, in the unit of `like`."""
    size, _ = _scaled(like, _TIME)
    if not math.isfinite(high):
        return NOTHING
    return f"{significant(low / size)}–{significant(high / size)}"


def time_unit(largest: float) -> tuple[float, str]:
    """Return the unit for times whose largest is this, in seconds. All of them share it, so that they can be
    compared."""
    return _scaled(largest, _TIME)


def bytes_unit(largest: float) -> tuple[float, str]:
    """Return the unit for amounts of bytes whose largest is this."""
    return _scaled(largest, _BYTES)


def amount_of_bytes(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    size, unit = _scaled(value, _BYTES)
    return f"{significant(value / size) if size > 1 else format(int(value), ',')} {unit}"


def count(value: float) -> str:
    size, unit = _scaled(value, _COUNT)
    return f"{significant(value / size)}{unit}" if math.isfinite(value) else NOTHING


def flop_rate_unit(largest: float) -> tuple[float, str]:
    """Return the unit for a column of FLOP/s whose largest is this. All of them share it, so that they can be
    compared."""
    return _scaled(largest, _FLOP_RATE)


def share(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    return "<0.1%" if 0 < value < 0.0005 else f"{value:.1%}"


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun: `1 case`, `2 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"
