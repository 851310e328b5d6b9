"""A4, A8: gaps, shares, top kernels, the roofline point and counters, from the facts of a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groundspeed.evidence.profile import Counted, Event
from groundspeed.judge.counters import readings_of
from groundspeed.judge.profile import idle, own_seconds, picture
from profiles import KERNEL, METRICS, gpu_profile


def event(start: float, seconds: float, name: str = "a", lane: int = 0, call: int = 0) -> Event:
    return Event("mine", call, "operator", name, start, seconds, lane, None, None, None, None, None)


def test_a_call_on_a_gpu_by_its_parts() -> None:
    look = picture(gpu_profile()).looks[0]
    assert look.call_s == pytest.approx(252e-6)
    assert look.span_s == pytest.approx(216e-6)
    assert look.before_s == pytest.approx(20e-6)
    assert look.gaps is not None
    assert (look.gaps.number, look.gaps.seconds, look.gaps.longest_s) == pytest.approx((2, 6e-6, 4e-6))
    assert look.gaps.share == pytest.approx(6 / 216)
    assert look.copy_share == pytest.approx(6 / 210)
    assert [(top.kind, top.times) for top in look.tops] == [("kernel", 1), ("copy", 1), ("kernel", 1)]
    assert look.tops[0].name == KERNEL
    assert look.tops[0].share == pytest.approx(200 / 210)
    assert sum(top.share for top in look.tops) == pytest.approx(1)


def test_streams_that_overlap_leave_no_gap() -> None:
    assert idle([event(0, 5, lane=0), event(3, 7, lane=1), event(12, 1)]) == [2]
    assert idle([event(0, 9), event(1, 2), event(9, 1)]) == []
    assert idle([]) == []


def test_an_operator_has_its_own_time_without_that_of_those_inside() -> None:
    events = [event(0, 10, "outer"), event(1, 4, "inner"), event(2, 1, "leaf"), event(6, 2, "inner")]
    assert own_seconds(events) == pytest.approx([4, 3, 1, 2])
    assert own_seconds([event(0, 10), event(1, 4, lane=1), event(2, 3, call=1)]) == [10, 4, 3], "of others' threads"


def test_the_point_is_the_work_over_the_time_on_the_device() -> None:
    profile = gpu_profile()
    point = picture(profile).looks[0].point
    assert point is not None
    assert point.flops == pytest.approx(profile.case.flops / 216e-6)
    assert point.bound == "compute"
    assert point.share == pytest.approx(point.flops / 989.4e12)
    unknown = picture(replace(profile, environment={"gpu": {"name": "NVIDIA H300"}})).looks[0].point
    assert unknown is not None
    assert (unknown.roofs, unknown.share, unknown.bound) == ((), None, None)


def test_more_than_the_device_can_do_is_no_record() -> None:
    profile = gpu_profile()
    point = picture(profile).looks[0].point
    assert point is not None
    assert not point.impossible
    faster = tuple(replace(event, start_s=event.start_s / 4, seconds=event.seconds / 4) for event in profile.events)
    point = picture(replace(profile, events=faster)).looks[0].point
    assert point is not None
    assert point.impossible


def test_who_did_not_pass_has_nothing() -> None:
    look = picture(gpu_profile()).looks[1]
    assert (look.call_s, look.span_s, look.gaps, look.point, look.tops, look.timeline) == (None,) * 4 + ((), ())


def test_counters_by_their_meaning() -> None:
    (reading,) = picture(gpu_profile()).looks[0].readings
    assert reading.spills == 0
    assert (reading.sm, reading.tensor, reading.dram, reading.l2, reading.l2_hits) == pytest.approx(
        (0.7125, 0.685, 0.125, 0.31, 0.8475)
    )
    assert (reading.achieved, reading.possible) == pytest.approx((0.182, 0.1875))
    assert (reading.registers, reading.shared_bytes, reading.seconds) == (168, 199_680, pytest.approx(58.4e-6))
    assert [(stall.why, stall.warps) for stall in reading.stalls] == [
        ("gmma", 2.13),
        ("barrier", 0.9),
        ("long scoreboard", 0.41),
    ], "neither warps that issue, nor what was not told, nor the same twice"


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor"),
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram"),
        ("lts__t_sector_hit_rate.pct", "l2_hits"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "achieved"),
        ("sm__maximum_warps_per_active_cycle_pct", "possible"),
        ("launch__registers_per_thread", "registers"),
        ("launch__shared_mem_per_block_dynamic", "shared_bytes"),
        ("gpu__time_duration.sum", "seconds"),
    ],
)
def test_a_metric_that_was_not_told_is_not_known_and_not_zero(metric: str, field: str) -> None:
    assert metric in METRICS
    (one,) = gpu_profile().counted
    without = Counted(one.contender, one.kernel, {k: v for k, v in one.metrics.items() if k != metric})
    assert getattr(readings_of([one])[0], field) is not None
    assert getattr(readings_of([without])[0], field) is None
    assert (
        getattr(readings_of([one, without])[0], field) is None if field not in ("registers", "shared_bytes") else True
    )


def test_a_chip_with_another_name_for_the_tensor_pipe_has_one_too() -> None:
    old = Counted("a", "k", {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": 40.0})
    assert readings_of([old])[0].tensor == pytest.approx(0.4)
    instructions = Counted("a", "k", {"sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active": 2.9})
    assert readings_of([instructions])[0].tensor is None, "how many instructions it was given is not how busy it is"


def test_launches_of_a_kernel_are_weighed_by_their_time() -> None:
    sm, time = "sm__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__time_duration.sum"
    launches = [Counted("a", "k", {sm: 10.0, time: 100.0}), Counted("a", "k", {sm: 40.0, time: 300.0})]
    (reading,) = readings_of([*launches, Counted("a", "short", {})][:2])
    assert (reading.launches, reading.sm, reading.seconds) == (2, pytest.approx(0.325), pytest.approx(400e-9))
