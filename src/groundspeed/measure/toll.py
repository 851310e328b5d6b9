"""The time that the gate takes in a worker: all that would not be done if no contender had to be checked. That is the
oracle, poisoned memory, renewed and held-back inputs, comparisons, and looking for what a contender replaced, changed
or left."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from groundspeed.measure.cuda import wait_for


@dataclass
class Toll:
    """`with toll:` encloses whatever the gate does, and is not nested. It ends when the device is done with that.

    The copy of a checked output is not included: it is under way during the interval, and small in comparison."""

    device: str = "cpu"
    _untold_s: float = 0.0
    _last_s: float = 0.0
    _begin: float = 0.0

    def __enter__(self) -> None:
        self._begin = perf_counter()

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:  # otherwise waiting might fail as well, and hide why
            wait_for(self.device)
        self._last_s = perf_counter() - self._begin
        self._untold_s += self._last_s

    def again(self) -> None:
        """Add the last duration once more, for similar work that cannot be waited for."""
        self._untold_s += self._last_s

    def tell(self) -> float:
        """Return the seconds since they were last reported."""
        seconds, self._untold_s = self._untold_s, 0.0
        return seconds
