"""Compiling ahead: the compilations of first calls run in several processes at once, so that the line-up finds them in
the cache. Nothing is timed or recorded here, and whatever fails here will fail again, and be reported, in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from groundspeed.case import Case
from groundspeed.errors import GroundspeedError
from groundspeed.measure.caserun import PREPARE_FACTOR
from groundspeed.measure.channel import Died, Silence, Worker
from groundspeed.measure.environment import usable_cores
from groundspeed.measure.greeting import greeted
from groundspeed.measure.runner import Plan

CORES_EACH = 4
"""Cores per process: a compiler uses more than one."""
MOST = 4
"""The most processes at once: each has PyTorch on the GPU."""


def kinds_of(cases: Sequence[Case], keys: Sequence[str]) -> list[list[Case]]:
    """Group the cases for which the same code is compiled (those with equal values of `keys`), the largest group
    first."""
    kinds: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        kinds.setdefault(tuple(case.params.get(key) for key in keys), []).append(case)
    return sorted(kinds.values(), key=len, reverse=True)


def at_once(kinds: int) -> int:
    """Return the number of processes that is worth starting."""
    return min(kinds, MOST, usable_cores() // CORES_EACH)


def compile_ahead(
    plan: Plan, spawn: Callable[[], Worker], contenders: Sequence[str], kinds: Sequence[Sequence[Case]], processes: int
) -> None:
    """Call these contenders on all cases; all cases of a kind go to the same process."""
    hands = [[case for kind in kinds[i::processes] for case in kind] for i in range(processes)]
    sources = {name: digest for name, digest in plan.start["sources"].items() if name in contenders}
    start = {**plan.start, "with_files": [], "sources": sources}
    workers: list[Worker] = []
    over = threading.Event()

    def spawned() -> Worker:
        workers.append(spawn())
        if over.is_set():
            workers[-1].close()
        return workers[-1]

    def one(cases: Sequence[Case]) -> None:
        calls = [[dict(c.params), [n for n in contenders if (c.name, n) not in plan.refused]] for c in cases]
        with suppress(Died, Silence, GroundspeedError, OSError):
            worker, _, _ = greeted(spawned, start)
            worker.send({"ahead": {"calls": calls}})
            while worker.receive(PREPARE_FACTOR * plan.protocol.timeout_s)["kind"] != "compiled":
                pass

    pool = ThreadPoolExecutor(processes)
    try:
        list(pool.map(one, hands))
    finally:  # also after Ctrl-C: the threads that wait for the workers go on
        over.set()
        for worker in workers:
            _close(worker)
        pool.shutdown()


def _close(worker: Worker) -> None:
    """Close the worker even if another Ctrl-C interrupts the attempt: while the worker lives, a thread of the pool
    waits for it."""
    while True:
        try:
            worker.close()
        except KeyboardInterrupt:
            continue
        return
