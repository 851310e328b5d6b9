"""The limit at the clock that a GPU showed (D5; statistics.md 13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.judgement import judge
from groundspeed.judge.limits import PEAKS
from groundspeed.judge.observed import PER_CYCLE, Observed
from records import on_gpu, run

BOOST = {
    "NVIDIA A100-SXM4-80GB": ("8.0", 108, 1410, 1410),
    "NVIDIA A10": ("8.6", 72, 1695, 1695),
    "NVIDIA L4": ("8.9", 58, 2040, 2040),
    "NVIDIA H100 80GB HBM3": ("9.0", 132, 1830, 1980),
    "NVIDIA H200": ("9.0", 132, 1830, 1980),
}
"""Capability, multiprocessors, and the boost clocks in MHz that NVIDIA states for tensor cores and for the others."""


@pytest.mark.parametrize("name", BOOST)
def test_at_the_boost_clock_it_is_the_datasheets(name: str) -> None:
    capability, multiprocessors, tensor_mhz, other_mhz = BOOST[name]
    peaks = next(peaks for peaks in PEAKS if name in peaks.names)
    for dtype, rate in peaks.flops.items():
        clock = other_mhz if dtype == "fp32" else tensor_mhz
        assert multiprocessors * PER_CYCLE[capability][dtype] * clock * 1e6 == pytest.approx(rate, rel=0.02)


def at(clock: float, ours_s: float, **gpu: Any) -> Record:
    """A run of two cases on an H200 that says it ran at this clock."""
    record = on_gpu(run({"base": 1e-3, "ours": ours_s}), "NVIDIA H200")
    environment = {
        **record.environment,
        "gpu": {"name": "NVIDIA H200", "compute_capability": "9.0", **gpu},
        "worker": {"multiprocessors": 132},
    }
    clocks = np.full(len(record.samples["process"]), clock, np.float32)
    return replace(record, environment=environment, samples={**record.samples, "sm_clock_mhz": clocks})


def status(record: Record) -> tuple[str, str | None]:
    result = judge(record).cases[0].result("ours")
    return result.status, result.reason


def limit_s(clock: float) -> float:
    record = at(clock, 1e-3)
    found = Observed(record, judge(record).peaks).limit_at(record.cases[0], clock)
    assert found is not None
    return found.seconds


def compute_bound(record: Record) -> Record:
    """With so much arithmetic that memory does not matter."""
    return replace(record, cases=tuple(replace(case, flops=10**12, bytes=1) for case in record.cases))


def test_a_lower_clock_is_a_higher_limit() -> None:
    """What the datasheet would allow, a GPU at half of its clock cannot have done."""
    seconds = 1.3 * 10**12 / 494.7e12  # fp32 by way of TF32, at 1830 MHz
    assert status(compute_bound(at(1830, seconds)))[0] == "PASSED"
    found, reason = status(compute_bound(at(915, seconds)))
    assert found == "INVALID"
    assert reason is not None
    assert "at 915 MHz, the clock that it showed" in reason


def test_a_higher_one_is_a_lower_limit() -> None:
    """A cool GPU runs above the clock of its datasheet, and may be faster than it says."""
    seconds = 0.96 * 10**12 / 494.7e12
    assert status(compute_bound(at(1980, seconds)))[0] == "PASSED"
    assert status(compute_bound(at(np.nan, seconds)))[0] == "INVALID"


def test_a_clock_that_the_device_does_not_have_gains_nothing() -> None:
    seconds = 0.9 * 10**12 / 494.7e12
    assert status(compute_bound(at(9999, seconds)))[0] == "PASSED"
    assert status(compute_bound(at(9999, seconds, max_sm_clock_mhz=1980)))[0] == "INVALID"


@pytest.mark.parametrize(("apart", "expected"), [(0, "PASSED"), (1, "PASSED"), (2, "INVALID")])
def test_readings_of_the_neighbours_count_too(apart: int, expected: str) -> None:
    """They are beside the samples, not in them: one that was a little early or late refuses nobody."""
    record = compute_bound(at(1830, 1e-2))
    columns = record.samples
    mine = (columns["contender"] == 1) & (columns["case"] == 0) & (columns["phase"] == TIMED)
    fast = np.flatnonzero(mine)[len(columns["block"][mine]) // 2]
    seconds, clocks = columns["seconds"].copy(), np.full(len(columns["start"]), 915, np.float32)
    seconds[fast] = 1.3 * 10**12 / 494.7e12
    clocks[fast + apart] = 1830
    assert status(replace(record, samples={**columns, "seconds": seconds, "sm_clock_mhz": clocks}))[0] == expected


def test_bandwidth_is_the_datasheets_at_any_clock() -> None:
    assert limit_s(1400) == limit_s(1980) > 0


@pytest.mark.parametrize("changes", [{"compute_capability": "99.0"}, {"compute_capability": None}])
def test_a_device_that_is_not_known_has_the_datasheets(changes: dict[str, Any]) -> None:
    seconds = 1.3 * 10**12 / 494.7e12
    assert status(compute_bound(at(915, seconds, **changes)))[0] == "PASSED"


@pytest.mark.parametrize("multiprocessors", [None, 0, -1, "132", True])
def test_nor_has_one_whose_size_is_not_told(multiprocessors: Any) -> None:
    record = compute_bound(at(915, 1.3 * 10**12 / 494.7e12))
    environment = {**record.environment, "worker": {"multiprocessors": multiprocessors}}
    assert status(replace(record, environment=environment))[0] == "PASSED"
