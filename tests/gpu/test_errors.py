"""Errors against FP64 are no larger than FlashAttention's on the same inputs, also where numbers are not kind."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exact import DTYPES
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs
from groundspeed.kernels.attention.reference import attention

SHAPE = 2, 4, 1024
Make = Callable[..., tuple[Any, Any, Any]]


def plain(*shape: int) -> tuple[Any, Any, Any]:
    q, k, v = (torch.randn(shape, device="cuda") for _ in range(3))
    return q, k, v


def large(*shape: int) -> tuple[Any, Any, Any]:
    """Nearly all of a row's weight on one key."""
    q, k, v = plain(*shape)
    return 8 * q, 4 * k, 100 * v


def constant(*shape: int) -> tuple[Any, Any, Any]:
    q, k, v = plain(*shape)
    return torch.ones_like(q), torch.ones_like(k), torch.full_like(v, 0.7)


def growing(*shape: int) -> tuple[Any, Any, Any]:
    """Every block of keys has a larger maximum than the one before."""
    q, k, v = plain(*shape)
    along = torch.linspace(0, 2, shape[2], device="cuda")[:, None]
    return q.abs(), k.abs() * along, v


def cancelling(*shape: int) -> tuple[Any, Any, Any]:
    """Values that nearly cancel out: what is left is small beside its terms."""
    q, k, v = plain(*shape)
    signs = 1.0 - 2.0 * (torch.arange(shape[2], device="cuda") % 2)
    return 0.1 * q, 0.1 * k, 50 * signs[:, None] + v


def outliers(*shape: int) -> tuple[Any, Any, Any]:
    """A few columns, as of trained models, and a key that nearly all look at."""
    q, k, v = plain(*shape)
    for tensor in (q, k):
        tensor[..., :2] *= 20
    k[:, :, 0] *= 5
    return q, k, v


def overtaken(*shape: int) -> tuple[Any, Any, Any]:
    """Nearly all weight on one key of the first block, and on a later one that has 2 to 15 times as much."""
    q, k, v = plain(*shape)
    signs = q[:, :, :1].sign()
    q = signs * (0.25 + 0.75 * torch.rand(*shape[:3], 1, device="cuda"))
    k = -3 * signs.repeat(1, 1, shape[2], 1)
    k[:, :, 5], k[:, :, 300] = 3 * signs[:, :, 0], (3 + 3.9 * math.log(2) / shape[3] ** 0.5) * signs[:, :, 0]
    return q, k, v


KINDS: list[Make] = [plain, large, constant, growing, cancelling, outliers, overtaken]


def error(out: Any, expected: Any) -> float:
    return float((out.reshape(expected.shape).double() - expected).square().mean().sqrt())


def flash(q: Any, k: Any, v: Any, causal: bool) -> Any:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


def flash_4(q: Any, k: Any, v: Any, causal: bool) -> Any:
    from flash_attn.cute import flash_attn_func

    out = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)


@pytest.mark.filterwarnings("default")  # FlashAttention and what it is made of warn of themselves
@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128, 256])
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_errors_are_no_larger_than_flash_attentions(make: Make, D: int, causal: bool, dtype: str, impl: str) -> None:
    if impl == "hopper" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("it needs a Hopper GPU")
    q, k, v = (x.to(DTYPES[dtype]) for x in make(*SHAPE, D))
    expected = attention(q, k, v, causal=causal)
    theirs = [error(flash(q, k, v, causal), expected)]
    if importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute"):
        theirs.append(error(flash_4(q, k, v, causal), expected))
    ours = error(gs.attention(q, k, v, causal=causal, impl=impl), expected)
    exact = float(expected.square().mean().sqrt())
    assert ours <= 1.1 * max(theirs) + 1e-6 * exact, (ours, theirs, exact)
