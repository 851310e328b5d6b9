"""The line-up before a run on a GPU: a separate worker says which kernels each contender launches on each case.

A contender that hangs here or takes the worker with it is not tried on that case again. One that fails in another way
is: the run will say how."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from groundspeed.case import Case
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import derive_seed
from groundspeed.measure.caserun import PREPARE_FACTOR
from groundspeed.measure.channel import Died, Message, Silence, Worker
from groundspeed.measure.greeting import greeted
from groundspeed.measure.runner import Plan
from groundspeed.measure.team import start_of

LINE_UP = "line-up"
TOLD = ("contender", "kernels", "binaries", "timings", "moves", "times", "seconds")
"""What a worker says about a contender and the journal keeps."""
Pair = tuple[str, str]
"""Case and contender."""


def by_shape(cases: Sequence[Case]) -> list[list[Case]]:
    """Group the cases that are the same work measured by different clocks."""
    shapes: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        shapes.setdefault(tuple((k, v) for k, v in case.params.items() if k != "clock"), []).append(case)
    return list(shapes.values())


@dataclass
class LineUp:
    plan: Plan
    journal: Journal
    spawn: Callable[..., Worker]
    """Starts a worker for all contenders, or for one if it is named."""
    known: Collection[Pair]
    """The pairs whose kernels are already in the journal; the case is the first one of its shape."""
    tell: Callable[[str], None] = lambda text: None
    refused: dict[Pair, tuple[str, str]] = field(default_factory=dict)
    """The pairs that hung or died, or whose file is refused → status and reason."""
    unwatched: set[Pair] = field(default_factory=set)
    """(contender, clock) with which the worker was lost: the contender is not watched by that clock again."""

    def run(self) -> None:
        """Survey every shape once, whatever clocks it is measured by: all contenders in one worker, or each in its own
        if none may share a process."""
        if not self.plan.protocol.isolated:
            self._look_at(self.plan.contenders, dict(self.plan.start), self.spawn)
            return
        for name in self.plan.contenders:
            start = start_of(dict(self.plan.start), name, self.plan.files)
            self._look_at([name], start, partial(self.spawn, name))

    def _look_at(self, names: Sequence[str], start: Message, spawn: Callable[[], Worker]) -> None:
        worker: Worker | None = None
        try:
            for cases in by_shape(self.plan.cases):
                missing = [name for name in names if self._is_missing(cases, name)]
                while missing:
                    if worker is None:
                        worker, _, start = greeted(spawn, start)
                    why = start.get("refused", {})
                    for name in [name for name in missing if name in why]:
                        missing = self._lost(cases, name, [x for x in missing if x != name], ("INCORRECT", why[name]))
                    if missing:
                        missing, worker = self._survey(cases, missing, worker)
        finally:
            if worker is not None:
                worker.close()

    def _is_missing(self, cases: Sequence[Case], contender: str) -> bool:
        wanted = any((case.name, contender) not in self.plan.refused for case in cases)
        return wanted and (cases[0].name, contender) not in self.known

    def _survey(self, cases: Sequence[Case], names: list[str], worker: Worker) -> tuple[list[str], Worker | None]:
        """Return the contenders that are still missing afterwards, and the worker unless it was lost."""
        seed = derive_seed(self.plan.seed, cases[0].name, "line-up")
        params = {key: value for key, value in cases[0].params.items() if key != "clock"}
        current: str | None = None
        left = [*names]
        try:
            by_clocks = {n: [c.clock for c in cases if (n, c.clock) not in self.unwatched] for n in names}
            worker.send({"survey": {"params": params, "contenders": names, "seed": seed, "clocks": by_clocks}})
            while (message := worker.receive(PREPARE_FACTOR * self.plan.protocol.timeout_s))["kind"] != "surveyed":
                if message["kind"] == "fault all":
                    return [], worker
                current = message["contender"]
                if message["kind"] == "at":
                    self.tell(f"{cases[0].name}, {current}")
                    left.remove(current)
                elif message["kind"] == "launched":
                    seen = {key: message[key] for key in TOLD}
                    self.journal.write("launched", case=cases[0].name, **seen)
                elif message["broken"] or message["status"] == "OOM":
                    if "clock" in message:
                        self.unwatched.add((current, message["clock"]))
                    worker.close()
                    return left, None
        except Died as death:
            worker.close()
            return self._lost(cases, current, left, ("OOM" if death.out_of_memory else "ERROR", str(death))), None
        except Silence:
            worker.close()
            limit = PREPARE_FACTOR * self.plan.protocol.timeout_s
            return self._lost(cases, current, left, ("TIMEOUT", f"no answer within {limit:g} s")), None
        return [], worker

    def _lost(self, cases: Sequence[Case], name: str | None, left: list[str], why: tuple[str, str]) -> list[str]:
        if name is None:  # no contender is to blame: none can be surveyed on this shape
            return []
        for case in cases:
            self.refused[case.name, name] = why
        return left
