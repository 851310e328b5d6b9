"""When a process stops on a case: by the width of its intervals, never by significance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from groundspeed.evidence.protocol import Protocol
from groundspeed.evidence.record import StopReason
from groundspeed.judge.statistics import trimmed

Times = Mapping[str, Mapping[int, float]]
"""Contender → block → seconds per call, for one case in one process."""


def log_ratios(times: Times, contender: str, baseline: str) -> list[float]:
    """Return θ of every block in which both contenders were timed, in the order of the blocks."""
    own, other = times.get(contender, {}), times.get(baseline, {})
    return [math.log(other[block] / own[block]) for block in sorted(own.keys() & other.keys())]


def should_stop(
    protocol: Protocol, blocks: int, times: Times, pairs: Sequence[tuple[str, str]], elapsed_s: float
) -> StopReason | None:
    """Return why a process stops after `blocks` blocks of a case, or None if it goes on. `pairs` are the judged pairs
    that are still being measured."""
    if blocks not in protocol.looks:
        return None
    if not pairs:
        return "no pair left"
    if all(_narrow(log_ratios(times, contender, baseline), protocol.half_width) for contender, baseline in pairs):
        return "width"
    if blocks == protocol.looks[-1]:
        return "last look"
    if protocol.process_budget_s is not None and elapsed_s > protocol.process_budget_s:
        return "budget"
    return None


def _narrow(theta: Sequence[float], half_width: float) -> bool:
    return len(theta) > 1 and trimmed(theta).half_width() <= half_width
