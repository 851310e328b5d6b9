"""One case in one process: prepare, take blocks until the stopping rule, on as many workers as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from typing import Protocol as Interface

from groundspeed.case import Case
from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import Protocol, derive_seed, draw
from groundspeed.measure.channel import Died, Message, Silence, Worker

PREPARE_FACTOR = 10
"""The first call may compile: it has this many times the limit of a sample."""

Times = Mapping[str, Mapping[int, float]]
StopRule = Callable[[int, Times, frozenset[str], float], str | None]
"""(blocks, contender → block → seconds, contenders still alive, measuring time so far) → why to stop, or None."""


class Host(Interface):
    """What a case needs of the process it runs in."""

    journal: Journal
    protocol: Protocol
    contenders: Sequence[str]
    key: dict[str, int]
    lost: dict[tuple[str, str], str]
    skips: Mapping[tuple[str, str], str]
    seed: int
    workers: int
    stop: StopRule

    @property
    def worker(self) -> Worker: ...
    def start_worker(self) -> None: ...
    def elapsed(self) -> float: ...
    def tell(self, number: float, text: str) -> None: ...


class Lost(Exception):
    """The worker is gone, and whose doing that was; None where it was nobody's in particular."""

    def __init__(self, contender: str | None, status: str, reason: str) -> None:
        super().__init__(reason)
        self.contender, self.status, self.reason = contender, status, reason


