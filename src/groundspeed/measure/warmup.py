"""When a warm-up is over."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

WINDOW = 5
AGREEMENT = 0.02
MAX_WARMUP = 10
"""A warm-up that will not settle ends after this many times its minimum, and the record says so."""


def is_stable(samples: Sequence[float]) -> bool:
    """The medians of the last two windows of samples agree within 2%."""
    if len(samples) < 2 * WINDOW:
        return False
    earlier = statistics.median(samples[-2 * WINDOW : -WINDOW])
    later = statistics.median(samples[-WINDOW:])
    return abs(earlier - later) <= AGREEMENT * later


def warmup_over(samples: Sequence[float], spent_s: float, minimum_s: float) -> bool | None:
    """True: warm and stable. False: given up, still unstable. None: go on.

    Of samples that are long against the minimum, the last two of at least three need to agree, instead of windows."""
    if spent_s < minimum_s or len(samples) < 3:
        return None
    if min(samples) > minimum_s / 3:
        if abs(samples[-2] - samples[-1]) <= AGREEMENT * samples[-1]:
            return True
        return False if len(samples) >= 2 * WINDOW else None
    if is_stable(samples):
        return True
    return False if spent_s > MAX_WARMUP * minimum_s else None
