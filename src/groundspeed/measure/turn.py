"""Whether a contender works within its turn. On a GPU, work on another stream may begin before its inputs are there and
the clock has begun, or go on after the end, and be right by the time that it is checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from groundspeed.case import Case
from groundspeed.measure import gate
from groundspeed.measure.clock import Call
from groundspeed.measure.inputs import Inputs
from groundspeed.measure.toll import Toll
from groundspeed.measure.unseen import Combination

EARLY = (
    "worked before its inputs were ready and the clock had begun: on a stream that does not wait for the current one"
)
LATE = (
    "was not done when its turn was over, but was right later: "
    "it works in a stream, thread or process that its call does not wait for"
)
KEPT = (
    "called again with other values in the same tensors, it returned the same result: "
    "one that it kept from an earlier call, or that does not depend on its inputs"
)


@dataclass
class Turn:
    """One timed interval. One of its inputs is given on the device right before it begins, and its output is copied on
    the device right after it ends."""

    case: Case
    inputs: Inputs
    combinations: Sequence[Combination]
    """The combinations that the interval may use."""
    draw: Callable[[], bool]
    """Decides whether to check the call that has just returned."""
    toll: Toll = field(default_factory=Toll)
    check: bool = False
    led: bool = False
    """Whether the launches were begun already: a clock may repeat them if the device was too fast."""
    output: Any = None
    """The output to check, as it was right after the interval."""

    def __post_init__(self) -> None:
        self.place = secrets.randbelow(self.inputs.drawn)
        """The input that is held back, which no contender can know. It is not a fixed one: these are the same in all
        sets."""

    def lead(self, busy: Call) -> None:
        if self.led:  # with other values, so that a result kept from the last try is wrong
            with self.toll:
                self._renew(self.combinations)
        self.led = True
        with self.toll:
            self.inputs.hold_back(self.combinations, self.place)
        busy()
        self.inputs.give(self.combinations, self.place)
        self.toll.again()  # waiting for it would let the device run idle before the interval

    def look(self, output: Any) -> None:
        self.check = self.draw()
        self.output = gate.snapshot(output) if self.check else None

    def errors(self, used: Combination, output: Any, when: str, again: Callable[[], Any] | None = None) -> gate.Errors:
        """Return the errors of what the last call returned, as it was then; `output` is what it is now. `again` calls
        the contender once more, to find out more about a result that is wrong."""
        self.inputs.check(used)
        inputs = self.inputs.of(used)
        answer = gate.ask(self.case, inputs, gate.ROWS_TIMED if self.inputs.thorough else gate.rows_timed(self.case))
        try:
            return gate.check(self.case, inputs, self.output, answer, when)
        except gate.Incorrect as wrong:
            if self._is_right(inputs, output, answer):
                raise gate.Incorrect(f"{when}{LATE}", wrong.errors) from None
            before = self.inputs.held_back(used, self.place)
            if self._is_right(before, self.output, gate.ask_again(self.case, before, answer)):
                raise gate.Incorrect(f"{when}{EARLY}", wrong.errors) from None
            if again and self._is_kept(used, again):
                raise gate.Incorrect(f"{wrong}; {KEPT}", wrong.errors) from None
            raise

    def _is_kept(self, used: Combination, again: Callable[[], Any]) -> bool:
        """Return whether the contender returns the same bits for other values of the inputs."""
        import torch

        self._renew([used])
        with suppress(Exception):
            output = gate.snapshot(again())
            return isinstance(output, torch.Tensor) and torch.equal(output, self.output)
        return False

    def _renew(self, combinations: Sequence[Combination]) -> None:
        for number in {i for one in combinations for i in one[: self.inputs.drawn]}:
            self.inputs.renew(number)

    def _is_right(self, inputs: Sequence[Any], output: Any, answer: gate.Answer) -> bool:
        try:
            gate.check(self.case, inputs, output, answer)
        except gate.Incorrect:
            return False
        return True
