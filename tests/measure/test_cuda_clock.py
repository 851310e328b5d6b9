"""statistics.md 2: device time by events, without the host's, on a stand-in; tests/gpu has the real device."""

from __future__ import annotations

import pytest
from stand_in_device import KERNEL_S, StandIn

from groundspeed.measure import cuda
from groundspeed.measure.cuda import TRIES, EventClock


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
    device.log.clear()
    clock.time([waiting], 0, 1)  # other calls: nothing is known of them
    assert device.log.count("kernel") == TRIES


def test_who_is_always_late_has_one_try_a_sample(clock: EventClock, device: StandIn) -> None:
    """Four times the time of the device for the same figure. Who is in time again has all of his tries again."""
    waits = True

    def sometimes_waiting() -> None:
        if waits:
            device.synchronize()
        device.kernel()

    calls = [sometimes_waiting]
    clock.time(calls, 0, 1)
    for _ in range(3):
        device.log.clear()
        clock.time(calls, 0, 1)
        assert device.log.count("kernel") == 1
    waits = False
    clock.time(calls, 0, 1)
    device.log.clear()
    waits = True
    clock.time(calls, 0, 1)
    assert device.log.count("kernel") == TRIES


@pytest.mark.parametrize("launches", [50, 300, 1000])
def test_a_model_of_many_launches_is_device_time_too(clock: EventClock, device: StandIn, launches: int) -> None:
    """The host takes some milliseconds, longer than the device: a lead of one would leave the rest in it."""
    on_device = 2e-6

    def model() -> None:
        for _ in range(launches):
            device.submit("part", on_device)

    calls = [model]
    for _ in range(3):
        timing = clock.time(calls, 0, 1)
    assert timing.seconds == pytest.approx(launches * on_device * timing.launches)
