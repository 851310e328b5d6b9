"""The limits of a device: FLOPs over its peak rate and bytes over its peak bandwidth.

Peaks are datasheet figures, dense (no structured sparsity) and at the boost clock, each with its source. A device that
is not in the table has no limit, and no share of peak is printed for it. CPUs are not in the table: they are only
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.protocol import BEFORE_THIRD
from groundspeed.evidence.record import CaseFacts, Record

TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True)
class Peaks:
    names: tuple[str, ...]
    """Exactly as NVML reports them: an A10G is not an A10, and an H200 NVL is not an H200."""
    flops: Mapping[str, float]
    """Dense FLOP/s by operand dtype, with FP32 accumulation unless `source` says otherwise."""
    bandwidth: float
    source: str

    def ceiling(self, dtype: str) -> float | None:
        """Return the rate that no arithmetic on `dtype` exceeds. FP32 work may be split over TF32 tensor cores."""
        rates = [self.flops[key] for key in (dtype, "tf32" if dtype == "fp32" else dtype) if key in self.flops]
        return max(rates, default=None)


def _peaks(*names: str, tflops: dict[str, float], gb_s: float, source: str) -> Peaks:
    return Peaks(names, {key: value * TERA for key, value in tflops.items()}, gb_s * GIGA, source)


PEAKS: tuple[Peaks, ...] = (
    _peaks(
        "NVIDIA H100 80GB HBM3",
        tflops={"fp16": 989.4, "bf16": 989.4, "tf32": 494.7, "fp32": 66.9, "fp8": 1978.9},
        gb_s=3352,
        source="NVIDIA H100 Tensor Core GPU Architecture whitepaper, table of H100 SXM5 (dense)",
    ),
    _peaks(
        "NVIDIA H100 PCIe",
        tflops={"fp16": 756, "bf16": 756, "tf32": 378, "fp32": 51.2, "fp8": 1513},
        gb_s=2039,
        source="NVIDIA H100 PCIe product brief PB-11133 and H100 architecture whitepaper (dense)",
    ),
    _peaks(
        "NVIDIA H200",
        tflops={"fp16": 989.4, "bf16": 989.4, "tf32": 494.7, "fp32": 66.9, "fp8": 1978.9},
        gb_s=4800,
        source="NVIDIA H200 Tensor Core GPU datasheet (SXM; its figures with sparsity, halved)",
    ),
    _peaks(
        "NVIDIA B200",
        tflops={"fp16": 2250, "bf16": 2250, "tf32": 1125, "fp32": 75, "fp8": 4500},
        gb_s=8000,
        source="NVIDIA HGX B200 datasheet, an eighth of the board (its figures with sparsity, halved)",
    ),
    _peaks(
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-PCIE-40GB",
        tflops={"fp16": 312, "bf16": 312, "tf32": 156, "fp32": 19.5},
        gb_s=1555,
        source="NVIDIA A100 Tensor Core GPU datasheet, 40 GB (dense)",
    ),
    _peaks(
        "NVIDIA A100-SXM4-80GB",
        tflops={"fp16": 312, "bf16": 312, "tf32": 156, "fp32": 19.5},
        gb_s=2039,
        source="NVIDIA A100 Tensor Core GPU datasheet, 80 GB SXM (dense)",
    ),
    _peaks(
        "NVIDIA A100 80GB PCIe",
        tflops={"fp16": 312, "bf16": 312, "tf32": 156, "fp32": 19.5},
        gb_s=1935,
        source="NVIDIA A100 Tensor Core GPU datasheet, 80 GB PCIe (dense)",
    ),
    _peaks(
        "NVIDIA A10",
        tflops={"fp16": 125, "bf16": 125, "tf32": 62.5, "fp32": 31.2},
        gb_s=600,
        source="NVIDIA A10 Tensor Core GPU datasheet (dense)",
    ),
    _peaks(
        "NVIDIA L4",
        tflops={"fp16": 121, "bf16": 121, "tf32": 60, "fp32": 30.3, "fp8": 242.5},
        gb_s=300,
        source="NVIDIA L4 Tensor Core GPU datasheet (its figures with sparsity, halved)",
    ),
    _peaks(
        "NVIDIA L40S",
        tflops={"fp16": 362.05, "bf16": 362.05, "tf32": 183, "fp32": 91.6, "fp8": 733},
        gb_s=864,
        source="NVIDIA L40S datasheet (dense)",
    ),
    _peaks(
        "NVIDIA GeForce RTX 4090",
        tflops={"fp16": 330.3, "bf16": 165.2, "tf32": 82.6, "fp32": 82.6, "fp8": 660.6},
        gb_s=1008,
        source="NVIDIA Ada GPU Architecture whitepaper, RTX 4090 (dense; FP16 and FP8 with FP16 accumulation)",
    ),
    _peaks(
        "Tesla T4",
        tflops={"fp16": 65, "fp32": 8.1},
        gb_s=320,
        source="NVIDIA T4 Tensor Core GPU datasheet",
    ),
)


def peaks_of(environment: Mapping[str, Any], device: str) -> Peaks | None:
    """Return the peaks of the device that a record was measured on, or None if it is not in the table."""
    if device != "cuda":
        return None
    gpu = environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, Mapping) else None
    return next((peaks for peaks in PEAKS if name in peaks.names), None)


@dataclass(frozen=True)
class Cache:
    """How much the GPU's L2 cache may have helped on a case."""

    served_bytes: int
    """The most that one call can have read from the cache."""
    resident: bool
    """Whether all sets of inputs fit in the cache together and nothing flushed it."""


def cache_of(record: Record, case: CaseFacts) -> Cache:
    """Return how much the L2 cache may have helped on a case: not at all if it was flushed before each call, as the
    default clock does. Before the third protocol, that clock flushed only before the first call of an interval."""
    worker = record.environment.get("worker")
    size = worker.get("l2_bytes") if isinstance(worker, Mapping) else None
    if record.run.device != "cuda" or not isinstance(size, int) or size < 0:
        return Cache(0, False)
    flushed = case.params.get("clock", DEFAULT_CLOCK) == DEFAULT_CLOCK
    columns = record.samples
    once = record.protocol.name in BEFORE_THIRD
    batched = once and bool((columns["launches"][columns["case"] == record.case_index[case.name]] > 1).any())
    resident = not flushed and 0 < case.bytes * record.protocol.input_sets <= size
    return Cache(0 if flushed and not batched else size, resident)


@dataclass(frozen=True)
class Limit:
    """The least time that some work can take, and the resource that sets it."""

    seconds: float
    bound: Literal["compute", "bandwidth"]


def limit(peaks: Peaks | None, flops: int, bytes_moved: int, dtype: str) -> Limit | None:
    """Return the limit, or None if the device is not in the table or the work has no counts."""
    ceiling = peaks.ceiling(dtype) if peaks else None
    if peaks is None or ceiling is None or not (flops or bytes_moved):
        return None
    compute, memory = flops / ceiling, bytes_moved / peaks.bandwidth
    return Limit(max(compute, memory), "compute" if compute >= memory else "bandwidth")
