"""How many cores a contender's calls take: whoever takes more than were declared is measured on another machine."""

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
"""Whatever the machine is busy with makes CPU time less than the cores had, never more: this is for the reading of it,
and for what a thread still does that waits for work by spinning."""


@dataclass
class CoreUse:
    """Of one contender on one case, over all its timed calls."""

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
            declared = "1 is" if cores == 1 else f"{cores} are"
            raise Incorrect(f"its calls took {taken:.1f} cores at a time, where {declared} declared")


def _cpu_s() -> float:
    """Of this process and those below it, those that have ended too."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + children_cpu_s()
