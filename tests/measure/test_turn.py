"""Work in its turn: neither before its inputs are there nor after its end, whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from stand_in_device import StandIn

from groundspeed.measure import cuda, gate, toll
from groundspeed.measure.clock import HostClock
from groundspeed.measure.cuda import EventClock
from groundspeed.measure.inputs import Inputs
from groundspeed.measure.turn import EARLY, KEPT, LATE, Turn
from groundspeed.suites.attention import cases


def attention(inputs: Any) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(*inputs)


class Interval:
    """One of a GPU with several streams: what is done while it is kept busy, in the interval, and afterwards."""

    def __init__(self) -> None:
        case = cases.shape_cases("B=1,H=2,S=16,D=8,causal=0", ("fp32",))[0]
        self.inputs = Inputs.make(case, (1, 2), "cpu")
        self.used = (0, 1, 0)
        self.turn = Turn(case, self.inputs, [self.used], lambda: True)
        self.output = torch.full(case.output_shape, float("nan"))

    def work(self) -> None:
        self.output.copy_(attention(self.inputs.of(self.used)))

    def time(self, *, before: Callable[[], Any] = int, inside: Callable[[], Any] = int, after: Any = int) -> None:
        self.turn.lead(before)
        inside()
        self.turn.look(self.output)
        after()

    def errors(self) -> gate.Errors:
        return self.turn.errors(self.used, self.output, "")


@pytest.fixture
def interval() -> Interval:
    return Interval()


def test_whoever_works_in_the_interval_is_right(interval: Interval) -> None:
    interval.time(inside=interval.work)
    assert interval.errors()["max_abs"] < 1e-5


def test_whoever_works_before_it_has_not_got_its_inputs(interval: Interval) -> None:
    interval.time(before=interval.work)
    with pytest.raises(gate.Incorrect, match=EARLY):
        interval.errors()


def test_whoever_works_after_it_is_too_late(interval: Interval) -> None:
    interval.time(after=interval.work)
    with pytest.raises(gate.Incorrect, match=LATE):
        interval.errors()


def test_a_result_kept_from_a_try_that_was_repeated_is_wrong(interval: Interval) -> None:
    """A clock repeats its launches if the device caught up with the host, which a contender can bring about."""
    interval.time(inside=interval.work)
    kept = interval.output.clone()
    interval.time(inside=lambda: interval.output.copy_(kept))
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        interval.errors()


@pytest.mark.parametrize("kept", [True, False])
def test_a_wrong_result_that_comes_again_for_other_inputs_is_named(interval: Interval, kept: bool) -> None:
    wrong = torch.randn_like(interval.output)
    interval.time(inside=lambda: interval.output.copy_(wrong))
    with pytest.raises(gate.Incorrect, match="over the tolerance") as raised:
        interval.turn.errors(interval.used, interval.output, "", lambda: wrong if kept else torch.randn_like(wrong))
    assert (KEPT in str(raised.value)) == kept


def test_what_is_wrong_otherwise_says_so(interval: Interval) -> None:
    interval.time(inside=interval.output.zero_)
    with pytest.raises(gate.Incorrect, match="over the tolerance"):
        interval.errors()


def test_what_is_held_back_is_given_unchanged(interval: Interval) -> None:
    inputs = interval.inputs
    before, versions = [t.clone() for one in inputs.sets for t in one], [t._version for one in inputs.sets for t in one]
    seen: list[list[bool]] = []

    def look() -> None:
        now = (t for one in inputs.sets for t in one)
        seen.append([torch.equal(a, b) for a, b in zip(now, before, strict=True)])

    interval.turn.lead(look)
    assert seen[0].count(False) == 1
    assert not seen[0][3 * interval.used[interval.turn.place] + interval.turn.place]
    assert all(torch.equal(now, then) for now, then in zip((t for o in inputs.sets for t in o), before, strict=True))
    assert [t._version for one in inputs.sets for t in one] == versions
    inputs.check_all()


def test_the_toll_of_a_repeated_try_has_its_renewal_once_and_what_is_held_back_twice(
    interval: Interval, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given again is not waited for, and takes as long."""
    now = 0.0

    def takes(seconds: float) -> Callable[..., None]:
        def passes(*_: Any) -> None:
            nonlocal now
            now += seconds

        return passes

    monkeypatch.setattr(toll, "perf_counter", lambda: now)
    monkeypatch.setattr(interval.inputs, "renew", takes(100.0))
    monkeypatch.setattr(interval.inputs, "hold_back", takes(1.0))
    interval.time()
    assert interval.turn.toll.tell() == 2.0
    interval.time()
    assert interval.turn.toll.tell() == 202.0  # two sets


def test_nothing_is_looked_at_where_the_draw_says_so(interval: Interval) -> None:
    interval.turn.draw = lambda: False
    interval.time(inside=interval.work)
    assert interval.turn.output is None
    assert not interval.turn.check


class Log:
    def __init__(self, device: StandIn) -> None:
        self.device = device

    def lead(self, busy: Callable[[], Any]) -> None:
        self.device.submit("held back", 1e-6)
        busy()
        self.device.submit("given", 1e-6)

    def look(self, output: Any) -> None:
        self.device.submit("looked", 1e-6)


def test_a_clock_of_events_has_it_around_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    device = StandIn()
    monkeypatch.setattr(cuda, "perf_counter", lambda: device.now)
    clock = EventClock(cold=True, device=device)  # type: ignore[arg-type]
    device.log.clear()
    clock.time([device.kernel], 0, 1, Log(device))
    assert device.log == ["held back", "sleep", "given", "flush", "kernel", "looked"]


def test_a_clock_of_the_host_looks_when_it_has_ended() -> None:
    device = StandIn()
    HostClock().time([device.kernel], 0, 1, Log(device))
    assert device.log == ["kernel", "looked"]
