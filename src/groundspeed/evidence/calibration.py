"""What a run records of the calibration of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groundspeed.evidence.names import check_names
from groundspeed.evidence.protocol import MAX_NUMBER

Length = Literal["short", "long"]

LEAST_PROCESSES = 2
"""Fewest processes of a calibration: noise is what differs between processes."""
FURTHEST = 45.0
"""Bound on |θ|: just over the log ratio of the longest to the shortest call that a record may hold."""


@dataclass(frozen=True)
class Noise:
    """Comparisons of a contender with itself, by one clock, on work of one length."""

    clock: str
    length: Length
    estimates: tuple[float, ...]
    """θ over processes, for each comparison."""
    ts: tuple[float, ...]
    """θ divided by its standard error, for each comparison."""

    def __post_init__(self) -> None:
        if len(self.estimates) != len(self.ts) or not 1 <= len(self.ts) <= MAX_NUMBER:
            raise ValueError("noise has an estimate and a t for each comparison, and at least one comparison")
        if any(abs(value) > FURTHEST for value in self.estimates):
            raise ValueError("the times of the same work are too far apart")


@dataclass(frozen=True)
class Roof:
    """The best rate that a machine was seen to reach, measured over all processes."""

    what: Literal["copy", "matmul"]
    dtype: str
    rate: float
    """Bytes per second of a copy, read plus written; FLOP/s of a matrix product."""
    case: str

    def __post_init__(self) -> None:
        check_names("roof", self.dtype, self.case)
        if not 0 < self.rate < 1e24:
            raise ValueError("a rate is out of range")


@dataclass(frozen=True)
class Calibration:
    """What a run takes from the calibration of its machine."""

    identity: str
    """Identity of the calibration's bundle."""
    finished: str
    processes: int
    noise: tuple[Noise, ...]
    roofs: tuple[Roof, ...]

    def __post_init__(self) -> None:
        if len(self.identity) != 64 or not set(self.identity) <= set("0123456789abcdef"):
            raise ValueError("a bundle's identity has 64 hexadecimal digits")
        if not LEAST_PROCESSES <= self.processes <= MAX_NUMBER:
            raise ValueError("a calibration has at least two processes")
        if len({(noise.clock, noise.length) for noise in self.noise}) != len(self.noise):
            raise ValueError("the noise of a clock and a length appears twice")
