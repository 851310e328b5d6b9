"""Whether what contenders left in a worker is still: a thread or a process that sleeps is nobody's business, one that
goes on running while others are measured is. Found on Linux only, which tells the CPU time of each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from groundspeed.measure.gate import Incorrect

TASKS = Path("/proc/self/task")
WINDOW_S = 0.05
"""Of one look. Whoever keeps quiet for some milliseconds after his own call is awake again for most of it."""
NOTHING, LITTLE = 0.01, 0.1
"""Shares of a core: what sleeps takes less than the first, what wakes up a thousand times a second to look for work
less than the second."""
LONG_S = 0.5
"""For so long at least it is looked whether something takes little, since on a busy machine it may have to wait."""
PATIENCE_S = {"thread": 2.0, "process": 10.0}
"""What may go on for so long, and take so much CPU time, after a call has returned: threads that wait for work by
spinning do so for 0.2 s, and processes that PyTorch compiles in first import PyTorch."""


class LeftRunning(Incorrect):
    """Something that `contender` left takes CPU time while nobody is called; only the end of the worker ends it."""

    def __init__(self, contender: str, reason: str) -> None:
        super().__init__(reason)
        self.contender = contender


class _Item(NamedTuple):
    """A thread of this process, or a process below it."""

    kind: str
    number: int

    def cpu_s(self) -> float:
        """CPU time so far; none where it has ended."""
        clock = ~self.number << 3 | (6 if self.kind == "thread" else 2)  # as the kernel numbers the clocks of others
        try:
            return time.clock_gettime(clock)
        except OSError:
            return 0.0


class Stillness:
    def __init__(self) -> None:
        self._owners: dict[_Item, str] = {}
        self._laboratory: set[_Item] = set()
        """What was there before anybody else's code ran, or came of what the laboratory did itself."""
        self._then: dict[_Item, float] = {}
        self._since = 0.0
        """The CPU time of each when all was still the last time, and when that was."""
        self._claims = 2
        self.claim()

    def claim(self) -> None:
        """Before the first contender is called, and once: whatever is new is the laboratory's own, as the threads of a
        driver are. What a file that was imported has left was seen then."""
        if self._claims:
            self._claims -= 1
            present = _present()
            self._laboratory |= present - self._owners.keys()
            self.note("")
            self._found_still({item: item.cpu_s() for item in present})

    def _found_still(self, now: dict[_Item, float]) -> None:
        self._then, self._since = now, time.perf_counter()

    def _has_been(self, name: str, now: dict[_Item, float]) -> bool:
        """Whether all did nothing since the last time, which is a longer look than any that could be waited for; and
        nothing is there of the one that is asked about, or of an import: that may wake up any moment, and must not do
        so in the time of others."""
        if any(self._owners.get(item, name) in (name, "") for item in now.keys() - self._laboratory):
            return False
        used = sum(seconds - self._then.get(item, 0.0) for item, seconds in now.items())
        return used < NOTHING * (time.perf_counter() - self._since)

    def note(self, name: str) -> None:
        """Whatever is new is of this contender."""
        for item in _present():
            self._owners.setdefault(item, name)

    def check(self, name: str, alive: Callable[[], None] = lambda: None) -> None:
        """Wait until nothing runs but this thread; LeftRunning where that takes too long. What is new, or began before
        any contender was called, is put down to `name`."""
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
        reason = f"left a {kind} running that takes {share:.0%} of a core while others are measured"
        return LeftRunning(self._owners.get(busiest) or name, reason)


def _present() -> set[_Item]:
    """All threads but the first one, and all processes below this one."""
    try:
        with os.scandir(TASKS) as tasks:  # for every sample: a Path of each would take longer than all the rest
            threads = {_Item("thread", int(task.name)) for task in tasks}
    except OSError:
        return set()
    return threads - {_Item("thread", os.getpid())} | {_Item("process", number) for number in _descendants()}


def _descendants() -> list[int]:
    if not hasattr(os, "waitid"):
        return []
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is none, and looking through the whole system would take milliseconds
        return []
    import psutil

    return [process.pid for process in psutil.Process().children(recursive=True)]


def children_cpu_s() -> float:
    """CPU time of all processes below this one, so far."""
    return sum(_Item("process", number).cpu_s() for number in _descendants())


def _end_processes() -> None:
    """Also those that left the group in which they would end with the worker."""
    for number in _descendants():
        try:
            os.kill(number, 9)
        except OSError:
            pass
