"""The GPU as NVML shows it, with a driver of our own in the place of NVIDIA's (A7; statistics.md 6, 16)."""

from __future__ import annotations

import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from groundspeed.errors import GroundspeedError
from groundspeed.measure import gpu

UUIDS = ("GPU-aaaa", "GPU-bbbb")


class NVMLError(Exception):
    pass


def refuse(*arguments: object) -> Any:
    raise NVMLError("no")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver with two GPUs."""
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.opened = module.closed = 0
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = "sm", "memory", "core"

    def by_index(index: int) -> str:
        return UUIDS[index] if index < len(UUIDS) else refuse()

    def by_uuid(uuid: str) -> str:
        return uuid if uuid in UUIDS else refuse()

    module.nvmlInit = lambda: setattr(module, "opened", module.opened + 1)
    module.nvmlShutdown = lambda: setattr(module, "closed", module.closed + 1)
    module.nvmlDeviceGetHandleByIndex = by_index
    module.nvmlDeviceGetHandleByUUID = by_uuid
    module.nvmlDeviceGetUUID = lambda handle: handle
    module.nvmlDeviceGetName = lambda handle: {"GPU-aaaa": "NVIDIA H200", "GPU-bbbb": "Tesla T4"}[handle]
    module.nvmlSystemGetDriverVersion = lambda: "580.1"
    module.nvmlSystemGetCudaDriverVersion_v2 = lambda: 13000
    module.nvmlDeviceGetMemoryInfo = lambda handle: types.SimpleNamespace(total=1 << 37)
    module.nvmlDeviceGetCudaComputeCapability = lambda handle: (9, 0)
    module.nvmlDeviceGetMaxClockInfo = lambda handle, kind: {"sm": 1980, "memory": 3201}[kind]
    module.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
    module.nvmlDeviceGetPersistenceMode = lambda handle: 1
    module.nvmlDeviceGetEccMode = lambda handle: [1, 1]
    module.nvmlDeviceGetMigMode = refuse
    module.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
    module.nvmlDeviceGetClockInfo = lambda handle, kind: 1755
    module.nvmlDeviceGetTemperature = lambda handle, kind: 41
    module.nvmlDeviceGetPowerUsage = lambda handle: 612_500
    module.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 4
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return module


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [
        (None, UUIDS[0]),
        ("0", UUIDS[0]),
        ("1", UUIDS[1]),
        ("1,0", UUIDS[1]),
        (" 1 , 0", UUIDS[1]),
        (UUIDS[1], UUIDS[1]),
        (f"{UUIDS[1]},{UUIDS[0]}", UUIDS[1]),
        ("7", None),
        ("", None),
        ("-1", None),
        ("GPU-none", None),
        ("nonsense", None),
    ],
)
def test_the_gpu_of_a_run_is_the_first_that_cuda_would_show(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, visible: str | None, uuid: str | None
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.visible_uuid() == uuid
    assert nvml.opened == nvml.closed


def test_a7_a_gpu_is_told_by_what_it_is(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gpu.gpu_environment()
    assert found is not None
    assert found["name"] == "NVIDIA H200"
    assert (found["driver"], found["cuda_of_driver"], found["compute_capability"]) == ("580.1", "13.0", "9.0")
    assert (found["memory_bytes"], found["power_limit_w"], found["max_sm_clock_mhz"]) == (1 << 37, 700.0, 1980)
    assert found["mig"] is None
    assert UUIDS[0] not in str(found)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    other = gpu.gpu_environment()
    assert other is not None
    assert other["name"] == "Tesla T4"
    assert other["id"] != found["id"]
    assert nvml.opened == nvml.closed


def test_a7_no_driver_and_no_binding_are_none(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.nvmlInit = refuse
    assert gpu.gpu_environment() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.gpu_environment() is None


def test_what_the_device_does_not_tell_is_none_and_never_zero(nvml: Any) -> None:
    for name in ("PowerUsage", "Temperature", "ClockInfo", "CurrentClocksThrottleReasons"):
        setattr(nvml, f"nvmlDeviceGet{name}", refuse)
    assert gpu.read(nvml, UUIDS[0]) == [None] * 4


def test_readings_are_in_mhz_degrees_watts_and_bits(nvml: Any) -> None:
    assert gpu.read(nvml, UUIDS[0]) == [1755, 41, 612.5, 4]
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 8
    assert gpu.read(nvml, UUIDS[0])[3] == 8


def test_power_is_that_of_the_moment_where_nvml_tells_it(nvml: Any) -> None:
    """What every GPU tells is the average of a second, which is a thousand samples."""

    def fields(handle: str, asked: list[int], status: int = 0) -> list[Any]:
        assert asked == [186]
        return [types.SimpleNamespace(nvmlReturn=status, value=types.SimpleNamespace(uiVal=701_250))]

    nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_SUCCESS = 186, 0
    nvml.nvmlDeviceGetFieldValues = fields
    assert gpu.read(nvml, UUIDS[0])[2] == 701.25
    for other in (partial(fields, status=3), refuse):
        nvml.nvmlDeviceGetFieldValues = other
        assert gpu.read(nvml, UUIDS[0])[2] == 612.5


def test_a_sample_gets_the_reading_nearest_to_it(nvml: Any) -> None:
    watched = gpu.Gpu(UUIDS[0])
    watched._times = [10.0, 10.1, 10.2]
    watched._values = [[1.0, None, None, None], [2.0, None, None, None], [3.0, None, None, None]]

    def clock_at(start: float, seconds: float = 0.0) -> float | None:
        found = watched.readings(start, seconds)
        return found[0] if found else None

    assert [clock_at(at) for at in (10.0, 10.04, 10.06, 10.14, 10.16, 10.3)] == [1, 1, 2, 2, 3, 3]
    assert clock_at(9.9, 0.3) == 2  # the middle of a long sample
    assert clock_at(9.8) == 1
    assert (clock_at(9.7), clock_at(10.5)) == (None, None)  # too far away to say anything


def test_it_reads_in_the_background_until_it_is_left(nvml: Any) -> None:
    with gpu.Gpu(UUIDS[0]) as watched:
        deadline = time.perf_counter() + 10
        while watched.readings(time.perf_counter(), 0.0) is None:
            assert time.perf_counter() < deadline
            time.sleep(0.01)
    assert watched.readings(watched._times[-1], 0.0) == [1755, 41, 612.5, 4]
    assert nvml.opened == nvml.closed


def test_a_gpu_that_is_gone_has_no_readings(nvml: Any) -> None:
    with gpu.Gpu("GPU-none") as watched:
        pass
    assert watched.readings(time.perf_counter(), 0.0) is None
    assert watched.other_users() == []


def test_other_users_are_named_without_saying_too_much(nvml: Any) -> None:
    """Who asks is none of them: it waits."""
    import os

    process = types.SimpleNamespace
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
        process(pid=os.getpid(), usedGpuMemory=5 << 20),
        process(pid=os.getppid(), usedGpuMemory=3 << 20),
        process(pid=2**22 + 1, usedGpuMemory=None),
    ]
    other = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    assert gpu.Gpu(UUIDS[0]).other_users() == sorted([f"{other}, 3 MiB", "a program"])


class TestLock:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
        return tmp_path

    def test_two_runs_do_not_share_a_gpu(self) -> None:
        with gpu.only_run_on(UUIDS[0]):
            with pytest.raises(GroundspeedError, match="another groundspeed"), gpu.only_run_on(UUIDS[0]):
                pass
            with gpu.only_run_on(UUIDS[1]):
                pass
        with gpu.only_run_on(UUIDS[0]):
            pass

    def test_a_run_that_failed_leaves_it_free(self) -> None:
        with pytest.raises(ZeroDivisionError), gpu.only_run_on(UUIDS[0]):
            raise ZeroDivisionError
        with gpu.only_run_on(UUIDS[0]):
            pass

    def test_a_link_in_its_place_is_not_followed(self, folder: Path) -> None:
        with gpu.only_run_on(UUIDS[0]):
            pass
        (lock,) = folder.iterdir()
        lock.unlink()
        lock.symlink_to(folder / "elsewhere")
        with pytest.raises(GroundspeedError, match="cannot lock"), gpu.only_run_on(UUIDS[0]):
            pass
        assert not (folder / "elsewhere").exists()
