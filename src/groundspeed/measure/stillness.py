"""Whether what contenders left in a worker is still. A thread or process that sleeps is harmless; one that goes on
running while others are measured is not. Works only on Linux, which reports the CPU time of each thread and process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from groundspeed.measure.gate import Incorrect

TASKS = Path("/proc/self/task")
WINDOW_S = 0.05
"""The length of one look: a thread that keeps quiet for some milliseconds after its contender's call runs again during
most of it."""
NOTHING, LITTLE = 0.01, 0.1
"""Shares of a core. Sleeping threads take less than the first; one that wakes up a thousand times a second to look for
work takes less than the second."""
LONG_S = 0.5
"""Something that takes little is watched for at least this long, since on a busy machine it may have to wait for a
core."""
PATIENCE_S = {"thread": 2.0, "process": 10.0}
"""How long something may go on after a call has returned, and how much CPU time it may take: threads that wait for work
by spinning do so for 0.2 s, and the processes in which PyTorch compiles import PyTorch first."""


class LeftRunning(Incorrect):
    """Something that `contender` left takes CPU time while no contender is called; only ending the worker stops it."""

    def __init__(self, contender: str, reason: str) -> None:
        super().__init__(reason)
        self.contender = contender


class _Item(NamedTuple):
    """A thread of this process, or a process below it."""

    kind: str
    number: int

    def cpu_s(self) -> float:
        """Return the CPU time so far, or 0 if it has ended."""
        clock = ~self.number << 3 | (6 if self.kind == "thread" else 2)  # the kernel's ID for that CPU clock
        try:
            return time.clock_gettime(clock)
        except OSError:
            return 0.0


class Stillness:
    def __init__(self) -> None:
        self._owners: dict[_Item, str] = {}
        self._laboratory: set[_Item] = set()
        """Items that were there before any contender's code ran, or that the laboratory itself started."""
        self._then: dict[_Item, float] = {}
        self._since = 0.0
        """CPU time of each item when all was last still, and when that was."""
        self._claims = 2
        self.claim()

    def claim(self) -> None:
        """Count everything new as the laboratory's own, such as the threads of a driver: at the start, and once more
        before the first contender is called. What an imported file left was attributed before that."""
        if self._claims:
            self._claims -= 1
            present = _present()
            self._laboratory |= present - self._owners.keys()
            self.note("")
            self._found_still({item: item.cpu_s() for item in present})

    def _found_still(self, now: dict[_Item, float]) -> None:
        self._then, self._since = now, time.perf_counter()

    def _has_been(self, name: str, now: dict[_Item, float]) -> bool:
        """Return whether nothing ran since all was last still, which covers more time than a look that has to be waited
        for. Return False if anything is there that `name` or an import left: it may wake up at any moment, and must not
        do so in the time of others."""
        if any(self._owners.get(item, name) in (name, "") for item in now.keys() - self._laboratory):
            return False
        used = sum(seconds - self._then.get(item, 0.0) for item, seconds in now.items())
        return used < NOTHING * (time.perf_counter() - self._since)

    def note(self, name: str) -> None:
        """Attribute everything new to this contender."""
        for item in _present():
            self._owners.setdefault(item, name)

    def check(self, name: str, alive: Callable[[], None] = lambda: None) -> None:
        """Wait until only this thread runs; raise LeftRunning if that takes too long. Anything that is new, or that
        began before any contender was called, is attributed to `name`."""
        self.note(name)
        spent = dict.fromkeys(PATIENCE_S, 0.0)
        began = before = time.perf_counter()
        then = {item: item.cpu_s() for item in _present()}
        if self._has_been(name, then):
            self._found_still(then)
            return
        while then:
            time.sleep(WINDOW_S)
            now = {item: item.cpu_s() for item in _present()}
            used = {item: seconds - then.get(item, 0.0) for item, seconds in now.items()}
            passed, before = time.perf_counter() - before, time.perf_counter()
            if sum(used.values()) < NOTHING * passed:
                self._found_still(now)
                return
            so_far = before - began
            for kind in spent:
                spent[kind] += sum(seconds for item, seconds in used.items() if item.kind == kind)
            if so_far > LONG_S and sum(spent.values()) < LITTLE * so_far:
                return
            for kind, patience in PATIENCE_S.items():
                if min(spent[kind], so_far) > patience:
                    raise self._left(kind, used, spent[kind] / so_far, name)
            then = now
            alive()

    def _left(self, kind: str, used: dict[_Item, float], share: float, name: str) -> LeftRunning:
        _end_processes()
        busiest = max((item for item in used if item.kind == kind), key=lambda item: used[item])
        reason = f"left a {kind} running that uses {share:.0%} of a core while other contenders are measured"
        return LeftRunning(self._owners.get(busiest) or name, reason)


def _present() -> set[_Item]:
    """Return all threads but the first one, and all processes below this one."""
    try:
        with os.scandir(TASKS) as tasks:  # done for every sample: a Path for each would take longer than the rest
            threads = {_Item("thread", int(task.name)) for task in tasks}
    except OSError:
        return set()
    return threads - {_Item("thread", os.getpid())} | {_Item("process", number) for number in _descendants()}


def _descendants() -> list[int]:
    if not hasattr(os, "waitid"):
        return []
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # no child exists, and searching all processes would take milliseconds
        return []
    import psutil

    return [process.pid for process in psutil.Process().children(recursive=True)]


def children_cpu_s() -> float:
    """Return the CPU time of all processes below this one, so far."""
    return sum(_Item("process", number).cpu_s() for number in _descendants())


def _end_processes() -> None:
    """Kill all processes below this one, including those that left the process group and would survive the worker."""
    for number in _descendants():
        try:
            os.kill(number, 9)
        except OSError:
            pass
