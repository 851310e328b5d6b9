"""The GPU as NVML shows it, by its UUID: which one a run uses, what it is, how it is while the run measures, who else
is on it, and a lock that keeps two runs off it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groundspeed.errors import GroundspeedError

PERIOD_S = 0.02
STALE_S = 0.25
"""A reading further away in time says nothing about a sample."""


@contextmanager
def nvml() -> Iterator[Any]:
    """The vendor's library, ready for use; None where there is no driver."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(library: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers, or None: many devices do not know everything."""
    try:
        return function(*arguments)
    except library.NVMLError:
        return None


def visible_uuid() -> str | None:
    """The GPU that CUDA would take first, by `CUDA_VISIBLE_DEVICES` and the order on the bus."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = None if visible is None else visible.split(",")[0].strip()
    with nvml() as library:
        if library is None or first == "" or first == "-1":
            return None
        if first is not None and not first.isdigit():
            handle = _ask(library, library.nvmlDeviceGetHandleByUUID, first)
        else:
            handle = _ask(library, library.nvmlDeviceGetHandleByIndex, int(first or 0))
        uuid = _ask(library, library.nvmlDeviceGetUUID, handle) if handle is not None else None
        return uuid if isinstance(uuid, str) else None


def gpu_environment() -> dict[str, Any] | None:
    """What the GPU of a run is, or None. Its UUID is told as a hash: enough to know it again, too little to find it."""
    uuid = visible_uuid()
    if uuid is None:
        return None
    with nvml() as n:
        handle = _ask(n, n.nvmlDeviceGetHandleByUUID, uuid)
        memory = _ask(n, n.nvmlDeviceGetMemoryInfo, handle)
        capability = _ask(n, n.nvmlDeviceGetCudaComputeCapability, handle)
        power = _ask(n, n.nvmlDeviceGetEnforcedPowerLimit, handle)
        cuda = _ask(n, n.nvmlSystemGetCudaDriverVersion_v2)
        return {
            "name": _ask(n, n.nvmlDeviceGetName, handle),
            "id": identity_of(uuid),
            "driver": _ask(n, n.nvmlSystemGetDriverVersion),
            "cuda_of_driver": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "memory_bytes": None if memory is None else int(memory.total),
            "compute_capability": None if capability is None else ".".join(map(str, capability)),
            "max_sm_clock_mhz": _ask(n, n.nvmlDeviceGetMaxClockInfo, handle, n.NVML_CLOCK_SM),
            "max_memory_clock_mhz": _ask(n, n.nvmlDeviceGetMaxClockInfo, handle, n.NVML_CLOCK_MEM),
            "power_limit_w": None if power is None else power / 1000,
            "persistence_mode": _ask(n, n.nvmlDeviceGetPersistenceMode, handle),
            "ecc": (_ask(n, n.nvmlDeviceGetEccMode, handle) or [None])[0],
            "mig": (_ask(n, n.nvmlDeviceGetMigMode, handle) or [None])[0],
            "users": users(n, handle),
        }


def identity_of(uuid: str) -> str:
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def users(library: Any, handle: Any) -> list[str]:
    """Other programs that hold the GPU, by name and memory. Who asks waits while others measure: a notebook, say, with
    the tensors that it has made."""
    found = []
    for process in _ask(library, library.nvmlDeviceGetComputeRunningProcesses, handle) or []:
        if process.pid == os.getpid():
            continue
        used = process.usedGpuMemory
        amount = "" if used is None else f", {used / 2**20:.0f} MiB"
        found.append(f"{_program(process.pid)}{amount}")
    return sorted(found)


def _program(pid: int) -> str:
    """The name of a program, without its folder and its arguments: they may say too much."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        name = ""
    return "".join(c for c in name if c.isprintable())[:40] or "a program"


class Gpu:
    """One GPU while a run measures on it: readings in the background, at no cost to the worker, joined by time."""

    def __init__(self, uuid: str, now: Callable[[], float] = time.perf_counter) -> None:
        self.uuid, self._now = uuid, now
        self._times: list[float] = []
        self._values: list[list[float | None]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def identity(self) -> str:
        return identity_of(self.uuid)

    def __enter__(self) -> Gpu:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def other_users(self) -> list[str]:
        """Who is on the GPU now; between two workers it is none of ours."""
        with nvml() as library:
            handle = None if library is None else _ask(library, library.nvmlDeviceGetHandleByUUID, self.uuid)
            return [] if handle is None else users(library, handle)

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        """SM clock, temperature, power and throttle reasons at the middle of a sample; None without a reading near."""
        times = self._times
        middle = start + seconds / 2
        at = bisect(times, middle)
        near = min(range(max(0, at - 1), min(len(times), at + 1)), key=lambda i: abs(times[i] - middle), default=None)
        return None if near is None or abs(times[near] - middle) > STALE_S else self._values[near]

    def _watch(self) -> None:
        with nvml() as library:
            handle = None if library is None else _ask(library, library.nvmlDeviceGetHandleByUUID, self.uuid)
            while handle is not None and not self._over.wait(PERIOD_S):
                values = read(library, handle)
                self._values.append(values)
                self._times.append(self._now())  # last: a time has its values


def read(library: Any, handle: Any) -> list[float | None]:
    """SM clock in MHz, temperature in °C, power in W, throttle reasons as bits; None where it does not tell."""
    power = _ask(library, library.nvmlDeviceGetPowerUsage, handle)
    return [
        _ask(library, library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
        _ask(library, library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU),
        None if power is None else power / 1000,
        _ask(library, _throttle_reasons(library), handle),
    ]


def _throttle_reasons(library: Any) -> Callable[..., Any]:
    """Under its new name or its old one."""
    found: Callable[..., Any] | None = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return found or library.nvmlDeviceGetCurrentClocksThrottleReasons


@contextmanager
def only_run_on(uuid: str) -> Iterator[None]:
    """Hold the lock of a GPU, or GroundspeedError where another run holds it."""
    path = Path(tempfile.gettempdir()) / f"groundspeed-gpu-{identity_of(uuid)}.lock"
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:  # asked for afterwards: some systems let nobody but its owner create what is there
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise GroundspeedError(f"cannot lock the GPU with {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GroundspeedError(
                "another groundspeed is measuring on this GPU, and both would disturb each other; wait for it to end"
            ) from None
        yield
    finally:
        os.close(descriptor)
