"""The console that commands print to: as wide as the terminal, and never wrapped in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_WIDTH = 250


def output() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def progress() -> Console:
    return Console(stderr=True, highlight=False)


def split(values: list[str] | None) -> tuple[str, ...]:
    """Names given as `A,B`, or with the flag repeated."""
    return tuple(part for value in values or [] for part in (p.strip() for p in value.split(",")) if part)
