"""How many cores a contender's calls use. A contender that uses more than were declared is measured on a larger machine
than the record says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from groundspeed.measure.gate import Incorrect
from groundspeed.measure.stillness import children_cpu_s

SLACK = 1.1
SLACK_S = 0.005
"""Tolerance of the check. Other load on the machine can only lower the CPU time that the cores give; the tolerance is
for inaccurate readings, and for threads that go on spinning for a while as they wait for work."""


@dataclass
class CoreUse:
    """The core use of one contender on one case, over all its timed calls."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), _cpu_s()
        yield
        self.cpu_s += _cpu_s() - cpu
        self.wall_s += time.perf_counter() - wall

    def check(self, cores: int) -> None:
        if self.cpu_s > SLACK * cores * self.wall_s + SLACK_S:
            taken = self.cpu_s / self.wall_s
            declared = "1 was" if cores == 1 else f"{cores} were"
            raise Incorrect(f"its calls used {taken:.1f} cores on average, but {declared} declared")


def _cpu_s() -> float:
    """Return the CPU time of this process and its descendants, including those that have ended."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + children_cpu_s()
