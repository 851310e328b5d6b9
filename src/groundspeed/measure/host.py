"""What a case needs of the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol as Interface

from groundspeed.evidence.journal import Journal
from groundspeed.evidence.protocol import Protocol
from groundspeed.measure.budget import Budget
from groundspeed.measure.channel import Worker
from groundspeed.measure.usage import UsageLedger

Times = Mapping[str, Mapping[int, float]]
StopRule = Callable[[int, Times, frozenset[str], float], str | None]
"""(blocks, contender → block → seconds, contenders still alive, measuring time so far) → why to stop, or None."""


class Host(Interface):
    journal: Journal
    protocol: Protocol
    contenders: Sequence[str]
    key: dict[str, int]
    lost: dict[tuple[str, str], str]
    slow: set[str]
    refused: Mapping[tuple[str, str], tuple[str, str]]
    budget: Budget
    seed: int
    files: Mapping[str, str]
    workers: int
    usage: UsageLedger
    stop: StopRule

    @property
    def worker(self) -> Worker: ...
    def start_worker(self) -> None: ...
    def elapsed(self) -> float: ...
    def count_gate(self, told: object) -> bool: ...
    def readings(self, start: float, seconds: float) -> list[float | None] | None: ...
    def tell(self, number: float, text: str) -> None: ...
