"""A run without time or torch: scripted workers and a clock that only they move, behind the real runner and journal."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groundspeed.evidence import journal
from groundspeed.evidence.protocol import NAME, Protocol
from groundspeed.evidence.record import Record
from groundspeed.evidence.upgrade import NEW_IN_3
from groundspeed.lab.declare import case_facts
from groundspeed.lab.session import extend, past_of, stop_rule
from groundspeed.measure.channel import Died, Message, Silence
from groundspeed.measure.runner import Device, Plan, Progress, Runner
from groundspeed.suites.registry import suite_module

ERRORS = {"max_abs": 1e-7, "mean_abs": 1e-8, "max_rel": 1e-7, "rms_rel": 1e-7}
ENVIRONMENT = {"cpu": {"name": "Test CPU", "cores": 2}, "gpu": None}


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeGpu:
    """A GPU that keeps to itself how it is."""

    identity = "0123456789abcdef"

    def other_users(self) -> list[str]:
        return []

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        return None


Seconds = Callable[[str, str, int], float]
"""(contender, case, block) → seconds of a sample."""
Fault = Callable[[str, str, int | None], Message | Exception | None]
"""(contender, case, block or None while preparing) → a fault message to report, Died or Silence to raise, or None."""


class FakeWorker:
    """Speaks the protocol of `measure.worker`, with times and faults from functions."""

    def __init__(self, clock: FakeClock, seconds: Seconds, fault: Fault) -> None:
        self.clock, self.seconds, self.fault = clock, seconds, fault
        self.outbox: deque[Message | Exception] = deque()
        self.case = ""
        self.entered: set[str] = set()
        self.closed = self.started = self.ended = False
        self.time = 0.0
        """Of this worker, for the starts of its samples."""

    def send(self, message: Message) -> None:
        if "early" in message:
            self.outbox.append({"kind": "early"})
        if "loader" in message:
            self.started = True
            self.outbox.append({"kind": "hello", "environment": {"torch": "0"}})
        if "prepare" in message:
            self.prepare(message["prepare"])
        if "round" in message:
            self.outbox.append({"kind": "rounded"})
        for block, order in message.get("blocks", ()):
            self.block(block, order)

    def receive(self, timeout_s: float) -> Message:
        message = self.outbox.popleft()
        if isinstance(message, Silence):
            self.clock.now += timeout_s
        if isinstance(message, Exception):
            raise message
        self.clock.now += message.pop("takes", 0.0)
        return message

    def close(self) -> None:
        self.closed = True

    def spend(self, seconds: float) -> float:
        """When something begins that takes so long."""
        begin, self.time = self.time, self.time + seconds
        return begin

    def prepare(self, request: Mapping[str, Any]) -> None:
        params = request["params"]
        self.case, self.entered = f"b{params['B']}-s{params['S']}", set()
        for name in request["contenders"]:
            self.outbox.append({"kind": "at", "contender": name})
            fault = self.fault(name, self.case, None)
            if isinstance(fault, Exception):
                self.outbox.append(fault)
                return
            if fault:
                self.outbox.append({"kind": "fault", "contender": name, "errors": {}, **fault})
                continue
            self.entered.add(name)
            self.outbox.append(
                {
                    "kind": "ready",
                    "contender": name,
                    "errors": dict(ERRORS),
                    "prepare_s": 0.1,
                    "host_peak_bytes": 1 << 20,
                    "host_extra_bytes": 1 << 10,
                    "warmup_stable": True,
                    "samples": self.warm_up(name),
                }
            )
        self.outbox.append({"kind": "prepared"})

    def warm_up(self, name: str) -> list[list[float]]:
        return [[self.spend(1e-3), 1e-3, 1], [self.spend(1e-3), 1e-3, 1]]

    def block(self, block: int, order: Sequence[str]) -> None:
        for name in order:
            if name not in self.entered or any(isinstance(m, Exception) for m in self.outbox):
                continue
            fault = self.fault(name, self.case, block)
            if isinstance(fault, Exception):
                self.outbox.append(fault)
                continue
            seconds = self.seconds(name, self.case, block)
            self.outbox.append(
                {
                    "kind": "sample",
                    "contender": name,
                    "block": block,
                    "start": self.spend(seconds),
                    "seconds": seconds,
                    "launches": 1,
                    "check": True,
                    "takes": seconds,
                }
            )
            if fault:
                self.entered.discard(name)
                self.outbox.append({"kind": "fault", "contender": name, "block": block, "errors": {}, **fault})
            else:
                self.outbox.append({"kind": "checked", "contender": name, "block": block, "errors": dict(ERRORS)})
                self.outbox.append({"kind": "done", "contender": name})
        self.outbox.append({"kind": "block end", "block": block})


class SurveyWorker(FakeWorker):
    """One that is asked for kernels too: those of `kernels`, unless `fault` has something else for a contender.

    What one contender breaks, or eats up, stays so for those after it, as in a real process."""

    def __init__(self, clock: FakeClock, seconds: Seconds, fault: Fault) -> None:
        super().__init__(clock, seconds, fault)
        self.surveys: list[Message] = []
        """What it was asked."""

    def send(self, message: Message) -> None:
        super().send(message)
        if "ahead" in message:
            self.outbox.append({"kind": "compiled"})
        if "survey" in message:
            self.surveys.append(message["survey"])
            self.survey(message["survey"])

    def kernels(self, name: str, params: Mapping[str, Any]) -> list[str]:
        return [f"{name}_kernel"]

    def survey(self, request: Message) -> None:
        self.case, spoilt = f"b{request['params']['B']}-s{request['params']['S']}", None
        for name in request["contenders"]:
            self.outbox.append({"kind": "at", "contender": name})
            fault = spoilt or self.fault(name, self.case, None)
            if isinstance(fault, Exception):
                self.outbox.append(fault)
                return
            if fault:
                spoilt = fault if fault.get("broken") or fault["status"] == "OOM" else None
                self.outbox.append({"kind": "fault", "contender": name, "errors": {}, "broken": False, **fault})
                continue
            kernels = self.kernels(name, request["params"])
            self.outbox.append(
                {
                    "kind": "launched",
                    "contender": name,
                    "kernels": kernels,
                    "binaries": [],
                    "timings": [],
                    "moves": ["Memset (Device)"],
                    "times": [1] * (len(kernels) + 1),
                    "seconds": [1e-5] * (len(kernels) + 1),
                }
            )
        self.outbox.append({"kind": "surveyed"})


def noisy(means: Mapping[str, float], noise: float = 0.01, seed: int = 1) -> Seconds:
    """Times around a mean for each contender, with log-normal noise that is the same in every test run."""
    generator = random.Random(seed)
    return lambda contender, case, block: means[contender] * generator.lognormvariate(0.0, noise)


def no_fault(contender: str, case: str, block: int | None) -> None:
    return None


def protocol(**changes: Any) -> Protocol:
    values: dict[str, Any] = {
        "name": NAME,
        "preset": "quick",
        "processes": 4,
        "looks": (10, 20, 40),
        "half_width": 0.025,
        "seed": 7,
        "threads": 1,
        "timeout_s": 30.0,
        "budget_s": None,
        "warmup_s": 0.05,
        "input_sets": 3,
        "sequential": 0,
        "extension": None,
        "isolated": False,
    }
    if {"looks", "half_width"} & set(changes):
        values["preset"] = "scripted"
    return Protocol(**{**values, **changes})


def seed_of(record: Record) -> int:
    """What the orders of a run are drawn from."""
    return record.draw_seed


CONTENDER = {"version": "1", "tuning": "", "source_sha256": None, "status": None, "reason": None}


def header(
    contenders: Sequence[str],
    shapes: Sequence[str] = ("B=1,S=64,causal=0", "B=2,S=64,causal=0"),
    judged: Sequence[str] | None = None,
    baseline: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """The declaration of a run of attention over `shapes`; the first contender is the baseline."""
    cases = [case for shape in shapes for case in suite_module("attention").shape_cases(shape, ("fp32",))]
    baseline = baseline or contenders[0]
    return {
        "run": {
            "suite": "attention",
            "version": "0",
            "commit": None,
            "started": "2026-01-01T00:00:00+00:00",
            "device": "cpu",
            "baseline": baseline,
            "baseline_origin": "declared" if baseline == suite_module("attention").BASELINE["cpu"] else "asked",
            "judged": list(judged or [c for c in contenders if c != baseline]),
            "with_files": [],
            "reproduces": None,
        },
        "protocol": asdict(protocol(**changes)),
        "environment": dict(ENVIRONMENT),
        "cases": [case_facts(case) for case in cases],
        "contenders": [{**CONTENDER, "name": n, "description": n} for n in contenders],
        "calibration": None,
        "uncalibrated": NEW_IN_3["uncalibrated"],
    }


def begin(folder: Path, facts: dict[str, Any]) -> journal.Journal:
    folder.mkdir(parents=True, exist_ok=True)
    log = journal.Journal(folder)
    log.write("run", facts=facts)
    return log


START = {"loader": "none", "with_files": ["ours.py"], "sources": {}}


def continue_run(
    folder: Path,
    seconds: Seconds,
    fault: Fault = no_fault,
    workers: list[FakeWorker] | None = None,
    *,
    worker_type: Callable[[FakeClock, Seconds, Fault], FakeWorker] = FakeWorker,
    progress: Callable[[Progress], None] = lambda progress: None,
    device: Device | None = None,
    start: Mapping[str, Any] | None = None,
) -> Record:
    """Run, or go on with, what the journal in `folder` declares; the record it ends in."""
    record = journal.to_record(journal.read_events(folder), "journal")
    if record.run.device == "cuda" and device is None:
        device = FakeGpu()
    clock = FakeClock()
    module = suite_module(record.run.suite)
    cases = [module.case_of_params(dict(c.params)) for c in record.cases]
    names = [c.name for c in record.measured]
    plan = Plan(record.protocol, cases, names, record.draw_seed, start or START)

    def spawn() -> FakeWorker:
        worker = worker_type(clock, seconds, fault)
        if workers is not None:
            workers.append(worker)
        return worker

    log = journal.Journal(folder)
    try:
        runner = Runner(plan, log, stop_rule(record), spawn, clock, progress, past_of(record), device)
        runner.run()
        extend(folder, log, runner)
    finally:
        log.close()
    return journal.to_record(journal.read_events(folder), "journal")


def fake_run(
    folder: Path, seconds: Seconds, contenders: Sequence[str], fault: Fault = no_fault, **header_changes: Any
) -> Record:
    begin(folder, header(contenders, **header_changes)).close()
    return continue_run(folder, seconds, fault)


__all__ = [
    "Died",
    "FakeClock",
    "FakeWorker",
    "Silence",
    "SurveyWorker",
    "begin",
    "continue_run",
    "fake_run",
    "header",
    "no_fault",
    "noisy",
    "protocol",
    "seed_of",
]
