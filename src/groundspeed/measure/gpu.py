"""The GPU as NVML shows it, found by its UUID: which one a run uses, its properties, its state while the run measures,
other programs on it, and a lock that keeps two runs off it."""

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
"""A reading that is further than this from a sample says nothing about it."""


@contextmanager
def nvml() -> Iterator[Any]:
    """Yield the initialized NVML library, or None if the library or the driver is missing."""
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
    """Return NVML's answer, or None: many devices do not support every query."""
    try:
        return function(*arguments)
    except library.NVMLError:
        return None


def visible_uuid() -> str | None:
    """Return the UUID of the GPU that CUDA would use first, by `CUDA_VISIBLE_DEVICES` and the order on the bus; None if
    there is none."""
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
    """Return the properties of the run's GPU, or None. The UUID is given as a hash: enough to recognize the GPU, too
    little to trace it."""
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
    """Return the other programs on the GPU, by name and memory. The calling process is left out, since it waits while
    the workers measure: a notebook, say, with the tensors that it has made."""
    found = []
    for process in _ask(library, library.nvmlDeviceGetComputeRunningProcesses, handle) or []:
        if process.pid == os.getpid():
            continue
        used = process.usedGpuMemory
        amount = "" if used is None else f", {used / 2**20:.0f} MiB"
        found.append(f"{_program(process.pid)}{amount}")
    return sorted(found)


def _program(pid: int) -> str:
    """Return the name of a program, without its folder and arguments, which may reveal too much."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        name = ""
    return "".join(c for c in name if c.isprintable())[:40] or "a program"


class Gpu:
    """One GPU while a run measures on it. A background thread takes readings at no cost to the worker; they are matched
    to samples by time."""

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
        """Return the programs on the GPU now. Called between two workers, when none of them belongs to the run."""
        with nvml() as library:
            handle = None if library is None else _ask(library, library.nvmlDeviceGetHandleByUUID, self.uuid)
            return [] if handle is None else users(library, handle)

    def readings(self, start: float, seconds: float) -> list[float | None] | None:
        """Return SM clock, temperature, power and throttle reasons at the middle of a sample; None if no reading is
        near."""
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
                self._times.append(self._now())  # last, so that every time has its values


def read(library: Any, handle: Any) -> list[float | None]:
    """Return SM clock in MHz, temperature in °C, power in W, throttle reasons as bits; None for what is not
    reported."""
    return [
        _ask(library, library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
        _ask(library, library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU),
        _power(library, handle),
        _ask(library, _throttle_reasons(library), handle),
    ]


def _power(library: Any, handle: Any) -> float | None:
    """Return the power in W, of this moment if NVML tells it. What every GPU tells is, from Ampere on, an average over
    the last second."""
    field = getattr(library, "NVML_FI_DEV_POWER_INSTANT", None)
    found = None if field is None else _ask(library, library.nvmlDeviceGetFieldValues, handle, [field])
    if found and found[0].nvmlReturn == library.NVML_SUCCESS:
        return float(found[0].value.uiVal) / 1000
    average = _ask(library, library.nvmlDeviceGetPowerUsage, handle)
    return None if average is None else average / 1000


def _throttle_reasons(library: Any) -> Callable[..., Any]:
    """Return NVML's function by its new name or its old one."""
    found: Callable[..., Any] | None = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return found or library.nvmlDeviceGetCurrentClocksThrottleReasons


@contextmanager
def only_run_on(uuid: str) -> Iterator[None]:
    """Hold the lock of a GPU; raise GroundspeedError if another run holds it."""
    path = Path(tempfile.gettempdir()) / f"groundspeed-gpu-{identity_of(uuid)}.lock"
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:  # O_CREAT only now: some systems deny it for an existing file of another user
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise GroundspeedError(f"cannot lock the GPU with {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GroundspeedError(
                "another groundspeed run is measuring on this GPU and would disturb this one; wait for it to end"
            ) from None
        yield
    finally:
        os.close(descriptor)
