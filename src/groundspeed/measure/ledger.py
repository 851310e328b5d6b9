"""What is known about the contenders of one case in one process, and how it is written to the journal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context
from typing import Any

from groundspeed.evidence.journal import Journal
from groundspeed.evidence.record import ERRORS, MEMORY
from groundspeed.measure.channel import Message


class Ledger:
    def __init__(self, journal: Journal, key: Mapping[str, Any]) -> None:
        self.journal, self.key = journal, key
        self.known: dict[str, Message] = {}
        """Contender → what its worker said when it was ready, with the worst errors since."""

    def enter(self, message: Message) -> None:
        """Record that a contender is ready. If it was ready before, on a worker that was lost, its errors then still
        count."""
        name = message["contender"]
        before = self.known.get(name, {}).get("errors", {})
        self.known[name] = message
        self.worsen(name, before)

    def worsen(self, name: str, errors: Mapping[str, float]) -> None:
        known = self.known.setdefault(name, {}).setdefault("errors", {})
        self.known[name]["errors"] = {key: max(known.get(key, 0.0), errors.get(key, 0.0)) for key in {*known, *errors}}

    def samples(self, kind: str, worker: int, block: int, samples: list[list[Any]]) -> None:
        for sample in samples:
            sample[2], sample[3] = round(sample[2], 6), round(sample[3], 9)  # the precision of a bundle's samples
        if samples:
            self.journal.write(kind, **self.key, worker=worker, block=block, samples=samples)

    def stop(self, blocks: int, why: str, elapsed_s: float) -> None:
        self.journal.write("stop", **self.key, blocks=blocks, why=why, elapsed_s=elapsed_s)

    def outcome(self, name: str, status: str, reason: str | None, block: int | None, *, lost_worker: bool) -> None:
        known = self.known.get(name, {})
        errors = {k: v for k, v in known.get("errors", {}).items() if math.isfinite(v)}
        self.journal.write(
            "outcome",
            **self.key,
            contender=name,
            status=status,
            reason=reason,
            block=block,
            lost_worker=lost_worker,
            **{key: _short(errors.get(key)) for key in ERRORS},
            prepare_s=_short(known.get("prepare_s")),
            **{key: known.get(key) for key in (*MEMORY, "warmup_stable")},
        )


def _short(value: float | None) -> float | None:
    """Return the value with four digits, rounded up: a reported error is never less than the actual one."""
    return None if value is None else float(_FOUR_DIGITS.create_decimal(repr(value)))


_FOUR_DIGITS = Context(prec=4, rounding=ROUND_CEILING)
