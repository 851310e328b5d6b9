"""What the gate takes of a worker's time: all that would not be done if nobody had to be checked. That is the oracle,
poisoned memory, renewed and held-back inputs, comparisons, and looking whether somebody replaced, changed or left
something."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from groundspeed.measure.cuda import wait_for


@dataclass
class Toll:
    """`with toll:` around whatever the gate does; not inside of another one. It ends when the device is done with it.

    Not in it: the copy of an output that is checked. It is on its way while the interval is, and small beside it."""

    device: str = "cpu"
    _untold_s: float = 0.0
    _last_s: float = 0.0
    _begin: float = 0.0

    def __enter__(self) -> None:
        self._begin = perf_counter()

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:  # else waiting might fail as well, and hide why
            wait_for(self.device)
        self._last_s = perf_counter() - self._begin
        self._untold_s += self._last_s

    def again(self) -> None:
        """As much as the last time, for what is like it and cannot be waited for."""
        self._untold_s += self._last_s

    def tell(self) -> float:
        """The seconds since they were told last."""
        seconds, self._untold_s = self._untold_s, 0.0
        return seconds
