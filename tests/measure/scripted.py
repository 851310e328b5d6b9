"""Runs with scripted faults, for the tests of the runner.

Every scenario ends in `judged`: the record that is left must be one that its own protocol would have produced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes import Died, FakeClock, FakeWorker, Silence
from groundspeed.evidence.record import Outcome, Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.replay import replay
from groundspeed.lab.check import declared
from groundspeed.measure.channel import Message

CONTENDERS = ("base", "fast", "slow")
MEANS = {"base": 2e-3, "fast": 1e-3, "slow": 4e-3}
CALM, WILD = 0.005, 0.5
"""Noise at which a process stops at its first look, and at which it goes on to the last."""

RAISES = {"status": "ERROR", "reason": "ValueError: no"}
WRONG = {"status": "INCORRECT", "reason": "rms_rel error 1 is over the tolerance"}
HUNGRY = {"status": "OOM", "reason": "MemoryError: too much"}
HANGS = Silence()
DIES = Died("the process was killed by SIGSEGV")
KILLED_FOR_MEMORY = Died("the kernel killed the process because memory ran out", out_of_memory=True)

KINDS: dict[str, tuple[Message | Exception, str, str, bool]] = {
    # what the worker reports or does; the status; what the reason says; whether the worker is replaced
    "raises": (RAISES, "ERROR", "ValueError", False),
    "wrong": (WRONG, "INCORRECT", "tolerance", False),
    "hungry": (HUNGRY, "OOM", "MemoryError", True),
    "hangs": (HANGS, "TIMEOUT", "no answer within", True),
    "dies": (DIES, "ERROR", "SIGSEGV", True),
    "killed for memory": (KILLED_FOR_MEMORY, "OOM", "memory ran out", True),
}
PLACES = {"preparing": None, "first": 0, "middle": 4, "before a look": 9, "second look": 19, "very last": 39}


def faults(script: dict[tuple[str, int | None], Message | Exception], case: str | None = None) -> Any:
    """The faults of (contender, block or None), on one case or on all."""

    def fault(name: str, at: str, block: int | None) -> Message | Exception | None:
        return script.get((name, block)) if case in (None, at) else None

    return fault


def judged(record: Record) -> Record:
    replay(record, declared)
    return record


def outcomes(record: Record, contender: str) -> list[Outcome]:
    return [o for o in record.outcomes if o.contender == contender]


def blocks_of(record: Record, outcome: Outcome) -> set[int]:
    """The blocks in which a contender has a timed sample, in the attempt and case of `outcome`."""
    columns = record.samples
    keep = (
        (columns["phase"] == TIMED)
        & (columns["process"] == outcome.process)
        & (columns["attempt"] == outcome.attempt)
        & (columns["case"] == record.case_index[outcome.case])
        & (columns["contender"] == record.contender_index[outcome.contender])
    )
    return set(columns["block"][keep].tolist())


def interrupted_at(samples: int) -> Callable[[FakeClock, Any, Any], FakeWorker]:
    """Workers of which one raises KeyboardInterrupt in the runner's place after this many samples, all told."""
    count = 0

    class Interrupted(FakeWorker):
        def receive(self, timeout_s: float) -> Message:
            nonlocal count
            message = super().receive(timeout_s)
            count += message["kind"] == "sample"
            if count > samples:
                raise KeyboardInterrupt
            return message

    return Interrupted
