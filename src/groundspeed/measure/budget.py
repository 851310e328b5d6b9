"""How the time budget of a preset is divided among the contenders and cases of a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

SURPLUS = 4
"""A contender may take one part in this many of what is not reserved for those after it."""


WARMUP_CALLS = 5
"""The least number of calls to prepare a slow contender: one for the gate, one for memory, three for the warm-up."""


@dataclass
class Budget:
    process_s: float | None
    """The time of a process; None if there is no budget."""
    pairs: int
    """The number of cases times that of contenders."""
    of: str = "the budget"
    """What it is, in words."""
    fits: set[tuple[str, str]] = field(default_factory=set)
    """(case, contender) that was admitted in some process. It is in later ones too: a process without it would cost it
    the case after others have measured it."""

    def room_s(self, spent_s: float, left: int) -> float:
        """Return the time that one contender may take for a case: an equal share, and a part of what `spent_s` leaves
        over if half a share is reserved for each of the `left` pairs that are not measured yet. So if all pairs are
        slow, a process may take half as long again."""
        if self.process_s is None:
            return inf
        share = self.process_s / self.pairs
        return share + max(0.0, self.process_s - spent_s - left * share / 2) / SURPLUS

    def why_not(self, pair: tuple[str, str], call_s: float, blocks: int, spent_s: float, left: int) -> str | None:
        """Return why a contender cannot have `blocks` blocks of calls that take so long, or None if it can."""
        room_s, calls = self.room_s(spent_s, left), blocks + WARMUP_CALLS
        if call_s * calls <= room_s:
            self.fits.add(pair)
        if pair in self.fits:
            return None
        return (
            f"a call takes {call_s:.2g} s, and the {calls} that are needed more than the {room_s:.2g} s that it may "
            f"take of {self.of}: select fewer cases or shapes, or use --preset standard"
        )
