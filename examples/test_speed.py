"""A speed that a test suite requires, by groundspeed's pytest plugin.

pip install pytest   # into the same environment as groundspeed
pytest examples/test_speed.py
pytest examples/test_speed.py --groundspeed-preset standard -v
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from groundspeed.pytest_plugin import Measure


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """All scores at once"""
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's fused attention"""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def inputs() -> tuple[Tensor, ...]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return tuple(torch.randn(1, 4, 512, 64, device=device) for _ in "qkv")


def test_fused_attention_is_worth_it(groundspeed: Measure) -> None:
    run = groundspeed.compare(
        {"fused": fused, "written-out": written_out}, inputs=inputs, baseline="written-out", require=1.1
    )
    assert run["fused"].status == "PASSED"
