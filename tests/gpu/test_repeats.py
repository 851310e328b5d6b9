"""The same bits a thousand times: a race that shows once in a hundred calls shows here. Every kernel of attention, and
every form that has code of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exact import random

import groundspeed as gs
from groundspeed.kernels.attention import few, relay

REPEATS = 1000
SHORT, LONG = (4, 8, 500, 64), (2, 16, 1777, 128)
"""Batch, heads, queries, dimension."""
FORMS = {
    "short": (SHORT, {}),
    "short-causal": (SHORT, {"causal": True}),
    "turns": ((2, 16, 3000, 64), {}),
    "turns-causal": ((2, 16, 3000, 64), {"causal": True}),
    "two-consumers": (LONG, {}),
    "flat": ((4, 16, 1000, 128), {"causal": True}),
    "lazy-causal": (LONG, {"causal": True}),
    "d256": ((2, 8, 1777, 256), {"causal": True}),
    "d96": ((2, 8, 1777, 96), {}),
    "d192": ((2, 8, 1777, 192), {"causal": True}),
    "d32": ((2, 16, 3000, 32), {}),
    "window": (LONG, {"causal": True, "window_size": (300, 0)}),
    "band": (LONG, {"window_size": (300, 300)}),
    "softcap": (LONG, {"causal": True, "softcap": 30.0}),
    "pairs over two heads": ((1, 32, 4224, 128), {"causal": True}),
    "window-64": ((2, 16, 3000, 64), {"causal": True, "window_size": (300, 0)}),
}


def assert_repeats(call: Any) -> None:
    first = call()
    differ = torch.zeros(len(first), dtype=torch.int64, device="cuda")
    for _ in range(REPEATS):
        differ += torch.stack(
            [(a.view(torch.uint8) != b.view(torch.uint8)).any() for a, b in zip(call(), first, strict=True)]
        )
    assert differ.tolist() == [0] * len(first)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("form", FORMS)
def test_attention(form: str, impl: str) -> None:
    (B, H, M, D), asked = FORMS[form]
    q = random(B, H, M, D, dtype="bf16")
    k, v = (random(B, H // 2, M, D, dtype="bf16") for _ in range(2))
    assert_repeats(lambda: gs.attention(q, k, v, return_lse=True, impl=impl, **asked))


@pytest.mark.parametrize("group", [1, 8])
def test_decoding(group: int) -> None:
    q = random(2, 16, 3, 128, dtype="bf16")
    k, v = (random(2, 16 // group, 5000, 128, dtype="bf16") for _ in range(2))
    assert_repeats(lambda: gs.attention(q, k, v, causal=True, return_lse=True, impl="triton"))


@pytest.mark.parametrize("heads_last", [False, True])
def test_relay(heads_last: bool) -> None:
    q = random(1, 16, 32, 128, dtype="bf16").transpose(1, 2) if heads_last else random(1, 32, 16, 128, dtype="bf16")
    k, v = (random(1, 4, 4096, 128, dtype="bf16") for _ in range(2))
    assert few.kernel(q, k, v) is relay
    assert_repeats(lambda: gs.attention(q, k, v, causal=True, return_lse=True))


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_packed(D: int, causal: bool, impl: str) -> None:
    cu = torch.tensor([0, 1, 131, 208, 1208, 1272, 1605, 3653], dtype=torch.int32, device="cuda")
    q, k, v = (random(3653, 8, D, dtype="bf16") for _ in range(3))
    assert_repeats(lambda: gs.attention_varlen(q, k, v, cu, cu, 2048, causal=causal, return_lse=True, impl=impl))
