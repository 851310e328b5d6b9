"""What the line-up saw of the contenders on a GPU, before anything was timed."""

from __future__ import annotations

from dataclasses import dataclass

from groundspeed.evidence.names import check_names


@dataclass(frozen=True)
class Timing:
    """One interval seen by two timers at once."""

    clock: str
    """The one of the laboratory."""
    launches: int
    seconds: float
    """By that clock."""
    kernels_s: float
    """By the profiler, from the begin of the first kernel to the end of the last."""
    overhead_s: float
    """How much longer the clock was seen to be where the kernel does next to nothing."""

    def __post_init__(self) -> None:
        check_names("clock", self.clock)
        if not (0 < self.seconds < 1e6 and 0 < self.kernels_s < 1e6 and 0 <= self.overhead_s < 1 <= self.launches):
            raise ValueError("a timing lasts, and has launches")


@dataclass(frozen=True)
class Launched:
    """What one call of a contender ran on the GPU, as the profiler saw it once."""

    case: str
    """The first of those that are the same work by different clocks."""
    contender: str
    kernels: tuple[str, ...]
    """Each name once, in the order of their first launch."""
    binaries: tuple[str, ...]
    """The machine code of those that Triton compiled: `machine-code/1:` and a sha256 without line information. The
    first records have the bare sha256 of the whole file, which nobody can make again elsewhere."""
    timings: tuple[Timing, ...]
