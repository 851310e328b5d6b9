"""One case in one process, on as many workers as it takes: prepare, then blocks until the stopping rule ends them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from groundspeed.case import Case
from groundspeed.evidence.protocol import draw, inputs_seed
from groundspeed.measure import gate
from groundspeed.measure.channel import Died, Message, Silence
from groundspeed.measure.host import Host
from groundspeed.measure.ledger import Ledger

PREPARE_FACTOR = 10
"""Multiple of a sample's time limit that a first call may take, since it may compile."""

FORGED = "it wrote something that is not a message to the pipe that the laboratory reads"


class Lost(Exception):
    """The worker is lost. `contender` is the one to blame, or None if no particular one is."""

    def __init__(self, contender: str | None, status: str, reason: str) -> None:
        super().__init__(reason)
        self.contender, self.status, self.reason = contender, status, reason


class CaseRun:
    """One case in one process, on as many workers as it takes."""

    def __init__(self, host: Host, case: Case, number: int) -> None:
        self.host, self.case, self.number = host, case, number
        self.protocol = host.protocol
        self.key = {**host.key, "case": case.name}
        self.ledger = Ledger(host.journal, self.key)
        self.fallen: set[str] = set()
        self.speakers = {None, *host.contenders}
        self.times: dict[str, dict[int, float]] = {}
        self.checked: set[str] = set()
        self.blocks = 0
        """The number of blocks begun. A block that broke off counts, because it is not measured again."""
        self.stopped: tuple[str, float] | None = None
        """Why the blocks ended and the measuring time until then; None while they continue."""
        self.admitted_s: dict[str, float] = {}
        """The time that the blocks up to the first look take each prepared contender."""
        self.forgiven = False
        """Whether a worker was already lost with no contender to blame."""

    @property
    def alive(self) -> list[str]:
        return [name for name in self.host.contenders if name not in self.fallen]

    def run(self) -> None:
        for name in self.alive:
            if how := self.host.lost.get((self.case.name, name)):
                self.fall(name, "SKIPPED", f"not tried again: {how}")
            elif why := self.host.refused.get((self.case.name, name)):
                self.fall(name, *why)
            elif name in self.host.slow and self.host.elapsed() > (self.protocol.process_budget_s or math.inf):
                why_not = "it was too slow on another case, and the preset's time budget for this process is spent"
                self.fall(name, "SKIPPED", why_not)
                self.host.lost[self.case.name, name] = why_not
        while not self.attempt():
            self.host.start_worker()

    def attempt(self) -> bool:
        """Prepare and measure on the current worker until the case stops. Return False if the worker was lost."""
        try:
            if self.stopped is None:
                self.take_blocks()
                self.take_sequence()
        except Lost as lost:
            self.mourn(lost)
            return False
        assert self.stopped is not None
        self.ledger.stop(self.blocks, *self.stopped)
        for name in self.alive:
            if name in self.checked:
                self.ledger.outcome(name, "PASSED", None, None, lost_worker=False)
            else:  # its checked calls were lost with their workers, though it was alive at the last look
                reason = "no timed call could be checked before the case stopped"
                self.ledger.outcome(name, "ERROR", reason, self.blocks, lost_worker=False)
        return True

    def take_blocks(self) -> None:
        why = self.due()
        if why is None:
            self.prepare()
            why = self.due()  # without the contenders that just failed
        while why is None:
            why = self.look()
        self.stopped = why, self.host.elapsed()

    def take_sequence(self) -> None:
        """If the protocol asks for it, take the samples of each contender in a row. If the worker is lost here, the
        rest is not taken: it is for comparison only, and no verdict rests on it."""
        order = draw(self.host.seed, self.host.contenders, *self.key.values(), "sequence")
        rounds = [(i, [name]) for name in order if name not in self.fallen for i in range(self.protocol.sequential)]
        if not rounds:
            return
        self.send({"blocks": rounds})
        for i, (name,) in rounds:
            self.collect("sequence", i, [name], order)

    def tell(self, text: str) -> None:
        self.host.tell(self.number + self.blocks / self.protocol.looks[-1], text)

    def mourn(self, lost: Lost) -> None:
        """Blame the lost worker on its contender. If none is to blame, the case gets a second worker (earlier work may
        have killed the first); a second such loss, or a timeout, is blamed on all contenders."""
        if lost.contender is None and lost.status != "TIMEOUT" and not self.forgiven:
            self.forgiven = True
            return
        for name in self.alive if lost.contender is None else [lost.contender]:
            self.fall(name, lost.status, lost.reason, lost_worker=True)
            self.host.slow |= {name} if lost.status == "TIMEOUT" else set()
            self.host.lost[self.case.name, name] = f"{lost.reason} in process {self.host.key['process'] + 1}"

    def prepare(self) -> None:
        order = draw(self.host.seed, self.alive, *self.key.values(), "prepare", self.host.workers)
        if not order:
            return
        process, attempt = self.host.key["process"], self.host.key["attempt"]
        seeds = [
            inputs_seed(self.host.seed, process, attempt, self.case.name, self.host.workers, i)
            for i in range(self.protocol.input_sets)
        ]
        request = {"params": dict(self.case.params), "contenders": order, "seeds": seeds, "later": process > 0}
        self.send({"prepare": request})
        current: str | None = None
        limit = PREPARE_FACTOR * self.protocol.timeout_s
        while (message := self.receive(current, limit))["kind"] != "prepared":
            if message["kind"] != "at" and message.get("contender", current) not in (current, *self.host.files):
                raise Lost(current, "ERROR", FORGED)
            if message["kind"] == "at":
                self.tell(f"{self.case.name}, {message['contender']}")
                current, limit = message["contender"], PREPARE_FACTOR * self.protocol.timeout_s
            elif message["kind"] == "called":
                limit = self.protocol.timeout_s
            elif message["kind"] == "usage" and not self.host.usage.take(self.case, message.get("of")):
                raise Lost(current, "ERROR", FORGED)
            elif message["kind"] == "ready":
                self.believe(message)
                self.enter(message)
            elif message["kind"] == "fault":
                self.refuse_hungry(message)
                self.fault(message)
            elif message["kind"] == "fault all":
                for name in self.alive:
                    self.fall(name, message["status"], message["reason"])
                return

    def believe(self, message: Message) -> None:
        """Check the errors against the tolerance again: a contender may have changed the tolerance in its process."""
        for name, bound in self.case.tolerance.items():
            if not message["errors"][name] <= bound:
                self.ledger.worsen(message["contender"], message["errors"])
                reason = gate.over_tolerance(name, message["errors"][name], bound)
                raise Lost(message["contender"], "INCORRECT", f"{reason}, which it changed in its process")

    def enter(self, message: Message) -> None:
        name = message["contender"]
        self.ledger.enter(message)
        self.times.setdefault(name, {})
        samples = [[name, 0, *sample, 0, self.host.readings(*sample[:2])] for sample in message["samples"]]
        self.ledger.samples("warmup", self.host.workers - 1, 0, samples)
        self.refuse_slow(name, message["samples"])

    def look(self) -> str | None:
        """Measure up to the next look, and return why to stop, or None."""
        if not self.alive:
            return self.why()
        target = next(look for look in self.protocol.looks if look > self.blocks)
        orders = [(block, self.order(block)) for block in range(self.blocks, target)]
        self.send({"blocks": orders})
        for block, order in orders:
            self.blocks = block + 1
            self.collect("block", block, order, self.full_order(block))
            self.tell(self.case.name)
            if not self.alive:
                break
        return self.why()

    def due(self) -> str | None:
        """Return why to stop if a look is already due because the worker was lost right before it, else None."""
        return self.why() if self.blocks in self.protocol.looks else None

    def why(self) -> str | None:
        if not self.alive:
            return "no pair left"
        return self.host.stop(self.blocks, self.times, frozenset(self.alive), self.host.elapsed())

    def full_order(self, block: int) -> list[str]:
        """Return the drawn order of all contenders, fallen ones included, so that the others keep their positions."""
        labels = self.key["process"], self.key["attempt"], self.case.name, block
        return draw(self.host.seed, self.host.contenders, *labels)

    def order(self, block: int) -> list[str]:
        return [name for name in self.full_order(block) if name not in self.fallen]

    def collect(self, kind: str, block: int, order: Sequence[str], full_order: Sequence[str]) -> None:
        """Receive one block and write it to disk, including what is left of a block that broke off."""
        positions = {name: i for i, name in enumerate(full_order)}
        waiting = [name for name in order if name not in self.fallen]
        samples: list[list[Any]] = []
        busy: str | None = None  # whose sample has arrived, and whose output the worker is still checking
        name = order[-1]
        faults: list[Message] = []
        try:
            while True:
                slow = PREPARE_FACTOR if busy else 1  # the oracle's time does not count against the contender
                current = busy or (waiting[0] if waiting else name)
                message = self.receive(current, slow * self.protocol.timeout_s)
                if message["kind"] == "block end":
                    break
                if message["kind"] == "alive":
                    continue
                name = message["contender"]
                own_fault = message["kind"] == "fault" and name in self.host.files  # for what it left running, say
                if (name != current and not own_fault) or (message["kind"] == "sample" and name not in waiting):
                    raise Lost(current, "ERROR", FORGED)
                if name in waiting:
                    waiting.remove(name)
                if message["kind"] == "sample":
                    seconds, launches = round(message["seconds"], 9), message["launches"]  # as the ledger stores it
                    start, check = message["start"], int(message["check"])
                    readings = self.host.readings(start, seconds)
                    samples.append([name, positions[name], start, seconds, launches, check, readings])
                    if kind == "block":
                        self.times[name][block] = seconds / launches
                    busy = name
                elif message["kind"] == "checked":
                    self.believe(message)
                    self.checked.add(name)
                    self.ledger.worsen(name, message["errors"])
                elif message["kind"] == "done":
                    busy = None
                elif message["kind"] == "fault":
                    busy = None
                    self.refuse_hungry(message)
                    faults.append(message)
        finally:
            self.ledger.samples(kind, self.host.workers - 1, block, samples)
            for message in faults:
                self.fault(message)

    def refuse_hungry(self, message: Message) -> None:
        """Raise Lost if a contender ran out of memory or broke the worker: the others continue on a new one."""
        if message["status"] == "OOM" or message.get("broken"):
            self.ledger.worsen(message["contender"], message["errors"])
            raise Lost(message["contender"], message["status"], message["reason"])

    def refuse_slow(self, name: str, samples: Sequence[Sequence[float]]) -> None:
        """If the run has a time budget, skip a contender whose blocks up to the first look do not fit what is left of
        it: a check of the time between looks would come too late for calls that take seconds. The fastest warm-up call
        counts, so that a stall of the machine costs no contender the case."""
        call_s, blocks = min(seconds / launches for _, seconds, launches in samples), self.protocol.looks[0]
        spent_s = self.host.elapsed() + sum(self.admitted_s.values())
        left = self.host.budget.pairs - self.number * len(self.host.contenders) - len(self.admitted_s)
        reason = self.host.budget.why_not((self.case.name, name), call_s, blocks, spent_s, left)
        if reason is None:
            self.admitted_s[name] = call_s * blocks
            return
        self.fall(name, "SKIPPED", reason)
        self.host.lost[self.case.name, name] = reason
        self.host.slow.add(name)

    def fault(self, message: Message) -> None:
        self.ledger.worsen(message["contender"], message["errors"])
        self.fall(message["contender"], message["status"], message["reason"])

    def fall(self, name: str, status: str, reason: str, *, lost_worker: bool = False) -> None:
        """Exclude the contender from this case as of the current block; at earlier looks it was present."""
        self.fallen.add(name)
        block = self.blocks if self.stopped else self.blocks - 1 if self.blocks else None
        self.ledger.outcome(name, status, reason, block, lost_worker=lost_worker)

    def send(self, message: Message) -> None:
        assert self.host.worker is not None
        try:
            self.host.worker.send(message)
        except Died as death:
            raise Lost(None, "OOM" if death.out_of_memory else "ERROR", str(death)) from None

    def receive(self, current: str | None, limit_s: float) -> Message:
        assert self.host.worker is not None
        try:
            message = self.host.worker.receive(limit_s)
            known = isinstance(message.get("kind"), str) and message.get("contender", current) in self.speakers
            if not known or not self.host.count_gate(message.get("gate_s")):
                raise Lost(current, "ERROR", FORGED)
            return message
        except Silence as silence:
            raise Lost(silence.contender or current, "TIMEOUT", f"no answer within {limit_s:g} s") from None
        except Died as death:
            raise Lost(death.contender or current, "OOM" if death.out_of_memory else "ERROR", str(death)) from None
