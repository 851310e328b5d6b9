"""Physical limits: a table with a source for every figure, exact names, and INVALID beyond it (D5)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from groundspeed.evidence.samples import TIMED
from groundspeed.judge.claims import headline
from groundspeed.judge.judgement import judge
from groundspeed.judge.limits import PEAKS, Limit, Peaks, limit, peaks_of
from records import MEANS, constant, on_gpu, run

H200 = next(peaks for peaks in PEAKS if "NVIDIA H200" in peaks.names)


def by_name(name: str) -> Peaks | None:
    return peaks_of({"gpu": {"name": name}}, "cuda")


@pytest.mark.parametrize("peaks", PEAKS, ids=lambda peaks: peaks.names[0])
class TestTable:
    def test_has_a_source(self, peaks: Peaks) -> None:
        assert "NVIDIA" in peaks.source
        assert any(word in peaks.source for word in ("datasheet", "whitepaper", "product brief"))

    def test_rates_stand_in_the_relations_of_the_hardware(self, peaks: Peaks) -> None:
        rates = peaks.flops
        assert rates["fp16"] >= rates.get("bf16", 0.0)
        assert rates["fp16"] > rates["fp32"]
        if "tf32" in rates:
            assert rates["fp32"] <= rates["tf32"] <= rates["bf16"] / 1.9
        if "fp8" in rates:
            assert rates["fp8"] == pytest.approx(2 * rates["fp16"], rel=0.02)  # half the bits, twice the rate

    def test_magnitudes_are_those_of_tera_flops_and_giga_bytes(self, peaks: Peaks) -> None:
        assert all(5e12 < rate < 1e16 for rate in peaks.flops.values())
        assert 2e11 < peaks.bandwidth < 1e13

    def test_intensity_at_which_compute_takes_over(self, peaks: Peaks) -> None:
        """A figure with sparsity, or in the wrong unit, would fall out of this range."""
        assert 100 < peaks.flops["fp16"] / peaks.bandwidth < 450


def test_no_name_stands_for_two_devices() -> None:
    names = [name for peaks in PEAKS for name in peaks.names]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "fp16", "gb_s"),
    [
        ("NVIDIA H100 80GB HBM3", 989, 3352),
        ("NVIDIA H100 PCIe", 756, 2039),
        ("NVIDIA H200", 989, 4800),
        ("NVIDIA B200", 2250, 8000),
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100-PCIE-40GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA A10", 125, 600),
        ("NVIDIA L4", 121, 300),
        ("NVIDIA L40S", 362, 864),
        ("NVIDIA GeForce RTX 4090", 330, 1008),
        ("Tesla T4", 65, 320),
    ],
)
def test_every_device_of_the_specification(name: str, fp16: float, gb_s: float) -> None:
    """Dense, not sparse; the H100, A100 and A10 figures are those of the targets' table."""
    peaks = by_name(name)
    assert peaks is not None
    assert peaks.flops["fp16"] / 1e12 == pytest.approx(fp16, abs=0.5)
    assert peaks.bandwidth / 1e9 == gb_s


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["NVIDIA A10G", "NVIDIA A100", "NVIDIA H200 NVL", "NVIDIA L40", "nvidia h200", "NVIDIA H200 ", "", "A10"],
    )
    def test_only_an_exact_name_counts(self, name: str) -> None:
        """An A10G is no A10: it has other clocks."""
        assert by_name(name) is None

    def test_a_cpu_is_measured_only(self) -> None:
        assert peaks_of({"gpu": {"name": "NVIDIA H200"}}, "cpu") is None

    @pytest.mark.parametrize("gpu", [None, "NVIDIA H200", {}, {"name": None}, {"name": ["NVIDIA H200"]}, []])
    def test_an_environment_without_a_name_has_no_peaks(self, gpu: object) -> None:
        assert peaks_of({"gpu": gpu}, "cuda") is None
        assert peaks_of({}, "cuda") is None


