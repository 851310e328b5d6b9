"""What a run leaves open that its reader may take for granted: a harder baseline that was measured beside the declared
one, and lengths at which kernels often fail and which no case has."""

from __future__ import annotations

from groundspeed.judge.judgement import Judgement
from groundspeed.judge.statistics import Interval

TILE = 16
"""Kernels work in tiles of multiples of this; many that are wrong are wrong only at other lengths."""


def harder_baseline(judgement: Judgement) -> tuple[str, int] | None:
    """Return the contender, neither baseline nor judged, that is faster than the baseline beyond its interval and the
    floor on most cases, and on how many; the one with the most. None if there is none."""
    run = judgement.record.run
    others = [c.name for c in judgement.record.measured if c.name not in (run.baseline, *run.judged)]
    faster = {name: sum(_is_faster(judgement, i, name) for i in range(len(judgement.cases))) for name in others}
    name, count = max(faster.items(), key=lambda item: item[1], default=("", 0))
    return (name, count) if 2 * count > len(judgement.cases) else None


def _is_faster(judgement: Judgement, case: int, name: str) -> bool:
    found = next((r.comparison for r in judgement.cases[case].results if r.contender == name), None)
    theta: Interval | None = found.interval if found else None
    return found is not None and theta is not None and theta.n > 1 and theta.low > found.floor.value


def whole_lengths(judgement: Judgement) -> list[int]:
    """Return the lengths of a run of somebody's own contenders if all of them are multiples of TILE, else nothing."""
    record = judgement.record
    params = [case.params for case in record.cases]
    if not record.run.with_files or any("lengths" in one or not isinstance(one.get("S"), int) for one in params):
        return []
    lengths = sorted({int(one[key]) for one in params for key in ("S", "N") if key in one})
    return lengths if all(length % TILE == 0 for length in lengths) else []
