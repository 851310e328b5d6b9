"""The memory of one call, and a limit on host memory, so that a contender that takes too much fails instead of the
machine."""

from __future__ import annotations

import ctypes
import resource
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass
class HostPeak:
    """Peak resident memory inside a `with`, and how much it is above the start; None if Linux does not report it.

    With a GPU it is the peak of the process so far, which costs nothing: what a call adds, it adds on the GPU."""

    device: str = "cpu"
    peak_bytes: int | None = None
    extra_bytes: int | None = None

    def __enter__(self) -> HostPeak:
        self._before = None
        if self.device != "cpu":
            return self
        try:
            ctypes.CDLL(None).malloc_trim(0)  # give free pages back, so that their reuse is seen
            CLEAR_REFS.write_text("5")  # resets the peak
            self._before = _status_bytes("VmRSS")
        except (OSError, AttributeError):
            pass  # not Linux, or not glibc: unknown stays None
        return self

    def __exit__(self, *exception: object) -> None:
        if self.device != "cpu":
            self.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            return
        peak = _status_bytes("VmHWM") if self._before is not None else None
        if peak is not None and self._before is not None:
            self.peak_bytes, self.extra_bytes = peak, max(0, peak - self._before)


@dataclass
class DevicePeak:
    """The same for GPU memory, as PyTorch's allocator sees it; None if the device is not a GPU."""

    device: str
    peak_bytes: int | None = None
    extra_bytes: int | None = None

    def __enter__(self) -> DevicePeak:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.device == "cuda":
            import torch

            self.peak_bytes = int(torch.cuda.max_memory_allocated())
            self.extra_bytes = max(0, self.peak_bytes - self._before)


def _status_bytes(key: str) -> int | None:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def limit_host_memory(limit_bytes: int) -> None:
    """Make allocations beyond `limit_bytes` fail as they would on a smaller machine. Without a limit, Linux promises
    more memory than it has, and then kills a process of its own choosing."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def wants_memory(text: str) -> bool:
    """Return whether this text reports a failed allocation: C++'s, Python's, PyTorch's on the host, or CUDA's."""
    lower = text.lower()
    return any(words in lower for words in ("bad_alloc", "memoryerror", "can't allocate memory", "out of memory"))


def kernel_oom_kills() -> int | None:
    """Return how many processes the kernel has killed for lack of memory since boot, or None if it does not report
    that."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return None
