"""A participant in a case, in a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groundspeed.case import Contender
from groundspeed.measure.cores import CoreUse
from groundspeed.measure.cuda import wait_for


@dataclass
class Entrant:
    """A contender that passed the gate on the current case."""

    contender: Contender
    function: Callable[..., Any]
    calls: list[Callable[[], Any]]
    """One call on each set of inputs; for a timed sample, calls on inputs that are drawn for it. The list stays the
    same object, because clocks recognize it by its identity."""
    launches: int = 1
    cursor: int = 0
    checked: bool = False
    use: CoreUse = field(default_factory=CoreUse)

    def call(self, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """Call it once, untimed, and wait until its result is there."""
        with self.contender.around():
            output = self.function(*inputs, **arguments)
            wait_for(str(inputs[0].device.type))
        return output
