"""The flags of commands: how one is declared, and what is made of its value."""

from __future__ import annotations

import math
from typing import Any

import typer

from groundspeed.errors import BadInput

Names = list[str] | None
"""What a flag that can be repeated gives."""


MOST_PRICE = 1e6


def flag(help_: str, panel: str | None = None, *names: str) -> Any:
    """A flag without a default to show; in a panel of the help, and under another name, where there is one."""
    return typer.Option(*names, help=help_, show_default=False, rich_help_panel=panel)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Names given as `A,B`, or with the flag repeated. BadInput for a flag that names none, as an unset variable does:
    it would mean everything."""
    parts = [[part for p in value.split(",") if (part := p.strip())] for value in values or []]
    if not all(parts):
        raise BadInput("a flag that takes names was given none; name some, or leave it out")
    return tuple(part for some in parts for part in some)


def checked_price(price: float | None) -> float | None:
    if price is not None and not 0 <= price <= MOST_PRICE:
        raise BadInput(
            f"--price-per-hour {price:g}: give what an hour of the device costs, as in --price-per-hour 3.99"
        )
    return price


def checked_seconds(flag: str, value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise BadInput(f"{flag} {value:g}: give seconds above 0, as in {flag} 2.5")
    return value


def checked_whole(flag: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise BadInput(f"{flag} {value}: give a whole number from {low} to {high}")
    return value
