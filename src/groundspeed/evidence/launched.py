"""What the line-up saw the contenders launch on a GPU, before anything was timed."""

from __future__ import annotations

from dataclasses import dataclass

from groundspeed.evidence.names import check_names

MOST_TIMES = 1 << 31
MOST_S = 1e6


@dataclass(frozen=True)
class Timing:
    """One interval measured by two timers at once."""

    clock: str
    """The clock of the laboratory."""
    launches: int
    seconds: float
    """By that clock."""
    kernels_s: float
    """By the profiler, from the start of the first kernel to the end of the last."""
    overhead_s: float
    """How much longer the clock's time is than the profiler's, measured on kernels that do next to nothing."""

    def __post_init__(self) -> None:
        check_names("clock", self.clock)
        if not (
            0 < self.seconds < MOST_S and 0 < self.kernels_s < MOST_S and 0 <= self.overhead_s < 1 <= self.launches
        ):
            raise ValueError("a timing has a duration and launches")


@dataclass(frozen=True)
class Launched:
    """What one call of a contender ran on the GPU, as the profiler saw it once, in the line-up."""

    case: str
    """The first of the cases that are the same work by different clocks."""
    contender: str
    kernels: tuple[str, ...]
    """Each name once, in the order of their first launch."""
    binaries: tuple[str, ...]
    """Machine code of the kernels that Triton compiled: `machine-code/1:` and a sha256 without line information. The
    first records have the bare sha256 of the whole file, which cannot be reproduced elsewhere."""
    timings: tuple[Timing, ...]
    moves: tuple[str, ...] = ()
    """Copies and sets on the device, which are not kernels: each name once."""
    times: tuple[int, ...] = ()
    """How often each of the kernels, and then each of the moves, ran; empty if not recorded."""
    seconds: tuple[float, ...] = ()
    """Total time of each of them, by the profiler."""

    def __post_init__(self) -> None:
        told = len(self.kernels) + len(self.moves)
        silent = not (self.moves or self.times or self.seconds)
        if not silent and not len(self.times) == len(self.seconds) == told:
            raise ValueError("all kernels and moves have a count and a time, or none has")
        if any(times < 1 for times in self.times):
            raise ValueError("a kernel or a move was launched less than once")
        if any(times > MOST_TIMES for times in self.times):
            raise ValueError(f"a kernel was launched more than {MOST_TIMES:,} times in a call")
        if any(not 0 <= seconds < MOST_S for seconds in self.seconds):  # or NaN
            raise ValueError("a kernel has an impossible time")
