"""What the tuning tools share: calls timed in turn on a GPU, and PyTorch's backends to hold them against."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.measure.cuda import Device

BUSY_CYCLES = 1_000_000
"""Half a millisecond, in which the host is ahead with its launches."""


def rounds(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median ms of each call over rounds in which every one is timed once with a cold L2, each round in another order:
    whoever comes after a hot kernel finds a slower clock."""
    device = Device(cold=True)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        pending = []
        for name, call in random.sample(list(calls.items()), len(calls)):
            torch.cuda._sleep(BUSY_CYCLES)
            device.flush()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            pending.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in pending:
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def sdpa(backend: SDPBackend, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    def call() -> Any:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call