class CaseRun:
    """One case in one process, over as many workers as it takes."""

    def __init__(self, host: Host, case: Case, number: int) -> None:
        self.host, self.case, self.number = host, case, number
        self.protocol, self.journal = host.protocol, host.journal
        self.key = {**host.key, "case": case.name}
        self.ready: dict[str, Message] = {}
        self.fallen: set[str] = set()
        self.times: dict[str, dict[int, float]] = {}
        self.checked: set[str] = set()
        self.blocks = 0
        """Blocks begun; one that broke off is among them, for it is not measured twice."""
        self.forgiven = False
        """Whether a worker was lost already without anybody to blame."""

    @property
    def alive(self) -> list[str]:
        return [name for name in self.host.contenders if name not in self.fallen]

    def run(self) -> None:
        for name in self.alive:
            if how := self.host.lost.get((self.case.name, name)):
                self.fall(name, "SKIPPED", f"not tried again: {how}")
            elif why := self.host.skips.get((self.case.name, name)):
                self.fall(name, "SKIPPED", why)
        while not self.attempt():
            self.host.start_worker()

    def attempt(self) -> bool:
        """Prepare and measure on the present worker until the case stops; False where the worker was lost."""
        try:
            why = self.due()
            if why is None:
                self.prepare()
                why = self.due()  # without those that fell just now
            while why is None:
                why = self.look()
        except Lost as lost:
            self.mourn(lost)
            return False
        self.journal.write("stop", **self.key, blocks=self.blocks, why=why, elapsed_s=self.host.elapsed())
        for name in self.alive:
            if name in self.checked:
                self.outcome(name, "PASSED", None, None)
            else:  # lost workers took every call that was to be checked; it was alive at the last look all the same
                self.outcome(name, "ERROR", "no timed call could be checked before the case stopped", self.blocks)
        return True

    def mourn(self, lost: Lost) -> None:
        """Put the loss of the worker down to its contender. Where it is nobody's, the case gets a second worker (what
        went before it may have killed the first); a second time it is everybody's."""
        if lost.contender is None and lost.status != "TIMEOUT" and not self.forgiven:
            self.forgiven = True
            return
        for name in self.alive if lost.contender is None else [lost.contender]:
            self.fall(name, lost.status, lost.reason, lost_worker=True)
            self.host.lost[self.case.name, name] = f"{lost.reason} in process {self.host.key['process']}"

    def prepare(self) -> None:
        order = draw(self.host.seed, self.alive, *self.key.values(), "prepare", self.host.workers)
        if not order:
            return
        seeds = [
            derive_seed(self.host.seed, *self.key.values(), self.host.workers, "inputs", i)
            for i in range(self.protocol.input_sets)
        ]
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
                self.refuse_hungry(message)
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
            self.blocks = block + 1
            self.collect(block, order)
            self.host.tell(self.number + self.blocks / self.protocol.looks[-1], self.case.name)
            if not self.alive:
                break
        return self.why()

    def due(self) -> str | None:
        """Why to stop, where a look is due already because the worker was lost right before it."""
        return self.why() if self.blocks in self.protocol.looks else None

    def why(self) -> str | None:
        if not self.alive:
            return "no pair left"
        return self.host.stop(self.blocks, self.times, frozenset(self.alive), self.host.elapsed())

    def full_order(self, block: int) -> list[str]:
        """The drawn order of all contenders; those that fell out are passed over, the others keep their positions."""
        return draw(
            self.host.seed,
            self.host.contenders,
            self.key["process"],
            self.key["attempt"],
            self.case.name,
            block,
        )

    def order(self, block: int) -> list[str]:
        return [name for name in self.full_order(block) if name not in self.fallen]

    def collect(self, block: int, order: Sequence[str]) -> None:
        """Take in one block and put it on disk; also what a broken block has left."""
        positions = {name: i for i, name in enumerate(self.full_order(block))}
        waiting = [name for name in order if name not in self.fallen]
        samples: list[list[Any]] = []
        busy: str | None = None  # whose sample is in, and whose output the worker still looks at
        name = order[-1]
        faults: list[Message] = []
        try:
            while True:
                slow = PREPARE_FACTOR if busy else 1  # the oracle's time is not the contender's
                current = busy or (waiting[0] if waiting else name)
                message = self.receive(current, slow * self.protocol.timeout_s)
                if message["kind"] == "block end":
                    break
                name = message["contender"]
                if name in waiting:
                    waiting.remove(name)
                if message["kind"] == "sample":
                    seconds, launches = message["seconds"], message["launches"]
                    samples.append([name, positions[name], message["start"], seconds, launches, int(message["check"])])
                    self.times[name][block] = seconds / launches
                    busy = name
                elif message["kind"] == "checked":
                    self.checked.add(name)
                    self.worsen(name, message["errors"])
                elif message["kind"] == "done":
                    busy = None
                elif message["kind"] == "fault":
                    busy = None
                    self.refuse_hungry(message)
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
            self.journal.write(kind, **self.key, worker=self.host.workers - 1, block=block, samples=samples)

    @staticmethod
    def refuse_hungry(message: Message) -> None:
        """Memory that one contender hoards would be missing for the others: they go on with a new worker."""
        if message["status"] == "OOM":
            raise Lost(message["contender"], "OOM", message["reason"])

    def fault(self, message: Message) -> None:
        name = message["contender"]
        if name in self.ready:
            self.worsen(name, message["errors"])
        else:
            self.ready[name] = {"errors": message["errors"]}
        self.fall(name, message["status"], message["reason"])

    def fall(self, name: str, status: str, reason: str, *, lost_worker: bool = False) -> None:
        """Out of this case, from the present block on; at looks before it, it was there."""
        self.fallen.add(name)
        block = self.blocks - 1 if self.blocks else None
        self.outcome(name, status, reason, block, lost_worker=lost_worker)

    def outcome(
        self, name: str, status: str, reason: str | None, block: int | None, *, lost_worker: bool = False
    ) -> None:
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
        assert self.host.worker is not None
        try:
            self.host.worker.send(message)
        except Died as death:
            raise Lost(None, "OOM" if death.out_of_memory else "ERROR", str(death)) from None

    def receive(self, current: str | None, limit_s: float) -> Message:
        assert self.host.worker is not None
        try:
            return self.host.worker.receive(limit_s)
        except Silence:
            raise Lost(current, "TIMEOUT", f"no answer within {limit_s:g} s") from None
        except Died as death:
            raise Lost(current, "OOM" if death.out_of_memory else "ERROR", str(death)) from None
