"""A chart as small as a word that shows how a figure went from run to run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT, EDGE = 120, 24, 3
MOST = 60
"""The most points that are drawn; more cannot be told apart at this size. Each point of a longer line is the median of
several consecutive runs."""


def sparkline(values: Sequence[float], changes: Sequence[int], floor: float) -> Markup:
    """Draw the line and mark its `changes`. Its height covers at least four floors, so that noise looks like noise."""
    from markupsafe import Markup

    if not values:
        return Markup("")
    some = math.ceil(len(values) / MOST)
    logs = [math.log(statistics.median(values[i : i + some])) for i in range(0, len(values), some)]
    middle, room = (max(logs) + min(logs)) / 2, max(max(logs) - min(logs), 4 * floor, 1e-9)
    step = (WIDTH - 2 * EDGE) / max(1, len(logs) - 1)

    def x(i: float) -> str:
        return f"{EDGE + i * step:.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT / 2 - (value - middle) / room * (HEIGHT - 2 * EDGE):.1f}"

    places = [f"{x(i)} {y(value)}" for i, value in enumerate(logs)]
    marks = "".join(f'<path class="mark" d="M{x(at / some - 0.5)} 0V{HEIGHT}"/>' for at in changes)
    last = places[-1].split()
    return Markup(
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f'{marks}<path class="run" d="M{"L".join(places)}"/><circle cx="{last[0]}" cy="{last[1]}" r="2"/></svg>'
    )
