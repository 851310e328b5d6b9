"""One measuring process: prepares the contenders of a case, then times blocks of them, as the runner asks.

It reads requests from stdin and reports on what was its stdout; whatever a contender prints goes to stderr.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from groundspeed.case import Case, Contender
from groundspeed.measure import gate
from groundspeed.measure.clock import HostClock
from groundspeed.measure.environment import torch_environment
from groundspeed.measure.memory import HostPeak, limit_host_memory, wants_memory
from groundspeed.measure.schedule import check_this_call, warmup_over
from groundspeed.measure.setting import Setting

HEARTBEAT_S = 0.5
PR_SET_PDEATHSIG = 1


class Unsupported(Exception):
    """The contender says that it cannot do this case."""


@dataclass
class Entrant:
    """A contender that passed the gate on the case at hand."""

    contender: Contender
    calls: list[Callable[[], Any]]
    launches: int = 1
    cursor: int = 0
    checked: bool = False


@dataclass
class Session:
    suite: Any
    device: str
    warmup_s: float
    first_look: int
    report: Callable[..., None]
    setting: Setting
    clock: HostClock = field(default_factory=HostClock)
    began: float = field(default_factory=time.perf_counter)
    case: Case | None = None
    inputs: list[tuple[Any, ...]] = field(default_factory=list)
    pristine: list[tuple[Any, ...]] = field(default_factory=list)
    entrants: dict[str, Entrant] = field(default_factory=dict)

    def prepare(self, params: dict[str, Any], contenders: Sequence[str], seeds: Sequence[int]) -> None:
        """Inputs, gate and warm-up of the contenders, in the order given; each one's fate is reported."""
        self.case = None
        self.entrants, self.inputs, self.pristine = {}, [], []
        gc.collect()
        case = self.suite.module.case_of_params(params)
        try:
            self.inputs = [case.inputs(seed, self.device) for seed in seeds]
            self.pristine = [tuple(tensor.clone() for tensor in one) for one in self.inputs]
        except Exception as error:
            self.report("fault all", **_fault(error, "the inputs could not be made: "))
            return
        self.case = case
        for name in contenders:
            self.report("at", contender=name)
            try:
                self._prepare_one(case, self.suite.contenders[name])
            except BaseException as error:
                self.report("fault", contender=name, **_fault(error))
                self._restore()
        self.report("prepared")

    def _prepare_one(self, case: Case, contender: Contender) -> None:
        if reason := contender.supports(case, self.device):
            if not isinstance(reason, str):
                raise TypeError(f"supports() returned {reason!r}, neither None nor a reason why not")
            raise Unsupported(reason)
        function = contender.build(case)
        entrant = Entrant(contender, [partial(function, *one, **case.arguments) for one in self.inputs])
        gate.poison(case, self.inputs[0][0])
        with contender.around():
            begin = time.perf_counter()
            output = entrant.calls[0]()
            prepare_s = time.perf_counter() - begin
        gate.check_inputs(self.inputs[0], self.pristine[0])
        errors = gate.check(case, self.inputs[0], output, gate.rows_before_timing(case))
        self.report("called")
        gate.spoil(output, self.inputs)
        del output
        with contender.around(), HostPeak() as memory:
            output = entrant.calls[-1]()
        gate.spoil(output, self.inputs)
        del output
        stable, samples = self._warm_up(entrant)
        for inputs, pristine in zip(self.inputs, self.pristine, strict=True):
            gate.check_inputs(inputs, pristine)
        self.setting.check()
        self.entrants[contender.name] = entrant
        self.report(
            "ready",
            contender=contender.name,
            errors=errors,
            prepare_s=prepare_s,
            host_peak_bytes=memory.peak_bytes,
            host_extra_bytes=memory.extra_bytes,
            warmup_stable=stable,
            samples=samples,
        )

    def _warm_up(self, entrant: Entrant) -> tuple[bool, list[tuple[float, float, int]]]:
        """Whether the times settled, and the samples: start, seconds, launches."""
        samples: list[tuple[float, float, int]] = []
        per_call: list[float] = []
        begin = said = time.perf_counter()
        with entrant.contender.around():
            while True:
                start = time.perf_counter()
                seconds, output = self.clock.time(entrant.calls, entrant.cursor, entrant.launches)
                gate.spoil(output, self.inputs)
                entrant.cursor += entrant.launches
                samples.append((start - self.began, seconds, entrant.launches))
                per_call.append(seconds / entrant.launches)
                entrant.launches = max(entrant.launches, self.clock.launches_for(min(per_call[-3:])))
                now = time.perf_counter()
                if (over := warmup_over(per_call, now - begin, self.warmup_s)) is not None:
                    return over, samples
                if now - said > HEARTBEAT_S:
                    self.report("alive")
                    said = now

    def block(self, block: int, order: Sequence[str]) -> None:
        """Time every contender of `order` once, on inputs that are partly new, and check the calls that are drawn
        afterwards."""
        if self.case is not None:
            fresh = block % len(self.inputs)
            self.case.refresh(self.inputs[fresh])
            for tensor, content in zip(self.pristine[fresh], self.inputs[fresh], strict=True):
                tensor.copy_(content)
        for name in order:
            entrant = self.entrants.get(name)
            if entrant is None:  # it failed since the runner asked
                continue
            try:
                self._sample(block, name, entrant)
            except BaseException as error:
                del self.entrants[name]
                self.report("fault", contender=name, block=block, **_fault(error))
                self._restore()
        self.report("block end", block=block)

    def _sample(self, block: int, name: str, entrant: Entrant) -> None:
        assert self.case is not None
        # The last output may be compared. How many calls there are is drawn anew each time: none knows that it is last.
        launches = entrant.launches + secrets.randbelow(entrant.launches)
        with entrant.contender.around():
            start = time.perf_counter()
            seconds, output = self.clock.time(entrant.calls, entrant.cursor, launches)
        sets = len(entrant.calls)
        used = [(entrant.cursor + i) % sets for i in range(launches)][-sets:]
        compared = used[-1]
        entrant.cursor += launches
        check = check_this_call(block, entrant.checked, self.first_look)
        self.report(
            "sample",
            contender=name,
            block=block,
            start=start - self.began,
            seconds=seconds,
            launches=launches,
            check=check,
        )
        for i in used:  # at once, while it is clear whose doing it was: the inputs are everybody's
            whole = check and i == compared
            gate.check_inputs(self.inputs[i], self.pristine[i], None if whole else gate.GLANCE)
        if check:
            entrant.checked = True
            errors = gate.check(self.case, self.inputs[compared], output, gate.ROWS_TIMED)
            self.report("checked", contender=name, block=block, errors=errors)
        gate.spoil(output, self.inputs)
        self.setting.check()
        self.report("done", contender=name)

    def _restore(self) -> None:
        """Whatever a contender that failed did to the inputs and settings, the others get them as they were."""
        try:
            self.setting.check()
        except gate.Incorrect:
            pass  # it has failed already
        for one, before in zip(self.inputs, self.pristine, strict=True):
            for tensor, content in zip(one, before, strict=True):
                if (tensor.shape, tensor.stride()) == (content.shape, content.stride()):
                    tensor.copy_(content)
                else:
                    tensor.set_(content.clone())


