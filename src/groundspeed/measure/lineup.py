"""The line-up before a run on a GPU: a worker of its own says which kernels each contender launches on each case.

A contender that hangs here or takes the worker with it is not tried on that case again; one that fails otherwise is:
the run will say how."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from groundspeed.case import Case
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import derive_seed
from groundspeed.measure.caserun import PREPARE_FACTOR
from groundspeed.measure.channel import Died, Silence, Worker
from groundspeed.measure.runner import START_LIMIT_S, Plan

Pair = tuple[str, str]
"""Case and contender."""


def by_shape(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases that are the same work by different clocks, together."""
    shapes: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        shapes.setdefault(tuple((k, v) for k, v in case.params.items() if k != "clock"), []).append(case)
    return list(shapes.values())


@dataclass
class LineUp:
    plan: Plan
    journal: Journal
    spawn: Callable[[], Worker]
    known: Collection[Pair]
    """Those whose kernels are in the journal already, by the first case of a shape."""
    tell: Callable[[str], None] = lambda text: None
    refused: dict[Pair, tuple[str, str]] = field(default_factory=dict)
    """Those that hung or died, with status and reason."""

    def run(self) -> None:
        """Survey every shape once, whatever clocks it is measured by."""
        worker: Worker | None = None
        try:
            for cases in by_shape(self.plan.cases):
                missing = [name for name in self.plan.contenders if self._is_missing(cases, name)]
                while missing:
                    worker = worker or self._start()
                    missing, worker = self._survey(cases, missing, worker)
        finally:
            if worker is not None:
                worker.close()

    def _is_missing(self, cases: Sequence[Case], contender: str) -> bool:
        wanted = any((case.name, contender) not in self.plan.refused for case in cases)
        return wanted and (cases[0].name, contender) not in self.known

    def _start(self) -> Worker:
        worker = self.spawn()
        try:
            worker.send(dict(self.plan.start))
            worker.receive(START_LIMIT_S)
        except (Died, Silence) as failure:
            worker.close()
            raise GroundspeedError(f"the measuring process did not start: {str(failure) or 'no answer'}") from None
        except BaseException:
            worker.close()
            raise
        return worker

    def _survey(self, cases: Sequence[Case], names: list[str], worker: Worker) -> tuple[list[str], Worker | None]:
        """Those that are still missing afterwards, and the worker unless it was lost."""
        seed = derive_seed(self.plan.seed, cases[0].name, "line-up")
        params = {key: value for key, value in cases[0].params.items() if key != "clock"}
        current: str | None = None
        left = [*names]
        try:
            clocks = [case.clock for case in cases]
            worker.send({"survey": {"params": params, "contenders": names, "seed": seed, "clocks": clocks}})
            while (message := worker.receive(PREPARE_FACTOR * self.plan.protocol.timeout_s))["kind"] != "surveyed":
                if message["kind"] == "fault all":
                    return [], worker
                current = message["contender"]
                if message["kind"] == "at":
                    self.tell(f"{cases[0].name}, {current}")
                    left.remove(current)
                elif message["kind"] == "launched":
                    seen = {key: message[key] for key in ("contender", "kernels", "binaries", "timings")}
                    self.journal.write("launched", case=cases[0].name, **seen)
                elif message["broken"] or message["status"] == "OOM":
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
        if name is None:  # it died of no contender: nobody can be surveyed on this shape
            return []
        for case in cases:
            self.refused[case.name, name] = why
        return left
