"""Padded batches as packed sequences: the same as with a mask, and zeros for what is padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.hf import attention as registered
from groundspeed.hf import packing
from groundspeed.hf.masks import Described

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch")

ROWS = {
    "one query": (1, [(0, 1, 2, 9), (0, 1, 0, 9), (0, 1, 8, 9), (0, 1, 4, 4)]),
    "queries that are all keys": (9, [(2, 9, 2, 9), (0, 9, 0, 9), (0, 4, 0, 4), (1, 5, 1, 5)]),
    "the last queries": (3, [(0, 3, 2, 9), (1, 3, 7, 9), (0, 0, 0, 5), (0, 2, 0, 8)]),
    "a cache that is not full": (4, [(0, 4, 0, 6), (0, 4, 1, 6), (2, 4, 4, 6), (0, 4, 0, 6)]),
}
N = 9


def tensors(M: int, H: int = 6, G: int = 2) -> list[Any]:
    torch.manual_seed(M)
    return [
        torch.randn(4, M, H, 8).transpose(1, 2),
        torch.randn(4, G, N, 8),  # as a cache has them
        torch.randn(4, N, G, 12).transpose(1, 2),
    ]


@pytest.mark.parametrize("form", [{}, {"softcap": 1.5}, {"sinks": torch.linspace(-1, 2, 6)}], ids=str)
@pytest.mark.parametrize(("causal", "window"), [(True, -1), (True, 2), (False, -1)])
@pytest.mark.parametrize("rows", ROWS)
def test_the_same_as_with_a_mask(rows: str, causal: bool, window: int, form: dict[str, Any]) -> None:
    M, numbers = ROWS[rows]
    described = Described(causal, window, torch.tensor(numbers, dtype=torch.int32))
    q, k, v = tensors(M)
    asked = {"softcap": 0.0, "sinks": None, "scale": 0.4, **form}
    found = packing.attention(q, k, v, described.as_tensor("cpu"), described, **asked)
    dense = described.dense(M, N, torch.device("cpu"))
    expected = registered._spelt_out(q, k, v, dense, 0.0, None, **asked)
    for row, (first, last, begin, end) in enumerate(numbers):
        whole = slice(first, last) if end > begin else slice(0, 0)
        assert torch.allclose(found[row, whole], expected[row, whole], atol=1e-6)
        padding = torch.ones(M, dtype=torch.bool)
        padding[whole] = False
        assert not found[row, padding].any()


def test_sequences_are_found_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    described = Described(True, rows=torch.tensor(ROWS["the last queries"][1], dtype=torch.int32))
    mask, made = described.as_tensor("cpu"), []
    by_rows = packing._by_rows
    monkeypatch.setattr(packing, "_by_rows", lambda *given: made.append(given) or by_rows(*given))
    for _ in range(3):
        packing.attention(*tensors(3), mask, described, softcap=0.0, sinks=None, scale=None)  # type: ignore[misc]
    assert len(made) == 1


def test_one_query_reads_a_cache_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    kernel = packing.attention_varlen
    monkeypatch.setattr(packing, "attention_varlen", lambda *a, **told: given.append(a) or kernel(*a, **told))
    q, k, v = torch.randn(4, 6, 1, 8), torch.randn(4, 2, N, 8), torch.randn(4, 2, N, 8)
    described = Described(False, rows=torch.tensor(ROWS["one query"][1], dtype=torch.int32))
    packing.attention(q, k, v, described.as_tensor("cpu"), described, softcap=0.0, sinks=None, scale=None)
    packed_q, packed_k, packed_v, _, _, longest, _ = given[0]
    assert [x.data_ptr() for x in (packed_q, packed_k, packed_v)] == [x.data_ptr() for x in (q, k, v)]
    assert longest == 3


def test_rows_beyond_the_tensors_stay_inside() -> None:
    """Our kernels believe what they are told of sequences."""
    described = Described(True, rows=torch.tensor([[0, 99, 5, 99], [7, 99, 99, 100]], dtype=torch.int32))
    for cu, total in zip(packing._by_rows(described, 4, N), (2 * 4, 2 * N), strict=True):
        assert (cu[0].item(), cu[-1].item()) == (0, total)
        assert (cu.diff() >= 0).all()
