"""A GPU and its host as a clock sees them, without either."""

from __future__ import annotations

from typing import Any

HOST_S, FLUSH_S, KERNEL_S = 4e-6, 15e-6, 5e-6


class StandIn:
    """A queue of work that begins when it is given, or when what is before it is done; a host that takes its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.free = 0.0
        self.log: list[str] = []
        self.done: list[tuple[str, float, float]] = []
        """What it did, from when, for how long."""
        self.stalls: list[float] = []

    def submit(self, what: str, seconds: float) -> None:
        self.now += HOST_S
        self.done.append((what, max(self.now, self.free), seconds))
        self.free = max(self.now, self.free) + seconds
        self.log.append(what)

    def event(self) -> Any:
        return Event(self)

    def synchronize(self) -> None:
        self.now = max(self.now, self.free) + HOST_S

    def sleep(self, seconds: float) -> None:
        self.submit("sleep", seconds)

    def flush(self) -> None:
        self.submit("flush", FLUSH_S)

    def kernel(self) -> None:
        if self.stalls:
            self.now += self.stalls.pop(0)
        self.submit("kernel", KERNEL_S)


class Event:
    def __init__(self, device: StandIn) -> None:
        self.device = device

    def record(self) -> None:
        self.time = max(self.device.now, self.device.free)

    def query(self) -> bool:
        return self.device.now >= self.time

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.time - self.time)
