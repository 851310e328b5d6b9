"""Inputs that no call has seen yet: which sets are renewed before a sample, and the combinations that this makes."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groundspeed.measure.inputs import Inputs

Combination = tuple[int, ...]
"""For each input of the case, the index of the set that it is taken from."""
MANY = 1 << 13
"""Up to this many combinations are listed; if there are more, some are drawn."""
RENEW_S = 0.05
"""Renewing sets takes about this long at a time at most, unless it takes longer to renew a single one."""


@dataclass
class Unseen:
    """Hands out combinations of inputs, each once. All include a tensor that was renewed since the last renewal, so a
    result that any contender kept from an earlier call is wrong.

    Sets are renewed when combinations run out, as many as needed: one gives n³ − (n − 1)³ with three inputs, but only
    itself with a single input."""

    inputs: Inputs
    left: list[Combination] = field(default_factory=list)
    next: int = 0
    """The set to be renewed next."""
    each_s: float = 0.0
    """How long it took to renew a set."""

    def take(self, most: int, later: int) -> list[Combination]:
        """Return up to `most` combinations, at least one; fewer if there are too few sets, or if renewing them takes
        too long. `later`: how many will be asked for soon, which are made at the same time if possible."""
        if len(self.left) < most:
            self._renew(most + later)
        taken, self.left = self.left[:most], self.left[most:]
        return taken

    def start(self, clock: str) -> None:
        """Begin a block: at least one set is renewed before its next sample, and that of a graph takes none from
        here."""
        self.left = []
        if clock == "graph":
            self._renew_sets(1)

    def _renew(self, wanted: int) -> None:
        inputs, drawn = self.inputs, self.inputs.drawn
        if not self.each_s:
            self._renew_sets(1)
        inputs.grow(min(int(RENEW_S / self.each_s), _sets_for(wanted, drawn)))
        sets = len(inputs)
        fresh = self._renew_sets(next((n for n in range(1, sets) if _available(n, sets, drawn) >= wanted), sets))
        self.left = combinations(fresh, sets, drawn, inputs.case.fixed_inputs, wanted)

    def _renew_sets(self, most: int) -> list[int]:
        """Renew at most this many sets, and return which."""
        begin = time.perf_counter()
        fresh: list[int] = []
        while len(fresh) < most and (not fresh or time.perf_counter() - begin < RENEW_S):
            self.inputs.renew(self.next)
            fresh.append(self.next)
            self.next = (self.next + 1) % len(self.inputs)
        self.each_s = (time.perf_counter() - begin) / len(fresh)
        return fresh


def combinations(fresh: list[int], sets: int, inputs: int, fixed: int, most: int) -> list[Combination]:
    """Return, in random order, at most `most` combinations that include one of the sets `fresh`. Fixed inputs are
    always those of the first set, since they are the same in all."""
    drawing = random.Random(secrets.randbits(128))
    if sets**inputs > MANY:
        return _drawn(fresh, sets, inputs, fixed, most, drawing)
    new = _listed(tuple(fresh), sets, inputs, fixed)
    return drawing.sample(new, min(most, len(new)))


def _sets_for(wanted: int, inputs: int) -> int:
    """Return the number of sets that have this many combinations if all are renewed."""
    sets = 1
    while _available(sets, sets, inputs) < wanted:
        sets += 1
    return sets


def _available(fresh: int, sets: int, inputs: int) -> int:
    """Return the number of combinations that include a fresh set; half of them if they are drawn, so that different
    ones are found quickly."""
    new: int = sets**inputs - (sets - fresh) ** inputs
    return new // 2 if sets**inputs > MANY else new


@lru_cache(64)
def _listed(fresh: tuple[int, ...], sets: int, inputs: int, fixed: int) -> tuple[Combination, ...]:
    new = frozenset(fresh)
    return tuple(c + (0,) * fixed for c in itertools.product(range(sets), repeat=inputs) if new.intersection(c))


def _drawn(
    fresh: list[int], sets: int, inputs: int, fixed: int, most: int, drawing: random.Random
) -> list[Combination]:
    count = min(most, _available(len(fresh), sets, inputs))
    found: dict[Combination, None] = {}
    while len(found) < count:
        drawn = [drawing.randrange(sets) for _ in range(inputs)]
        drawn[drawing.randrange(inputs)] = drawing.choice(fresh)
        found[(*drawn, *(0,) * fixed)] = None
    return [*found]
