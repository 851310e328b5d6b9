"""gs.attention_paged and gs.append_paged on a CPU: each sequence as if it were alone, and its keys together."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.kernels import calls
from groundspeed.kernels.attention import append_api, paged_api, reference
from groundspeed.kernels.attention import paged as kernel
from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.recall import Recall
from pages import ASTRAY, Paged, expected, paged

FORMS: list[dict[str, Any]] = [
    {},
    {"causal": False},
    {"window_size": (5, -1)},
    {"causal": False, "window_size": (9, 1), "softcap": 2.0},
    {"sinks": torch.tensor([0.5, -1.0, 3.0, 0.0]), "window_size": (20, 0)},
]


@pytest.fixture(autouse=True)
def told_of_pytorchs_path() -> None:
    """The warning that comes once has come, whatever ran before."""
    calls._said.add(("", calls.elsewhere(torch.device("cpu"))))


@pytest.mark.parametrize("numbers", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_each_sequence_by_itself(form: dict[str, Any], page: int, numbers: Any) -> None:
    told = paged([0, 2, 16, 70], 2, 12, page, entries=6, numbers=numbers)
    q = torch.randn(4, 4, 3, 12)
    out, lse = gs.attention_paged(q, *told.tensors, return_lse=True, **form)
    right, right_lse = expected(q, told, **form)
    torch.testing.assert_close(out.double(), right, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lse.double(), right_lse, rtol=1e-4, atol=1e-5)
    assert torch.equal(gs.attention_paged(q, *told.tensors, impl="torch", **form), out)
    asked = {"causal": True, **form}
    torch.testing.assert_close(reference.attention_paged(q, *told.tensors, **asked).view(q.shape), right)
    some = torch.tensor([47, 3, 12, 40])
    rows = reference.attention_paged(q, *told.tensors, rows=some, **asked)
    torch.testing.assert_close(rows, right.reshape(-1, 12)[some])


def test_no_sequences() -> None:
    k, q = torch.randn(3, 2, 16, 8), torch.randn(0, 2, 1, 8)
    none = torch.zeros(0, 5, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    out, lse = gs.attention_paged(q, k, k, *none, return_lse=True)
    assert (out.shape, lse.shape) == ((0, 2, 1, 8), (0, 2, 1))
    gs.append_paged(q, q, k, k, *none)


def test_pytorchs_path_is_taken_on_a_cpu_and_said_once() -> None:
    calls._said.clear()
    told, q = paged([5], 1, 8, 16), torch.randn(1, 1, 1, 8)
    with pytest.warns(UserWarning, match=r"groundspeed.attention_paged falls back to PyTorch: our kernels run") as seen:
        gs.attention_paged(q, *told.tensors)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.attention_paged(q, *told.tensors)
    with pytest.raises(NotImplementedError, match="tensors are on cpu; impl='torch' or 'auto' can"):
        gs.attention_paged(q, *told.tensors, impl="triton")
    with pytest.raises(ValueError, match="unknown to attention_paged; choose from auto, triton, torch"):
        gs.attention_paged(q, *told.tensors, impl="hopper")


def test_gradients_go_through_pytorchs_path() -> None:
    told, q = paged([5, 40], 1, 8, 16), torch.randn(2, 2, 1, 8, requires_grad=True)
    told.k_pages.nan_to_num_().requires_grad_()
    gs.attention_paged(q, *told.tensors, impl="torch").sum().backward()
    assert q.grad is not None
    assert told.k_pages.grad is not None
    with pytest.raises(NotImplementedError, match=r"does not support gradients: call it under torch.no_grad"):
        gs.append_paged(q[:, :1], q[:, :1], *told.tensors)


Change = Callable[..., tuple[Any, ...]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, v, t, n: (q[0], k, v, t, n), r"q must be \[batch, heads, queries, dim\], not \[4, 3, 16\]"),
        (lambda q, k, v, t, n: (q, k[0], v[0], t, n), r"both be \[pages, heads, positions, dim\]"),
        (lambda q, k, v, t, n: (q, k, v[..., 1:], t, n), r"both be \[pages, heads, positions, dim\]"),
        (lambda q, k, v, t, n: (q, k[:, :, 1:], v[:, :, 1:], t, n), "16, 32, 64, 128, 256 positions, not 31"),
        (lambda q, k, v, t, n: (q[:, :3], k, v, t, n), "multiple of the key heads"),
        (lambda q, k, v, t, n: (q[..., 1:], k, v, t, n), "must share dim"),
        (lambda q, k, v, t, n: (q.half(), k, v, t, n), "share dtype and device"),
        (
            lambda q, k, v, t, n: (q, k, v, t[:1], n),
            r"pages must have one row for each of the 2 sequences.*not \[1, 3\]",
        ),
        (lambda q, k, v, t, n: (q, k, v, t.float(), n), "pages must have .*int32 or int64, on cpu.*torch.float32"),
        (lambda q, k, v, t, n: (q, k, v, t.to("meta"), n), "pages must have .* on meta"),
        (
            lambda q, k, v, t, n: (q, k, v, t, n[:, None]),
            r"lengths must have one number for each of the 2 sequences.*\[2, 1\]",
        ),
        (
            lambda q, k, v, t, n: (q, k, v, t.T.contiguous().T, n),
            r"elements of pages must be adjacent: use pages.contiguous",
        ),
        (lambda q, k, v, t, n: (q, k, v, t, n.repeat_interleave(2)[::2]), r"use lengths.contiguous\(\)"),
        (lambda q, k, v, t, n: (q, k, v, t, n + 100), "sequence 0 has a length of 105, but room for 3 pages of 32"),
        (lambda q, k, v, t, n: (q, k, v, t, -n), "sequence 0 has a length of -5"),
        (lambda q, k, v, t, n: (q, k, v, t - 99, n), r"sequence 0 lies in pages \[-\d+\], but there are"),
    ],
)
def test_what_is_no_paged_attention_says_so(change: Change, said: str) -> None:
    told = paged([5, 70], 2, 16, 32)
    with pytest.raises(ValueError, match=said):
        gs.attention_paged(*change(torch.randn(2, 4, 3, 16), *told.tensors))


def test_a_list_is_no_table() -> None:
    told, q = paged([5], 1, 8, 16), torch.randn(1, 1, 1, 8)
    with pytest.raises(TypeError, match=r"pages must be a tensor, not list: use torch.tensor"):
        gs.attention_paged(q, told.k_pages, told.v_pages, [[0]], told.lengths)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"q": torch.empty(2, 4, 1, 256)}, "fp32 up to a head dimension of 128, not 256"),
        ({"q": torch.empty(2, 4, 64, 1).transpose(2, 3)}, None),
        ({"q": torch.empty(2, 4, 64, 2).transpose(2, 3)}, "adjacent elements"),
        ({"pages": torch.empty(2, 1 << 26, dtype=torch.int32, device="meta")}, "up to 536870912 positions"),
        ({"q": torch.empty(2, 4, 500, 64)}, None),  # any number of queries
    ],
    ids=["wide in fp32", "one apart", "apart", "long", "many queries"],
)
def test_what_ours_takes(change: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_api.able, "why_not_ours", lambda *_: None)
    q = change.get("q", torch.empty(2, 4, 1, 64))
    k = torch.empty(9, 2, 16, q.shape[3])
    pages = change.get("pages", torch.empty(2, 9, dtype=torch.int32))
    reason = paged_api._why_not_ours(q, k, k, pages, None)
    assert (said is None and reason is None) or said in str(reason)


def test_a_call_like_one_before_is_launched_as_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever table and lengths hold; not where the form or a tensor is another."""
    prepared: list[Any] = []
    monkeypatch.setattr(kernel, "prepared", lambda *given: prepared.append(given) or (lambda *told: (told, None)))
    monkeypatch.setattr(paged_api.able, "why_not_ours", lambda *_: None)
    monkeypatch.setattr(paged_api, "_recall", Recall())
    told, q = paged([5, 40], 1, 16, 16), torch.randn(2, 2, 1, 16)
    given = gs.attention_paged(q, *told.tensors)
    assert given[5:] == (0.25, None)
    assert prepared[0][4] == Form.of(True)
    told.lengths.add_(1)
    assert gs.attention_paged(q.clone(), *told.tensors, scale=0.5)[5:] == (0.5, None)
    assert len(prepared) == 1
    k, v, pages, lengths = told.tensors
    changed: list[tuple[Any, dict[str, Any]]] = [
        ((q, k, v, pages, lengths), {"causal": False}),
        ((q, k, v, pages, lengths), {"sinks": torch.zeros(2)}),
        ((q, k, v, pages.long(), lengths), {}),
        ((q, k, v, pages[:, :2], lengths), {}),
        ((q, k[1:], v[1:], pages, lengths), {}),
        ((torch.cat([q, q], dim=2), k, v, pages, lengths), {}),
    ]
    for number, (tensors, named) in enumerate(changed, 2):
        gs.attention_paged(*tensors, **named)
        assert len(prepared) == number


