"""The runner: starts workers, feeds them, times them out, replaces and collects them. The only writer of the journal.

A run is P processes one after the other; a process is all cases in random order; a case is blocks until the stopping
rule, which is handed in. A contender that raises, hangs or takes its worker with it loses this case and nothing else: the
samples of the others stay, a new worker goes on with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from groundspeed.case import Case
from groundspeed.errors import GroundspeedError
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import Protocol, derive_seed, draw
from groundspeed.measure.channel import Died, Message, Silence, Worker

START_LIMIT_S = 300.0
PREPARE_FACTOR = 10
"""The first call may compile: it has this many times the limit of a sample."""

Times = Mapping[str, Mapping[int, float]]
StopRule = Callable[[int, Times, frozenset[str], float], str | None]
"""(blocks, contender → block → seconds, contenders still alive, measuring time of the process) → why to stop, or None."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a progress bar."""

    process: int
    processes: int
    done: float
    """Cases finished over all processes, with the share of the present one."""
    total: int
    text: str


@dataclass(frozen=True)
class Plan:
    """What to measure, and how a worker is started for it."""

    protocol: Protocol
    cases: Sequence[Case]
    contenders: Sequence[str]
    start: Mapping[str, Any]
    """The worker's first message: suite, loader, files, device, limits."""


@dataclass
class Past:
    """What an interrupted run has done already."""

    finished: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    lost: dict[tuple[str, str], str] = field(default_factory=dict)
    """(case, contender) that took a worker with it → how. It is not tried there again."""


class _Lost(Exception):
    """The worker is gone, and whose doing that was; None where it was nobody's in particular."""

    def __init__(self, contender: str | None, status: str, reason: str) -> None:
        super().__init__(reason)
        self.contender, self.status, self.reason = contender, status, reason


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
    ) -> None:
        self.plan, self.journal, self.stop, self.spawn, self.now, self.progress = plan, journal, stop, spawn, now, progress
        self.past = past or Past()
        self.worker: Worker | None = None

    def run(self) -> None:
        """Measure every process that is still missing. Whatever interrupts it, the journal holds all finished blocks."""
        try:
            for process in range(self.plan.protocol.processes):
                if process not in self.past.finished:
                    _Process(self, process, self.past.attempts.get(process, 0)).run()
        finally:
            self.close_worker()

    def close_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


class _Process:
    """One process of a run: a fresh worker, every case once."""

    def __init__(self, runner: Runner, process: int, attempt: int) -> None:
        self.runner, self.journal, self.plan = runner, runner.journal, runner.plan
        self.protocol = runner.plan.protocol
        self.key = {"process": process, "attempt": attempt}
        self.process, self.attempt, self.workers = process, attempt, 0
        self.began = 0.0

    def run(self) -> None:
        self.journal.write("process", **self.key, started=self.runner.now())
        self.start_worker()
        self.began = self.runner.now()
        order = draw(self.protocol.seed, [case.name for case in self.plan.cases], self.process, self.attempt, "cases")
        cases = {case.name: case for case in self.plan.cases}
        for number, name in enumerate(order):
            self.tell(number, name)
            _CaseRun(self, cases[name], number).run()
        self.runner.close_worker()
        date = datetime.now(UTC).isoformat(timespec="seconds")
        self.journal.write("process end", **self.key, finished=self.runner.now(), date=date)
        self.tell(len(order), "")

    def tell(self, number: float, text: str) -> None:
        cases = len(self.plan.cases)
        done = self.process * cases + number
        self.runner.progress(Progress(self.process, self.protocol.processes, done, self.protocol.processes * cases, text))

    def start_worker(self) -> None:
        self.runner.close_worker()
        self.runner.worker = worker = self.runner.spawn()
        try:
            worker.send(dict(self.plan.start))
            hello = worker.receive(START_LIMIT_S)
        except Died as death:
            raise GroundspeedError(f"the measuring process did not start: {death}") from None
        except Silence:
            raise GroundspeedError(f"the measuring process did not start within {START_LIMIT_S:.0f} s") from None
        self.journal.write("worker", **self.key, environment=hello["environment"])
        self.workers += 1


