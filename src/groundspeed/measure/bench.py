"""What a worker does with a case: it runs the gate and the warm-up of the contenders, then blocks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from groundspeed.case import Case, Contender
from groundspeed.measure import exam, gate
from groundspeed.measure.builder import Builder
from groundspeed.measure.clock import Clock, most_calls
from groundspeed.measure.cuda import Clocks, wait_for
from groundspeed.measure.entrant import Entrant
from groundspeed.measure.fault import describe, device_is_broken
from groundspeed.measure.guard import Guard
from groundspeed.measure.inputs import Inputs
from groundspeed.measure.memory import DevicePeak, HostPeak
from groundspeed.measure.setting import Setting
from groundspeed.measure.stillness import LeftRunning, Stillness
from groundspeed.measure.toll import Toll
from groundspeed.measure.turn import Turn
from groundspeed.measure.warmup import warm_up

RIGHT_BEFORE = "right on its first call, wrong on a timed one: "
STILL_ONE_IN = 20
"""With a contender of `--with`, one block in this many is preceded by a check that nothing is left running."""


@dataclass
class Bench:
    suite: Any
    device: str
    warmup_s: float
    first_look: int
    report: Callable[..., None]
    setting: Setting
    guard: Guard = field(default_factory=Guard)
    stillness: Stillness = field(default_factory=Stillness)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Contender that is never called → why."""
    thorough: bool = False
    """Some contenders were brought along: check what they leave running and replace, and how many cores they use."""
    check_one_in: Sequence[tuple[int, int]] = ((1, 1),)
    """(end, n): before block `end`, one sample in n is checked; the last n holds for later blocks too. The share is the
    same for all contenders, because a sample that follows a check is a little slower than one that does not."""
    began: float = field(default_factory=time.perf_counter)
    case: Case | None = None
    inputs: Inputs | None = None
    entrants: dict[str, Entrant] = field(default_factory=dict)
    right: dict[frozenset[tuple[str, Any]], set[str]] = field(default_factory=dict)
    """Parameters of the work, without the clock → contenders that passed the gate on it."""

    def __post_init__(self) -> None:
        self.toll, self.clocks = Toll(self.device), Clocks(self.device)
        self.builder = Builder(self.suite, self.device, self.guard)

    @property
    def clock(self) -> Clock:
        """The clock of the current case."""
        assert self.case is not None
        return self.clocks.named(self.case.clock)

    def prepare(
        self,
        params: dict[str, Any],
        contenders: Sequence[str],
        seeds: Sequence[int],
        alone: bool = False,
        later: bool = False,
    ) -> None:
        """Make the inputs, then gate and warm up each contender in the given order, and report its outcome. `alone`:
        the final round is requested separately. `later`: an earlier process has checked all rows."""
        self.case, self.entrants, self.inputs = None, {}, None
        self.clocks.forget()
        self.builder.let_go(siblings=alone)
        case = self.suite.module.case_of_params(params)
        right = self.right.setdefault(frozenset(params.items() - {("clock", case.clock)}), set())
        try:
            self.inputs = inputs = Inputs.make(case, seeds, self.device, thorough=self.thorough)
            if case.experts:
                self.report("usage", of=case.experts.usage(*inputs.sets[0]))
            tries = any(self.suite.contenders[name].tries for name in contenders if name in self.suite.contenders)
            again = not self.thorough and (right.issuperset(contenders) or (later and not tries))
            with self.toll:
                asked = exam.examine(case, inputs.sets[0], again=again)
        except Exception as error:
            self.report("fault all", **describe(error, prefix="could not make the inputs or the oracle's answer: "))
            return
        self.stillness.claim()
        self.case = case
        built = self.builder.build_rivals(case, contenders, self.report)
        for name in contenders:
            self.report("at", contender=name)
            try:
                if why := self.refused.get(name):
                    raise gate.Incorrect(why)
                contender = self.suite.contenders[name]
                function = built[name] if name in built else self.builder.build(case, contender)
                self._prepare_one(case, contender, function, inputs, asked)
                right.add(name)
            except BaseException as error:
                self.fault(name, error)
        if not alone:
            self.round()
        self.report("prepared")

    def round(self) -> None:
        """Call each contender once, untimed: its first call after the others were prepared is slow on the host."""
        for name, entrant in list(self.entrants.items()):
            assert self.inputs is not None
            self.report("at", contender=name)
            self.report("called")  # sent before the call, which has the time limit of a sample, not of a first call
            try:
                with entrant.contender.around():
                    output = entrant.calls[entrant.cursor % len(entrant.calls)]()
                    wait_for(self.device)
                entrant.cursor += 1
                gate.spoil(output, self.inputs.storages)
            except BaseException as error:
                del self.entrants[name]
                self.fault(name, error)

    def _prepare_one(
        self, case: Case, contender: Contender, function: Callable[..., Any], inputs: Inputs, asked: exam.Exam
    ) -> None:
        entrant = Entrant(contender, function, inputs.calls(function, inputs.diagonal()))
        first = inputs.sets[0]
        with self.toll:
            gate.poison(case, first[0])
        with contender.around():
            begin = time.perf_counter()
            output = entrant.calls[0]()
            wait_for(self.device)
            seen = gate.snapshot(output)  # as it is now, not as it is when it is checked
            prepare_s = time.perf_counter() - begin
            if contender.name not in self.suite.own:
                self.guard.renew()
            with self.toll:
                self._look(output)
        with self.toll:
            inputs.check(inputs.diagonal()[0])
            errors = gate.check(case, first, seen, asked.answer)
        self.report("called")
        gate.spoil(output, inputs.storages)
        del output, seen
        early = secrets.randbelow(2) == 0  # a contender cannot know which call it is
        sit = partial(exam.sit, case, entrant, asked, inputs, self.guard, self.toll)
        if early:
            sit()
        with contender.around(), HostPeak(self.device) as host, DevicePeak(self.device) as device:
            output = entrant.calls[-1]()
            wait_for(self.device)
        gate.spoil(output, inputs.storages)
        del output
        stable, samples = warm_up(entrant, self.clock, inputs, self.warmup_s, lambda: self.report("alive"))
        samples = [(start - self.began, seconds, launches) for start, seconds, launches in samples]
        if not early:
            sit()
        with self.toll:
            self.stillness.note(contender.name)
            if contender.name in self.suite.own:  # by then its own threads are done with the inputs
                self.stillness.check(contender.name, lambda: self.report("alive"))
            self.guard.check()
            inputs.check_all()
            self.setting.check()
        self.entrants[contender.name] = entrant
        self.report(
            "ready",
            contender=contender.name,
            errors=errors,
            prepare_s=prepare_s,
            host_peak_bytes=host.peak_bytes,
            host_extra_bytes=host.extra_bytes,
            device_peak_bytes=device.peak_bytes,
            device_extra_bytes=device.extra_bytes,
            warmup_stable=stable,
            gate_s=self.toll.tell(),
            samples=samples,
        )

    def _look(self, output: Any) -> None:
        """Raise Incorrect if the output is not a plain tensor, or if what inspects it was replaced."""
        if self.thorough:
            self.guard.check()
        gate.check_plain(output)

    def block(self, block: int, order: Sequence[str]) -> None:
        """Time every contender of `order` once, on inputs that are partly new, and check some of the calls."""
        if secrets.randbelow(STILL_ONE_IN) == 0:
            self._look_for_noise(block)
        if self.inputs and self.case:
            with self.toll:
                self.inputs.unseen.start(self.case.clock)
        for place, name in enumerate(order):
            if (entrant := self.entrants.get(name)) is None:  # it has failed since the runner sent the order
                continue
            try:
                later = (self.entrants[other].launches for other in order[place + 1 :] if other in self.entrants)
                self._sample(block, name, entrant, sum(map(most_calls, later)))
            except BaseException as error:
                del self.entrants[name]
                self.fault(name, error, block=block)
        self.report("block end", block=block)

    def _look_for_noise(self, block: int) -> None:
        """Check for activity before a block, so that no particular contender always comes next."""
        own = next((name for name in self.entrants if name in self.suite.own), None)
        try:
            if own is not None:
                with self.toll:
                    self.stillness.check(own, lambda: self.report("alive"))
        except LeftRunning as left:
            name = left.contender if left.contender in self.entrants else str(own)
            del self.entrants[name]
            self.fault(name, left, block=block)

    def _sample(self, block: int, name: str, entrant: Entrant, later: int) -> None:
        """Time a contender once. `later`: the number of calls that others make after it in this block."""
        inputs, launches = self.inputs, entrant.launches
        assert self.case is not None
        assert inputs is not None
        if self.case.clock == "graph":  # a graph reads the addresses that it was captured with
            combinations = inputs.diagonal()
        else:
            with self.toll:
                combinations = inputs.unseen.take(most_calls(launches), later)
            entrant.calls[:] = inputs.calls(entrant.function, combinations)
            launches = min(launches, (len(combinations) + 1) // 2)
        one_in = next((one_in for end, one_in in self.check_one_in if block < end), self.check_one_in[-1][1])
        draw = partial(gate.check_this_call, block, entrant.checked, self.first_look, one_in)
        turn = Turn(self.case, inputs, combinations[: most_calls(launches)], draw, self.toll)
        with entrant.contender.around():
            with entrant.use.counted() if self.thorough and self.device == "cpu" else nullcontext():
                timing = self.clock.time(entrant.calls, 0, launches, turn)
                wait_for(self.device)  # an error on another stream surfaces now, and counts against this contender
            if turn.check:
                with self.toll:
                    self._look(timing.output)
        used = [combinations[i] for i in timing.used]
        self.report(
            "sample",
            contender=name,
            block=block,
            start=timing.start - self.began,
            seconds=timing.seconds,
            launches=timing.launches,
            check=turn.check,
        )
        with self.toll:
            inputs.glance(used)  # at once, while it is clear which contender is responsible
            if turn.check:
                entrant.checked = True
                again = partial(entrant.call, inputs.of(used[-1]), self.case.arguments)
                errors = turn.errors(used[-1], timing.output, RIGHT_BEFORE, again)
                self.report("checked", contender=name, block=block, errors=errors)
            gate.spoil(timing.output, inputs.storages)
            if self.thorough or turn.check:
                self.setting.check()
            if self.thorough:
                self.stillness.note(name)
                if self.device == "cpu" and (cores := self.setting.values.get("the CPU affinity")):
                    entrant.use.check(len(cores))
        self.report("done", contender=name, gate_s=self.toll.tell())

    def fault(self, name: str, error: BaseException, **where: int) -> None:
        """Report the failure, and restore inputs and settings for the others unless the worker has become unusable."""
        try:
            if name in self.suite.own and not isinstance(error, LeftRunning):
                self.stillness.check(name, lambda: self.report("alive"))
        except LeftRunning as left:
            error = left
        if isinstance(error, LeftRunning) and error.contender in self.entrants:
            name = error.contender
        contender = self.suite.contenders.get(name)
        fault = describe(error, contender and (contender.written or contender.source))
        spoilt = isinstance(error, LeftRunning) or self.clocks.spoilt
        broken = spoilt or device_is_broken(self.device)
        self.report("fault", contender=name, broken=broken, gate_s=self.toll.tell(), **where, **fault)
        if not broken:
            self._restore()

    def _restore(self) -> None:
        """Restore what the failed contender may have replaced, settings and inputs for the others."""
        for check in (self.guard.check, self.setting.check):
            with suppress(gate.Incorrect):  # the contender has failed already
                check()
        if self.inputs and self.inputs.restore() and self.case:
            self.clock.forget()  # a graph would go on reading the old address
