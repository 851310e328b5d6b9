"""The flags of commands: how they are declared, and how their values are parsed and checked."""

from __future__ import annotations

import math
from typing import Any

import typer

from groundspeed.errors import BadInput

Names = list[str] | None
"""The value of a flag that can be repeated."""


MOST_PRICE = 1e6


def flag(help_: str, panel: str | None = None, *names: str) -> Any:
    """Declare a flag without a default to show; optionally in a panel of the help, or under another name."""
    return typer.Option(*names, help=help_, show_default=False, rich_help_panel=panel)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Return names given as `A,B` or with the flag repeated. BadInput for a flag without any name, as from an unset
    variable: it would mean everything."""
    parts = [[part for p in value.split(",") if (part := p.strip())] for value in values or []]
    if not all(parts):
        raise BadInput("a flag that takes names was given none; name at least one, or leave the flag out")
    return tuple(part for some in parts for part in some)


def checked_price(price: float | None) -> float | None:
    if price is not None and not 0 <= price <= MOST_PRICE:
        raise BadInput(f"--price-per-hour {price:g}: give the price of one device hour, as in --price-per-hour 3.99")
    return price


def checked_seconds(flag: str, value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise BadInput(f"{flag} {value:g}: give a number of seconds above 0, as in {flag} 2.5")
    return value


def checked_whole(flag: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise BadInput(f"{flag} {value}: give a whole number from {low} to {high}")
    return value
