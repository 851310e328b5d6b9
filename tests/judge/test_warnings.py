"""Disturbances: a closed list, each with its remedy (A7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groundspeed.evidence.launched import Launched
from groundspeed.evidence.record import Record
from groundspeed.judge.warnings import Disturbance, calibrate_command, environment_warnings, warnings_of
from records import MEANS, on_gpu, run


@pytest.fixture(scope="module")
def record() -> Record:
    return run()


def codes(record: Record) -> list[str]:
    return [warning.code for warning in told(record)]


def told(record: Record) -> list[Disturbance]:
    """But for what is told of every run without a calibration."""
    return [warning for warning in warnings_of(record) if warning.code != "uncalibrated"]


def test_d2_assumed_noise_is_told(record: Record) -> None:
    (warning,) = [w for w in warnings_of(record) if w.code == "uncalibrated"]
    assert "assumed, not measured" in warning.message
    assert warning.remedy == "run groundspeed calibrate --preset quick"


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"preset": "standard", "processes": 8}, ""),
        ({"preset": "standard", "processes": 4}, " --processes 4"),
        ({"preset": "paper", "processes": 12, "isolated": True}, " --preset paper --isolate"),
    ],
)
def test_the_command_that_calibrates_has_no_flag_that_says_nothing(
    record: Record, changes: dict[str, Any], flags: str
) -> None:
    protocol = replace(record.protocol, **changes)
    assert calibrate_command(protocol, "cpu", {"gpu": None}) == f"groundspeed calibrate{flags}"
    there = {"gpu": {"name": "NVIDIA H200"}}
    assert calibrate_command(protocol, "cpu", there) == f"groundspeed calibrate{flags} --device cpu"
    assert calibrate_command(protocol, "cuda", there) == f"groundspeed calibrate{flags}"


def test_of_one_process_no_calibration_is_asked_for(record: Record) -> None:
    """It has no verdict; and none can be made for it."""
    alone = replace(record, protocol=replace(record.protocol, processes=1))
    assert not [w for w in warnings_of(alone) if w.code == "uncalibrated"]


GIB = 1 << 30
QUIET: dict[str, Any] = {
    "cpu": {"name": "x", "cores": 8, "governor": "performance", "load_1min": 0.1, "on_battery": False},
    "memory": {"total_bytes": 64 * GIB, "available_bytes": 60 * GIB, "swap_used_bytes": 0},
}


@pytest.mark.parametrize(
    ("part", "change", "code", "said"),
    [
        ("cpu", {"governor": "powersave"}, "governor", "powersave"),
        ("cpu", {"load_1min": 6.1}, "busy", "load 6.1 on 8 cores"),
        ("cpu", {"load_1min": 6.1, "busy_share": 0.7}, "busy", "load 6.1 on 8 cores"),
        ("cpu", {"cores": 1}, "one-core", "one core"),
        ("cpu", {"on_battery": True}, "battery", "battery"),
        ("memory", {"available_bytes": 6 * GIB}, "memory", "tenth of the host memory"),
        ("memory", {"swap_used_bytes": 3 * GIB}, "swap", "3.0 GiB of swap"),
    ],
)
def test_each_disturbance_of_the_machine(part: str, change: dict[str, Any], code: str, said: str) -> None:
    assert list(environment_warnings(QUIET)) == []
    (warning,) = environment_warnings({**QUIET, part: {**QUIET[part], **change}})
    assert warning.code == code
    assert said in warning.message
    assert warning.remedy


@pytest.mark.parametrize(
    "change",
    [
        {"load_1min": 4.0},
        {"load_1min": 9.0, "busy_share": 0.1},  # of an installation that has just ended
        {"governor": None},
        {"on_battery": None},
        {"cores": None},
    ],
)
def test_what_is_not_known_or_not_too_much_is_no_warning(change: dict[str, Any]) -> None:
    assert list(environment_warnings({**QUIET, "cpu": {**QUIET["cpu"], **change}})) == []


@pytest.mark.parametrize("environment", [{}, {"cpu": None, "memory": []}, {"cpu": {"load_1min": "9", "cores": "x"}}])
def test_a_foreign_environment_does_no_harm(environment: dict[str, Any]) -> None:
    assert list(environment_warnings(environment)) == []


def test_a_quiet_run_has_no_warning(record: Record) -> None:
    assert codes(replace(record, environment=QUIET)) == []


def test_the_machine_is_part_of_a_run(record: Record) -> None:
    battery = {**QUIET, "cpu": {**QUIET["cpu"], "on_battery": True}}
    assert codes(replace(record, environment=battery)) == ["battery"]


def test_an_unsettled_warm_up_is_named(record: Record) -> None:
    """statistics.md 3: the warm-up ends when it is stable, and the record says where it was not."""
    unsettled = tuple(replace(o, warmup_stable=o.contender != "ours") for o in record.outcomes)
    (warning,) = told(replace(record, outcomes=unsettled))
    assert warning.code == "warm-up"
    assert f"ours on {record.outcomes[0].case} and 7 more" in warning.message
    (one,) = told(replace(record, outcomes=(unsettled[1],), stops=()))
    assert "more" not in one.message


def test_a_failed_contender_has_no_unsettled_warm_up(record: Record) -> None:
    failed = tuple(replace(o, warmup_stable=False, status="ERROR", reason="it broke") for o in record.outcomes)
    assert "warm-up" not in codes(replace(record, outcomes=failed))


def test_a_stop_at_the_budget_is_told() -> None:
    wild = run(MEANS, budget_s=0.4, half_width=1e-6)
    (warning,) = told(wild)
    assert warning.code == "budget"
    assert f"of {len(wild.stops)} measurements" in warning.message


def test_an_interrupted_run_is_told() -> None:
    (warning,) = told(run(finished=3))
    assert warning.code == "incomplete"
    assert "after 3 of 4 processes" in warning.message
    assert "--resume" in warning.remedy


def test_d9_kernels_that_nobody_saw_are_told(record: Record) -> None:
    """A contender whose kernels are unknown passes the check of their names: then the report says that they are."""
    case = record.cases[0].name
    seen = tuple(Launched(case, name, ("a_kernel",), (), ()) for name in MEANS)
    unseen = tuple(replace(one, kernels=() if one.contender == "ours" else one.kernels) for one in seen)
    gpu = on_gpu(record, "NVIDIA H200")
    assert "unseen" not in codes(replace(gpu, launched=seen))
    (warning,) = [w for w in warnings_of(replace(gpu, launched=unseen)) if w.code == "unseen"]
    assert "what ours launched" in warning.message
    assert "unseen" in codes(gpu)
    assert "unseen" not in codes(record)