class TestLimit:
    def test_compute_bound_by_hand(self) -> None:
        """ref-64 on an H100: 2.749e11 FLOPs at 989.4 TFLOP/s are 0.28 ms (requirements.md)."""
        bound = limit(by_name("NVIDIA H100 80GB HBM3"), 4 * 16 * 16 * 2048 * 2048 * 64, 1 << 20, "fp16")
        assert bound == Limit(pytest.approx(0.278e-3, rel=1e-3), "compute")

    def test_bandwidth_bound_by_hand(self) -> None:
        assert limit(H200, 1, 4800 * 10**6, "bf16") == Limit(pytest.approx(1e-3), "bandwidth")

    def test_fp32_may_be_split_over_tf32_tensor_cores(self) -> None:
        bound = limit(H200, int(494.7e9), 1, "fp32")
        assert bound == Limit(pytest.approx(1e-3), "compute")

    def test_no_peak_no_limit(self) -> None:
        assert limit(None, 1, 1, "fp16") is None
        assert limit(H200, 1, 1, "int4") is None
        assert limit(by_name("Tesla T4"), 1, 1, "bf16") is None

    def test_fp32_without_tf32(self) -> None:
        assert limit(by_name("Tesla T4"), int(8.1e9), 1, "fp32") == Limit(pytest.approx(1e-3), "compute")


class TestInvalid:
    """Promise 4: a time under the floor of the hardware is an error, not a record."""

    def test_one_sample_under_the_limit_is_enough(self) -> None:
        def seconds(contender: str, case: str, block: int) -> float:
            cheating = contender == "ours" and case == "b2-s64" and block == 7
            return 10e-9 if cheating else MEANS[contender]

        record = on_gpu(run(seconds, list(MEANS)), "NVIDIA H200")
        first, second = judge(record).cases
        assert second.facts.name.startswith("b2-")
        assert second.limit is not None
        invalid = second.result("ours")
        assert invalid.status == "INVALID"
        assert invalid.reason is not None
        assert "0.01 µs" in invalid.reason
        assert f"{second.limit.seconds * 1e6:.2f} µs" in invalid.reason
        assert (invalid.latency, invalid.rates, invalid.comparison) == (None, None, None)
        assert first.result("ours").status == "PASSED"
        assert second.result("base").status == "PASSED"

    def test_at_the_limit_it_is_valid(self) -> None:
        slow = judge(on_gpu(run(), "NVIDIA H200"))
        bound = slow.cases[0].limit
        assert bound is not None
        ours = (slow.record.samples["contender"] == 1) & (slow.record.samples["case"] == 0)
        for least, status in ((bound.seconds, "PASSED"), (np.nextafter(bound.seconds, 0.0), "INVALID")):
            seconds = np.where(ours, least, slow.record.samples["seconds"])
            exact = replace(slow.record, samples={**slow.record.samples, "seconds": seconds})
            assert judge(exact).cases[0].result("ours").status == status

    def test_a_run_is_told_from_the_limit_to_the_nanosecond(self) -> None:
        """That is how times are kept: the first whole one over the limit is valid, the last one under it is not."""
        bound = judge(on_gpu(run(), "NVIDIA H200")).cases[0].limit
        assert bound is not None
        over = math.ceil(bound.seconds * 1e9)
        for nanoseconds, status in ((over, "PASSED"), (over - 1, "INVALID")):
            times = constant({"base": 1e-3, "ours": nanoseconds / 1e9})
            record = on_gpu(run(times, list(MEANS)), "NVIDIA H200")
            assert set(record.samples["seconds"][record.samples["phase"] == TIMED]) == {1e-3, nanoseconds / 1e9}
            assert judge(record).cases[0].result("ours").status == status

    def test_an_invalid_baseline_leaves_nothing_to_compare(self) -> None:
        record = on_gpu(run({"base": 1e-9, "ours": 1e-3}), "NVIDIA H200")
        judgement = judge(record)
        assert judgement.cases[0].result("ours").comparison is None
        supported, sentence = headline(judgement, judgement.grids[0])
        assert not supported
        assert "base was INVALID" in sentence

    def test_it_is_derived_and_never_stored(self) -> None:
        record = on_gpu(run({"base": 1e-3, "ours": 1e-9}), "NVIDIA H200")
        assert {o.status for o in record.outcomes} == {"PASSED"}
        assert judge(record).cases[0].result("ours").status == "INVALID"

    def test_the_same_samples_on_an_unknown_device_have_no_limit(self) -> None:
        record = run({"base": 1e-3, "ours": 1e-9})
        assert judge(record).cases[0].limit is None
        assert judge(on_gpu(record, "NVIDIA H200 NVL")).cases[0].result("ours").status == "PASSED"