def appended() -> tuple[Any, Any, Paged]:
    told = paged([40, 2, 0, 64, 33], 3, 8, 16)
    told.lengths[3] = 70  # six more than its entries hold
    told.pages[4, 2] = ASTRAY[0]
    k, v = (torch.randn(5, 7, 3, 8).transpose(1, 2) for _ in range(2))
    return k, v, told


def test_tokens_are_written_to_their_places_and_nowhere_else() -> None:
    k, v, told = appended()
    before = told.k_pages.clone()
    gs.append_paged(k, v, *told.tensors)
    changed = ((told.k_pages != before) & ~(told.k_pages.isnan() & before.isnan())).any(-1).any(1)
    assert changed.sum() == 7 + 2 + 1 + 6
    assert torch.equal(told.v_pages[told.pages[0, 2], :, 7], v[0, :, 6])
    assert torch.equal(told.k_pages[told.pages[1, 0], :, :2], k[1, :, -2:]), "of seven tokens the last two"
    assert torch.equal(told.k_pages[told.pages[3, 3], :, 15], k[3, :, 0])
    assert torch.equal(told.k_pages[told.pages[4, 1], :, 10:], k[4, :, :6])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda k, v, *rest: (k, v[:, :, 1:], *rest), r"k and v must both be \[batch, heads, tokens, dim\]"),
        (lambda k, v, *rest: (k[:, 1:], v[:, 1:], *rest), "with heads and dim of the pages"),
        (lambda k, v, *rest: (k, v.half(), *rest), "share dtype"),
        (
            lambda k, v, *rest: (k[..., :1].expand(k.shape), v, *rest),
            r"adjacent elements within each row: use .contiguous\(\)",
        ),
        (lambda k, v, a, b, t, n: (k, v, a, b, t, n[1:]), "one number for each of the 5 sequences"),
        (lambda k, v, a, b, t, n: (k, v, a[:, :, :15], b[:, :, :15], t, n), "positions, not 15"),
    ],
)
def test_what_cannot_be_appended_says_so(change: Change, said: str) -> None:
    k, v, told = appended()
    with pytest.raises(ValueError, match=said):
        gs.append_paged(*change(k, v, *told.tensors))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_a_compiler_keeps_what_is_written_in_one_graph() -> None:
    """And knows that it is written: what is read after it is new."""

    def model(k: Any, v: Any, *rest: Any) -> Any:
        before = rest[0].nan_to_num().sum()
        gs.append_paged(k * 2, v, *rest)
        return rest[0].nan_to_num().sum() - before

    k, v, told = appended()
    other = appended()[2]
    other.k_pages.copy_(told.k_pages)
    other.pages.copy_(told.pages)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(k, v, *told.tensors), model(k, v, *other.tensors), atol=1e-4)
    assert torch.equal(told.k_pages.nan_to_num(), other.k_pages.nan_to_num())


