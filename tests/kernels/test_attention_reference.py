"""The oracle of attention: right, row by row, whatever the layout."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from groundspeed.kernels.attention import reference
from groundspeed.kernels.attention.reference import attention


def qkv(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator).to(dtype) for _ in range(3))


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float | None) -> torch.Tensor:
    with sdpa_kernel([SDPBackend.MATH]):
        out = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal, scale=scale)
    return out.reshape(-1, out.shape[-1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (2, 3, 17, 16), (1, 2, 64, 32), (1, 1, 130, 80)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_b8_the_oracle_is_attention_in_fp64(shape: tuple[int, ...], causal: bool, dtype: torch.dtype) -> None:
    q, k, v = qkv(*shape, dtype=dtype)
    found = attention(q, k, v, causal=causal)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, plain(q, k, v, causal=causal, scale=None), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("S", [17, 512, 700])
def test_the_oracle_answers_for_the_rows_asked_for_in_their_order(S: int, causal: bool) -> None:
    q, k, v = qkv(2, 3, S, 16)
    rows = torch.tensor([0, 6 * S - 1, S - 1, S, 3 * S - 1, 3])
    some = attention(q, k, v, causal=causal, rows=rows)
    torch.testing.assert_close(some, attention(q, k, v, causal=causal)[rows], rtol=1e-12, atol=1e-14)
    assert attention(q, k, v, causal=causal, rows=torch.tensor([], dtype=torch.long)).shape == (0, 16)


def test_the_oracle_takes_the_scale_it_is_given() -> None:
    q, k, v = qkv(1, 2, 9, 8)
    for scale in (0.3, 2.0, 0.0):
        torch.testing.assert_close(
            attention(q, k, v, causal=True, scale=scale),
            plain(q, k, v, causal=True, scale=scale),
            rtol=1e-12,
            atol=1e-13,
        )


def test_the_oracle_does_not_mind_strides() -> None:
    q, k, v = (tensor.transpose(1, 2) for tensor in qkv(2, 9, 3, 8))
    expected = plain(q.contiguous(), k.contiguous(), v.contiguous(), causal=True, scale=None)
    torch.testing.assert_close(attention(q, k, v, causal=True), expected, rtol=1e-12, atol=1e-13)


def test_a_query_that_sees_one_key_gets_its_value() -> None:
    q, k, v = qkv(1, 1, 4, 8)
    first = attention(q, k, v, causal=True, rows=torch.tensor([0]))
    assert first.flatten().tolist() == v[0, 0, 0].double().tolist()


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (tensor * 1e3 for tensor in qkv(1, 1, 16, 8))
    assert bool(torch.isfinite(attention(q, k, v, causal=False, scale=1.0)).all())
    assert math.isfinite(float(attention(q, k, v, causal=False).abs().max()))


@pytest.mark.parametrize("limit", [1, 4000, 1 << 22])
@pytest.mark.parametrize("causal", [False, True])
def test_the_oracle_answers_for_any_rows_whatever_it_does_at_once(
    causal: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row, of heads of which some are asked for more often than others, and twice."""
    monkeypatch.setitem(reference.AT_ONCE_BYTES, "cpu", limit)
    B, H, G, S, N, D = 2, 4, 2, 7, 5, 8
    q, k, v = torch.randn(B, H, S, D), torch.randn(B, G, N, D), torch.randn(B, G, N, D)
    rows = torch.tensor([3, 3, 0, 55, 4, 5, 6, 30, 29, 2, 1])
    found = attention(q, k, v, causal=causal, rows=rows)
    for row, answer in zip(rows.tolist(), found, strict=True):
        b, h, s = row // (H * S), row // S % H, row % S
        seen = max(0, min(N, s + N - S + 1)) if causal else N
        weights = (q[b, h, s].double() @ k[b, h // 2, :seen].double().T * D**-0.5).softmax(dim=0)
        torch.testing.assert_close(answer, weights @ v[b, h // 2, :seen].double(), rtol=1e-12, atol=1e-13)