class _CaseRun:
    """One case in one process, over as many workers as it takes."""

    def __init__(self, process: _Process, case: Case, number: int) -> None:
        self.process, self.case, self.number = process, case, number
        self.protocol, self.journal = process.protocol, process.journal
        self.key = {**process.key, "case": case.name}
        self.ready: dict[str, Message] = {}
        self.fallen: set[str] = set()
        self.times: dict[str, dict[int, float]] = {}
        self.blocks = 0
        self.block: int | None = None
        """The block that is being measured."""

    @property
    def alive(self) -> list[str]:
        return [name for name in self.process.plan.contenders if name not in self.fallen]

    def run(self) -> None:
        for name in self.alive:
            if how := self.process.runner.past.lost.get((self.case.name, name)):
                self.fall(name, "SKIPPED", f"not tried again: {how}")
        while not self.attempt():
            self.process.start_worker()

    def attempt(self) -> bool:
        """Prepare and measure on the present worker until the case stops; False where the worker was lost on the way."""
        try:
            self.prepare()
            why = self.why() if self.blocks in self.protocol.looks else None
            while why is None:
                why = self.look()
        except _Lost as lost:
            for name in self.alive if lost.contender is None else [lost.contender]:
                self.fall(name, lost.status, lost.reason, self.block, lost_worker=True)
                self.process.runner.past.lost[self.case.name, name] = f"{lost.reason} in process {self.process.process}"
            return False
        finally:
            self.block = None
        self.journal.write("stop", **self.key, blocks=self.blocks, why=why, elapsed_s=self.elapsed())
        for name in self.alive:
            self.outcome(name, "PASSED", None, None)
        return True

    def elapsed(self) -> float:
        return self.process.runner.now() - self.process.began

    def prepare(self) -> None:
        order = draw(self.protocol.seed, self.alive, *self.key.values(), "prepare", self.process.workers)
        if not order:
            return
        seeds = [derive_seed(self.protocol.seed, *self.key.values(), self.process.workers, "inputs", i) for i in range(self.protocol.input_sets)]
        request = {"params": dict(self.case.params), "contenders": order, "seeds": seeds}
        self.send({"prepare": request})
        current: str | None = None
        limit = PREPARE_FACTOR * self.protocol.timeout_s
        while (message := self.receive(current, limit))["kind"] != "prepared":
            if message["kind"] == "at":
                current, limit = message["contender"], PREPARE_FACTOR * self.protocol.timeout_s
            elif message["kind"] == "called":
                limit = self.protocol.timeout_s
            elif message["kind"] == "ready":
                self.enter(message)
            elif message["kind"] == "fault":
                self.fault(message)
            elif message["kind"] == "fault all":
                for name in self.alive:
                    self.fall(name, message["status"], message["reason"])
                return

    def enter(self, message: Message) -> None:
        name = message["contender"]
        earlier = self.ready.get(name)
        self.ready[name] = message
        if earlier:
            self.worsen(name, earlier["errors"])
        self.times.setdefault(name, {})
        samples = [[name, 0, *sample, 0] for sample in message["samples"]]
        self.write_samples("warmup", 0, samples)

    def look(self) -> str | None:
        """Measure up to the next look; then why to stop, or None."""
        if not self.alive:
            return self.why()
        target = next(look for look in self.protocol.looks if look > self.blocks)
        orders = [(block, self.order(block)) for block in range(self.blocks, target)]
        self.send({"blocks": orders})
        for block, order in orders:
            self.block, self.blocks = block, block + 1  # counted even if it breaks off: it is not measured twice
            self.collect(block, order)
            self.process.tell(self.number + self.blocks / self.protocol.looks[-1], self.case.name)
            if not self.alive:
                break
        return self.why()

    def why(self) -> str | None:
        if not self.alive:
            return "no pair left"
        return self.process.runner.stop(self.blocks, self.times, frozenset(self.alive), self.elapsed())

    def full_order(self, block: int) -> list[str]:
        """The drawn order of all contenders; those that fell out are passed over, the others keep their positions."""
        return draw(self.protocol.seed, self.process.plan.contenders, self.key["process"], self.key["attempt"], self.case.name, block)

    def order(self, block: int) -> list[str]:
        return [name for name in self.full_order(block) if name not in self.fallen]

    def collect(self, block: int, order: Sequence[str]) -> None:
        """Take in one block and put it on disk; also what a broken block has left."""
        positions = {name: i for i, name in enumerate(self.full_order(block))}
        waiting = [name for name in order if name not in self.fallen]
        samples: list[list[Any]] = []
        checking: str | None = None
        faults: list[Message] = []
        try:
            while True:
                slow = PREPARE_FACTOR if checking else 1  # the oracle's time is not the contender's
                current = checking or (waiting[0] if waiting else None)
                message = self.receive(current, slow * self.protocol.timeout_s)
                checking = None
                if message["kind"] == "block end":
                    break
                name = message["contender"]
                if name in waiting:
                    waiting.remove(name)
                if message["kind"] == "sample":
                    seconds, launches = message["seconds"], message["launches"]
                    samples.append([name, positions[name], message["start"], seconds, launches, int(message["check"])])
                    self.times[name][block] = seconds / launches
                    checking = name if message["check"] else None
                elif message["kind"] == "checked":
                    self.worsen(name, message["errors"])
                elif message["kind"] == "fault":
                    faults.append(message)
        finally:
            self.write_samples("block", block, samples)
            for message in faults:
                self.fault(message)

    def worsen(self, name: str, errors: Mapping[str, float]) -> None:
        known = self.ready[name]["errors"]
        self.ready[name]["errors"] = {key: max(known.get(key, 0.0), errors.get(key, 0.0)) for key in {*known, *errors}}

    def write_samples(self, kind: str, block: int, samples: list[list[Any]]) -> None:
        if samples:
            self.journal.write(kind, **self.key, worker=self.process.workers - 1, block=block, samples=samples)

    def fault(self, message: Message) -> None:
        name = message["contender"]
        if name in self.ready:
            self.worsen(name, message["errors"])
        else:
            self.ready[name] = {"errors": message["errors"]}
        self.fall(name, message["status"], message["reason"], message.get("block"))

    def fall(self, name: str, status: str, reason: str, block: int | None = None, *, lost_worker: bool = False) -> None:
        self.fallen.add(name)
        self.outcome(name, status, reason, block, lost_worker=lost_worker)

    def outcome(self, name: str, status: str, reason: str | None, block: int | None, *, lost_worker: bool = False) -> None:
        ready = self.ready.get(name, {})
        errors = {k: v for k, v in ready.get("errors", {}).items() if math.isfinite(v)}
        self.journal.write(
            "outcome",
            **self.key,
            contender=name,
            status=status,
            reason=reason,
            block=block,
            lost_worker=lost_worker,
            **{key: errors.get(key) for key in ("max_abs", "mean_abs", "max_rel", "rms_rel")},
            **{key: ready.get(key) for key in ("host_peak_bytes", "host_extra_bytes", "prepare_s", "warmup_stable")},
        )

    def send(self, message: Message) -> None:
        assert self.process.runner.worker is not None
        try:
            self.process.runner.worker.send(message)
        except Died as death:
            raise _Lost(None, "OOM" if death.out_of_memory else "ERROR", str(death)) from None

    def receive(self, current: str | None, limit_s: float) -> Message:
        assert self.process.runner.worker is not None
        try:
            return self.process.runner.worker.receive(limit_s)
        except Silence:
            raise _Lost(current, "TIMEOUT", f"no answer within {limit_s:g} s") from None
        except Died as death:
            raise _Lost(current, "OOM" if death.out_of_memory else "ERROR", str(death)) from None
