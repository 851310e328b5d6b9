"""How judged contenders stand against the best of their rivals, below the headlines and as data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from groundspeed.judge.claims import clock_words, with_interval
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.rivals import BestRival, best_rivals
from groundspeed.report import text


def lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each judged contender and clock: `ours against the best rival, flash-attn-4: 1.12× (95% CI
    1.11–1.12), …`. Nothing if there are fewer than two rivals."""
    for found in best_rivals(judgement):
        grid = found.grid
        assert grid.interval is not None
        said = f"{with_interval(grid.interval, '95% CI ')}{_over(found)}{clock_words(judgement, grid.clock)}"
        floor = f", below the {grid.floor}" if found.below_floor else ""
        chosen = f"; the least favourable of {found.rivals} rivals"
        these = "this case" if len(grid.names) == 1 else "all of these cases"
        others = f"; {' and '.join(found.left_out)} did not do {these}" if found.left_out else ""
        doubt = f"; this is no claim: {found.doubt}" if found.doubt else ""
        name = f"{grid.contender} against the best rival, {grid.baseline}"
        yield text.safe(f"{name}: {said}{floor}{chosen}{others}{doubt}")


def _over(found: BestRival) -> str:
    names = found.grid.names
    if len(names) == 1:
        return f", {names[0]}"
    only = "" if len(names) == found.declared else "only "
    of = f" of {found.declared}" if only else ""
    return f", geometric mean over {only}{len(names)}{of} cases"


def plain(judgement: Judgement) -> list[dict[str, Any]]:
    """Return the same as data."""
    return [_plain(found) for found in best_rivals(judgement)]


def _plain(found: BestRival) -> dict[str, Any]:
    grid = found.grid
    assert grid.interval is not None
    return {
        "contender": grid.contender,
        "clock": grid.clock,
        "rival": grid.baseline,
        "geometric_mean": grid.ratio,
        "low": math.exp(grid.interval.low),
        "high": math.exp(min(grid.interval.high, 700)),
        "cases": len(grid.names),
        "rivals": found.rivals,
        "left_out": list(found.left_out),
        "doubt": found.doubt,
    }
