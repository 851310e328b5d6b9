"""statistics.md 2: device time by events, without the host's, on a stand-in; tests/gpu has the real device."""

from __future__ import annotations

from typing import Any

import pytest

from groundspeed.measure import cuda
from groundspeed.measure.cuda import TRIES, EventClock

HOST_S, FLUSH_S, KERNEL_S = 4e-6, 15e-6, 5e-6


class StandIn:
    """A queue of work that begins when it is given, or when what is before it is done; a host that takes its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.free = 0.0
        self.log: list[str] = []
        self.stalls: list[float] = []

    def submit(self, what: str, seconds: float) -> None:
        self.now += HOST_S
        self.free = max(self.now, self.free) + seconds
        self.log.append(what)

    def event(self) -> Any:
        return Event(self)

    def synchronize(self) -> None:
        self.now = max(self.now, self.free) + HOST_S

    def sleep(self, seconds: float) -> None:
        self.submit("sleep", seconds)

    def flush(self) -> None:
        self.submit("flush", FLUSH_S)

    def kernel(self) -> None:
        if self.stalls:
            self.now += self.stalls.pop(0)
        self.submit("kernel", KERNEL_S)


class Event:
    def __init__(self, device: StandIn) -> None:
        self.device = device

    def record(self) -> None:
        self.time = max(self.device.now, self.device.free)

    def query(self) -> bool:
        return self.device.now >= self.time

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.time - self.time)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(cuda, "perf_counter", lambda: stand_in.now)
    return stand_in


@pytest.fixture
def clock(device: StandIn) -> EventClock:
    made = EventClock(cold=True, device=device)  # type: ignore[arg-type]
    device.log.clear()
    return made


def test_the_time_is_the_devices(clock: EventClock, device: StandIn) -> None:
    timing = clock.time([device.kernel], 0, 1)
    assert timing.seconds == pytest.approx(KERNEL_S)
    assert device.log == ["sleep", "flush", "kernel"]


def test_every_launch_of_a_batch_finds_the_cache_cold(clock: EventClock, device: StandIn) -> None:
    timing = clock.time([device.kernel], 0, 3)
    assert timing.launches >= 3
    assert timing.seconds == pytest.approx(timing.launches * KERNEL_S)
    assert device.log == ["sleep", *["flush", "kernel"] * timing.launches]


@pytest.mark.parametrize("stall", [5e-4, 3e-3, 0.2])
def test_a_host_that_stalls_is_not_part_of_it(clock: EventClock, device: StandIn, stall: float) -> None:
    """Whatever it was that the host did meanwhile: the launches are made again, not the slow ones left out."""
    calls = [device.kernel]
    clock.time(calls, 0, 1)
    device.stalls = [stall]
    assert clock.time(calls, 0, 1).seconds == pytest.approx(KERNEL_S)


def test_who_waits_for_the_device_himself_is_not_tried_for_ever(clock: EventClock, device: StandIn) -> None:
    def waiting() -> None:
        device.synchronize()
        device.kernel()

    timing = clock.time([waiting], 0, 1)
    assert device.log.count("kernel") == TRIES
    assert timing.seconds > KERNEL_S
