"""What attention on the device is held against: FP64, outputs poisoned before; and what a call allocates."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

import groundspeed as gs
from attention_oracle import oracle
from groundspeed.kernels.attention.reference import TOLERANCE

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def random(*shape: int, dtype: str) -> Any:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])


def poison(*shape: int, dtype: str) -> None:
    """Freed memory of the output's size full of NaN, so that an element never written shows."""
    blocks = [torch.full(shape, float("nan"), device="cuda", dtype=DTYPES[dtype]) for _ in range(3)]
    del blocks


def allocated_by(call: Callable[[], Any]) -> int:
    """Bytes that are there at once at most, as they were asked for: blocks that are found again may be a MiB larger."""
    call()
    gc.collect()  # what goes away in between would count as gain
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    call()
    most: int = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return most - before


def portable(q: Any, k: Any, v: Any, **asked: Any) -> Any:
    return gs.attention(q, k, v, return_lse=True, impl="triton", **asked)


def assert_right(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    dtype: str,
    scale: float | None = None,
    forward: Callable[..., Any] = portable,
    **form: Any,
) -> None:
    poison(*q.shape, dtype=dtype)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, lse = forward(q, k, v, causal=causal, scale=scale, **form)
    expected, expected_lse = oracle(q, k, v, causal, scale, **form)
    error = (out.double() - expected).abs()
    assert error.max() <= TOLERANCE[dtype].max_abs
    assert error.square().mean().sqrt() <= TOLERANCE[dtype].rms_rel * expected.square().mean().sqrt() + 1e-12
    seen = expected_lse > float("-inf")
    assert torch.equal(lse > float("-inf"), seen)
    assert torch.all((lse[seen].double() - expected_lse[seen]).abs() <= 1e-4)  # of none, where no row sees a key
    assert torch.all(out[~seen] == 0)