def test_a_compiler_keeps_our_kernel_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels are not there on a CPU, so it is only traced."""
    monkeypatch.setattr(paged_api.able, "why_not_ours", lambda *_: None)
    traced: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        traced.extend(node.target for node in graph.graph.nodes)
        return lambda *_: (torch.zeros(()),)

    told, q = paged([5, 40], 1, 16, 16), torch.randn(2, 2, 1, 16)
    torch.compile(lambda *given: gs.attention_paged(*given) + 1, fullgraph=True, backend=backend)(q, *told.tensors)
    assert any("attention_paged_forward" in str(target) for target in traced)


def test_the_kernel_that_appends_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from groundspeed.kernels.attention import append

    prepared: list[Any] = []
    monkeypatch.setattr(append, "prepared", lambda *given: prepared.append(given) or (lambda *_: None))
    monkeypatch.setattr(append_api, "_recall", Recall())
    monkeypatch.setattr(append_api, "_on_ours", lambda device: True)
    k, v, told = appended()
    for _ in range(3):
        gs.append_paged(k.clone(memory_format=torch.preserve_format), v, *told.tensors)
        told.lengths.sub_(1)
    gs.append_paged(k[:, :, 1:], v[:, :, 1:], *told.tensors)
    assert [given[0].shape[2] for given in prepared] == [7, 6]
