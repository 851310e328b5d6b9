"""Where work stands under measured roofs and the datasheet's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groundspeed.evidence.calibration import Calibration, Roof
from groundspeed.judge.judgement import Judgement, judge
from groundspeed.judge.roofline import Roofs, intensity, roofs_of, share
from records import MEANS, on_gpu, run

COPY, MATMUL = 4e12, 8e14


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    """On an H200 whose roofs were measured, for BF16 only."""
    roofs = (Roof("matmul", "bf16", MATMUL / 2, "small"), Roof("matmul", "bf16", MATMUL, "large"))
    calibration = Calibration("a" * 64, "today", 4, (), (*roofs, Roof("copy", "fp32", COPY, "copy")))
    record = on_gpu(run(MEANS), "NVIDIA H200")
    return judge(replace(record, calibration=calibration, uncalibrated=None))


def test_the_best_that_was_measured_comes_before_the_datasheet(judgement: Judgement) -> None:
    measured, datasheet = roofs_of(judgement, "bf16")
    assert (measured.origin, measured.flops, measured.bandwidth) == ("measured", MATMUL, COPY)
    assert (datasheet.origin, datasheet.flops, datasheet.bandwidth) == ("datasheet", 989.4e12, 4.8e12)
    assert [roofs.origin for roofs in roofs_of(judgement, "fp32")] == ["datasheet"]
    assert roofs_of(judgement, "nosuch") == ()


def test_memory_binds_left_of_the_ridge_and_arithmetic_right_of_it() -> None:
    roofs = Roofs("measured", MATMUL, COPY)
    assert roofs.ridge == 200
    assert [roofs.bound(x) for x in (199, 200, 201)] == ["memory", "compute", "compute"]
    assert [roofs.allow(x) for x in (100, 200, 400)] == [MATMUL / 2, MATMUL, MATMUL]


def test_a_share_is_of_what_the_roofs_allow_at_that_intensity(judgement: Judgement) -> None:
    case = judgement.cases[0]
    result = case.results[0]
    assert result.rates is not None
    x = intensity(case.facts)
    assert x is not None
    (roofs,) = (r for r in roofs_of(judgement, str(case.facts.params["dtype"])) if r.origin == "datasheet")
    assert share(judgement, case, result) == pytest.approx(result.rates.flops / roofs.allow(x))
    assert share(judgement, replace(case, l2_resident=True), result) is None, "the cache has no roof here"
    assert share(judgement, case, replace(result, rates=None)) is None
    assert intensity(replace(case.facts, bytes=0)) is None
