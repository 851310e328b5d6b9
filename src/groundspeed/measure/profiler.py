"""One contender in a fresh worker: gate, warm-up, and a few calls under PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groundspeed.measure.caserun import PREPARE_FACTOR
from groundspeed.measure.channel import Died, Message, Silence, Worker
from groundspeed.measure.greeting import greeted

CALLS = 5


@dataclass
class Traced:
    """The result of a profile."""

    status: str
    reason: str | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    calls: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    left_out: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    """As the worker reported it."""


def preparation(params: Mapping[str, Any], contender: str, seeds: Sequence[int]) -> Message:
    return {"prepare": {"params": dict(params), "contenders": [contender], "seeds": list(seeds)}}


def look(
    spawn: Callable[[], Worker], start: Message, prepare: Message, contender: str, timeout_s: float, most: int
) -> Traced:
    """Profile the contender in a fresh worker. At most `most` of its events are kept."""
    worker, hello, start = greeted(spawn, start)
    environment = hello.get("environment", {})
    try:
        if why := start.get("refused", {}).get(contender):
            return Traced("INCORRECT", why, environment=environment)
        worker.send(prepare)
        found = _until(worker, "prepared", timeout_s)
        if found.status == "PASSED":
            worker.send({"trace": {"contender": contender, "calls": CALLS, "most": most}})
            traced = _until(worker, "traced", timeout_s)
            traced.errors = found.errors or traced.errors
            found = traced
    except Died as death:
        found = Traced("OOM" if death.out_of_memory else "ERROR", str(death))
    except Silence:
        found = Traced("TIMEOUT", f"no answer within {PREPARE_FACTOR * timeout_s:g} s")
    finally:
        worker.close()
    found.environment = environment
    return found


def _until(worker: Worker, last: str, timeout_s: float) -> Traced:
    """Return the result of one request: what the worker reports until its message `last`."""
    errors: Mapping[str, float] = {}
    fault: Traced | None = None
    while True:
        message = worker.receive(PREPARE_FACTOR * timeout_s)
        kind = message["kind"]
        if kind in ("fault", "fault all"):
            fault = fault or Traced(message["status"], message["reason"], message["errors"])
            if kind == "fault all" or last == "traced":
                return fault
        elif kind == "ready":
            errors = message["errors"]
        elif kind == last:
            if last == "traced" and fault is None:
                return Traced("PASSED", None, {}, message["calls"], message["events"], message["left_out"])
            return fault or Traced("PASSED", None, errors)
