"""The runner starts workers, sends them requests, times them out, replaces them and collects their results. It is the
only writer of the journal.

A run is P processes, one after the other; a process is all cases in random order; a case is blocks until the stopping
rule, which is a parameter, ends it. A contender that raises, hangs or takes its worker with it loses this case and
nothing else: the samples of the others stay, and a new worker continues with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from typing import Protocol as Interface

from groundspeed.case import Case
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import Protocol, draw
from groundspeed.measure.budget import Budget
from groundspeed.measure.caserun import CaseRun
from groundspeed.measure.channel import Message, Worker
from groundspeed.measure.greeting import greeted
from groundspeed.measure.host import StopRule
from groundspeed.measure.usage import UsageLedger


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a progress bar."""

    process: int
    processes: int
    done: float
    """The number of cases finished in all processes, with a fraction for the current one, weighted by their work."""
    total: int
    text: str
    stage: str = ""
    """What is being done before the first process, while nothing is timed yet."""
    plan: Plan | None = None
    """What will be measured; set only in the first report."""


@dataclass(frozen=True)
class Plan:
    """What to measure, and how a worker is started for it."""

    protocol: Protocol
    cases: Sequence[Case]
    contenders: Sequence[str]
    seed: int
    """The seed of all draws."""
    start: Mapping[str, Any]
    """The worker's first message: suite, loader, files, device, limits."""
    refused: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(case, contender) that is not measured → status and reason: left out by the preset, or not what its name says."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Contender that comes from a file → that file."""


@dataclass
class Past:
    """What an interrupted run has already done."""

    finished: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    lost: dict[tuple[str, str], str] = field(default_factory=dict)
    """(case, contender) that took a worker with it → how. It is not tried there again."""
    usage: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Case → the number of tokens of each of its experts."""


class Device(Interface):
    """A GPU as the runner sees it while workers use it."""

    @property
    def identity(self) -> str: ...
    def other_users(self) -> list[str]: ...
    def readings(self, start: float, seconds: float) -> list[float | None] | None: ...


class Runner:
    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        stop: StopRule,
        spawn: Callable[[], Worker],
        now: Callable[[], float],
        progress: Callable[[Progress], None] = lambda progress: None,
        past: Past | None = None,
        device: Device | None = None,
    ) -> None:
        self.plan, self.journal, self.stop, self.spawn, self.now = plan, journal, stop, spawn, now
        self.progress, self.past, self.device = progress, past or Past(), device
        self.worker: Worker | None = None
        self.usage = UsageLedger(journal, self.past.usage)
        self.slow: set[str] = set()
        """Contenders that hung, or did not fit the time budget, on some case."""
        protocol = plan.protocol
        self.budget = Budget(
            protocol.process_budget_s,
            len(plan.cases) * len(plan.contenders),
            f"the {protocol.budget_s or 0:g} s of preset {protocol.preset}",
        )
        self.seed = plan.seed
        self.start: Message = dict(plan.start)
        """The first message to workers: as planned, without the files that must not be imported again."""

    def run(self, processes: int | None = None) -> None:
        """Measure every missing process, of those that the protocol declares or of `processes`. Whatever interrupts it,
        the journal holds all finished blocks."""
        total = processes or self.plan.protocol.processes
        self._tell_plan(total)
        try:
            for process in range(total):
                if process not in self.past.finished:
                    _Process(self, process, self.past.attempts.get(process, 0), total).run()
                    self.past.finished.add(process)
        finally:
            self.close_worker()

    def _tell_plan(self, processes: int) -> None:
        cases, finished = len(self.plan.cases), len(self.past.finished)
        self.progress(Progress(finished, processes, finished * cases, processes * cases, "starting", plan=self.plan))

    def close_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


LEAST_WORK = {"cpu": 5e8, "cuda": 1e12}
"""FLOPs that take about as long, block by block, as everything about a case that does not depend on its size."""


def _ahead(cases: Sequence[Case], device: str) -> list[float]:
    """Return the share of a process's time that is over before each of its cases, and 1 after the last. By FLOPs: a
    long case may take a hundred times as long as a short one."""
    work = [LEAST_WORK.get(device, 1.0) + case.work.flops for case in cases]
    return [*(sum(work[:i]) / sum(work) for i in range(len(work))), 1.0]


class _Process:
    """One process of a run: a fresh worker, every case once."""

    def __init__(self, runner: Runner, process: int, attempt: int, processes: int) -> None:
        self.runner, self.journal, self.plan, self.processes = runner, runner.journal, runner.plan, processes
        self.protocol, self.contenders = runner.plan.protocol, runner.plan.contenders
        self.refused, self.budget, self.files = runner.plan.refused, runner.budget, runner.plan.files
        self.stop, self.lost, self.slow, self.seed = runner.stop, runner.past.lost, runner.slow, runner.seed
        self.key = {"process": process, "attempt": attempt}
        self.usage, self.workers = runner.usage, 0
        self.began = 0.0
        self.worker_began = 0.0
        self.gate_s: float | None = None
        """The sum of the gate times that the workers reported; None until one did."""

    def run(self) -> None:
        device = self.runner.device
        users, gpu = (device.other_users(), device.identity) if device else ([], None)
        self.journal.write("process", **self.key, started=self.runner.now(), gpu=gpu, gpu_users=users)
        self.start_worker()
        self.began = self.runner.now()
        cases = {case.name: case for case in self.plan.cases}
        order = draw(self.seed, cases, *self.key.values(), "cases")
        self.ahead = _ahead([cases[name] for name in order], str(self.plan.start.get("device")))
        for number, name in enumerate(order):
            self.tell(number, name)
            CaseRun(self, cases[name], number).run()
        self.runner.close_worker()
        date = datetime.now(UTC).isoformat(timespec="seconds")
        gate_s = None if self.gate_s is None else round(self.gate_s, 6)
        self.journal.write("process end", **self.key, finished=self.runner.now(), date=date, gate_s=gate_s)
        self.tell(len(order), "")

    @property
    def worker(self) -> Worker:
        assert self.runner.worker is not None
        return self.runner.worker

    def elapsed(self) -> float:
        """Return the measuring time so far, not counting the start of the first worker."""
        return self.runner.now() - self.began

    def count_gate(self, told: object) -> bool:
        """Add a reported gate time. Return False if no gate can have taken it: a contender may forge the worker's
        messages."""
        if told is None:
            return True
        so_far = self.gate_s or 0.0
        if type(told) is not float or not 0.0 <= told <= self.elapsed() - so_far:
            return False
        self.gate_s = so_far + told
        return True

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        """Return the device's readings while a sample was taken; `start` counts from the beginning of the worker."""
        device = self.runner.device
        return device.readings(self.worker_began + start, seconds) if device else None

    def tell(self, number: float, text: str) -> None:
        """`number`: the cases that are done in this process, with a fraction for the current one."""
        process, cases = self.key["process"], len(self.plan.cases)
        case, part = divmod(number, 1)
        before, after = self.ahead[int(case)], self.ahead[min(int(case) + 1, cases)]
        done = cases * (before + part * (after - before))
        self.runner.progress(Progress(process, self.processes, process * cases + done, self.processes * cases, text))

    def start_worker(self) -> None:
        self.runner.close_worker()
        self.runner.worker, hello, self.runner.start = greeted(self.runner.spawn, self.runner.start)
        self.worker_began = hello.get("began", 0.0)
        self.journal.write("worker", **self.key, environment=hello["environment"])
        self.workers += 1
