"""Padded batches as packed sequences: the same as with a mask, and zeros for what is padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.hf import attention as registered
from groundspeed.hf import packing
from groundspeed.hf.masks import Described
from groundspeed.kernels import calls
from nn.played import graphed

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed.* falls back to PyTorch")

ROWS = {
    "one query": (1, [(0, 1, 2, 9), (0, 1, 0, 9), (0, 1, 8, 9), (0, 1, 4, 4)]),
    "queries that are all keys": (9, [(2, 9, 2, 9), (0, 9, 0, 9), (0, 4, 0, 4), (1, 5, 1, 5)]),
    "the last queries": (3, [(0, 3, 2, 9), (1, 3, 7, 9), (0, 0, 0, 5), (0, 2, 0, 8)]),
    "a cache that is not full": (4, [(0, 4, 0, 6), (0, 4, 1, 6), (2, 4, 4, 6), (0, 4, 0, 6)]),
}
N = 9


def layer() -> torch.nn.Module:
    module = torch.nn.Module().eval()
    module.num_key_value_groups = 3
    return module


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


@pytest.mark.parametrize("way", ["packed", "dense"])
def test_a_mask_that_changes_in_place_is_read_again(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "why_not_ours", lambda *_: None if way == "packed" else "it may not")
    (q, k, v), rows = tensors(3), torch.tensor(ROWS["the last queries"][1], dtype=torch.int32)
    mask, module = Described(True, rows=rows).as_tensor("cpu"), layer()
    registered.attention(module, q, k, v, mask)
    rows.copy_(torch.tensor([(0, 3, 4, 7)] * 4))
    found, _ = registered.attention(module, q, k, v, mask)
    expected, _ = registered.attention(module, q, k, v, Described(True, rows=rows.clone()).as_tensor("cpu"))
    assert torch.equal(found, expected)
    with torch.inference_mode():  # has no versions
        mask = Described(True, rows=rows.clone()).as_tensor("cpu")
        assert torch.equal(registered.attention(module, q, k, v, mask)[0], expected)


@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("way", ["packed", "dense"])
def test_a_graph_reads_the_mask_of_each_call_once_for_all_layers(
    way: str, M: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "why_not_ours", lambda *_: None if way == "packed" else "it may not")
    (q, k, v), module, made = tensors(M), layer(), []
    for home, name in ((packing, "_by_rows"), (packing, "_by_heads"), (Described, "dense")):
        make = getattr(home, name)
        monkeypatch.setattr(home, name, lambda *given, make=make: made.append(1) or make(*given))

    def step(mask: torch.Tensor) -> torch.Tensor:
        layers = [registered.attention(module, q, k, v, mask)[0] for _ in range(3)]
        return torch.stack(layers).sum(0)

    fast = graphed(step)
    with torch.no_grad():
        for end in (5, 6, 9):
            rows = torch.tensor([(0, M, 0, end)] * 4, dtype=torch.int32)
            given = Described(M > 1, rows=rows).as_tensor("cpu")
            made.clear()
            found = fast(given)
            assert len(made) == (3 if end == 5 else 1)  # warm-ups, capture and replay; and then replays alone
            assert torch.equal(found, step(Described(M > 1, rows=rows).as_tensor("cpu")))
    assert len(fast.graphs) == 1
    monkeypatch.setattr(calls, "is_captured", lambda _: True)
    step(given)  # in another program's capture: nothing is kept for the next one
    assert "_groundspeed" not in given.__dict__


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