def _fault(error: BaseException, prefix: str = "") -> dict[str, Any]:
    """Status, errors and a reason of one line that any file can hold."""
    kind, text, errors = type(error).__name__, str(error), {}
    if isinstance(error, Unsupported):
        status = "SKIPPED"
    elif isinstance(error, gate.Incorrect):
        status, errors = "INCORRECT", error.errors
    else:
        status = "OOM" if isinstance(error, MemoryError) or wants_memory(text) else "ERROR"
        text = f"{kind}: {text}" if text.strip() else kind
    line = next((part.strip() for part in text.splitlines() if part.strip()), kind)[:300]
    return {"status": status, "reason": prefix + line.encode(errors="replace").decode(), "errors": errors}


def die_with(parent: int) -> None:
    """On Linux the kernel ends this process when the runner dies, even in the middle of a call."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before it could be said
        sys.exit(1)


def _refuse_changed(suite: Any, sources: dict[str, str]) -> None:
    """The code that is measured is the code whose hash is in the record."""
    for name, digest in sources.items():
        if hashlib.sha256(Path(suite.contenders[name].source).read_bytes()).hexdigest() != digest:
            sys.exit(f"the file of {name} was changed since the run began")


def stay_on(cores: int) -> None:
    """Use no more cores than declared, whatever a contender does to its threads; the runner keeps the others."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])


def serve(requests: IO[str], report: Callable[..., None]) -> None:
    import torch

    start = json.loads(requests.readline())
    module, name = start["loader"].split(":")
    suite = getattr(importlib.import_module(module), name)(start["suite"], start["with_files"])
    _refuse_changed(suite, start["sources"])
    if start["device"] == "cpu":
        stay_on(start["threads"])
    torch.set_num_threads(start["threads"])
    torch.set_grad_enabled(False)
    environment = torch_environment()
    gc.collect()
    gc.freeze()
    if start["memory_limit_bytes"]:
        limit_host_memory(start["memory_limit_bytes"])
    session = Session(suite, start["device"], start["warmup_s"], start["first_look"], report, Setting.now())
    report("hello", environment={**environment, "clock_tick_s": session.clock.tick_s})
    for line in requests:
        request = json.loads(line)
        if "prepare" in request:
            session.prepare(**request["prepare"])
        for block, order in request.get("blocks", ()):
            session.block(block, order)


def main() -> None:
    die_with(int(sys.argv[1]))
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def report(kind: str, **message: Any) -> None:
        channel.write(json.dumps({"kind": kind, **message}) + "\n")
        channel.flush()

    gc.disable()  # a collection in a timed interval would be charged to whoever is being timed
    serve(sys.stdin, report)


if __name__ == "__main__":
    main()
