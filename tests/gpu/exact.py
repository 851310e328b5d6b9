"""What attention on the device is held against: FP64, outputs poisoned before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import groundspeed as gs
from groundspeed.kernels.attention.reference import TOLERANCE

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def random(*shape: int, dtype: str) -> Any:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])


def oracle(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Any = None,
) -> tuple[Any, Any]:
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1).double() for t in (k, v))
    scores = q.double() @ k.transpose(-2, -1) * scale
    scores = softcap * (scores / softcap).tanh() if softcap else scores
    M, N = scores.shape[-2:]
    distance = torch.arange(N, device="cuda")[None, :] - torch.arange(M, device="cuda")[:, None] - (N - M)
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = ((distance > right) & (right >= 0)) | ((-distance > left) & (left >= 0))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)], dim=-1)
    return torch.nan_to_num(scores.softmax(dim=-1))[..., :N] @ v, scores.logsumexp(dim=-1)


def poison(*shape: int, dtype: str) -> None:
    """Freed memory of the output's size full of NaN, so that an element never written shows."""
    blocks = [torch.full(shape, float("nan"), device="cuda", dtype=DTYPES[dtype]) for _ in range(3)]
    del blocks


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
    assert (lse[seen].double() - expected_lse[seen]).abs().max() <= 1e-4
    assert torch.all(out[~seen] == 0)
