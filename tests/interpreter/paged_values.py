"""Attention to keys in pages is attention, and reads nothing else, in the interpreter."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from attention_values import DTYPES, LSE_ABS, random
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.reference import TOLERANCE
from pages import ASTRAY, Paged, expected, paged

FORMS: list[dict[str, Any]] = [
    {},
    {"window_size": (20, -1)},
    {"causal": False, "window_size": (7, 2), "softcap": 2.0},
    {"window_size": (33, -1), "sinks": True},
]


def form_of(causal: bool = True, **asked: Any) -> Form:
    return Form.of(causal, **asked)


def assert_right(
    kernel: ModuleType, q: Any, told: Paged, dtype: str, splits: int, block_n: int = 32, **form: Any
) -> None:
    scale, launch = q.shape[3] ** -0.5, kernel.Launch(splits, block_n)
    out, lse = kernel.forward(
        q, *told.tensors, form=form_of(**form), scale=scale, sinks=form.get("sinks"), launch=launch
    )
    right, right_lse = expected(q, told, **form)
    error = (out.double() - right).abs()
    assert error.max() <= TOLERANCE[dtype].max_abs
    rounding = 0.5 * torch.finfo(q.dtype).eps  # of weights, where values of about 1 cancel out
    assert error.square().mean().sqrt() <= TOLERANCE[dtype].rms_rel * right.square().mean().sqrt() + rounding
    empty = right_lse == float("-inf")
    assert torch.equal(lse == float("-inf"), empty)
    assert torch.all(out[empty] == 0)
    assert ((lse[~empty].double() - right_lse[~empty]).abs() <= 2 * LSE_ABS).all()


@pytest.mark.parametrize(
    ("page", "block_n", "H", "G", "M", "dtype"),
    [(16, 64, 4, 2, 1, "bf16"), (32, 32, 3, 1, 2, "fp16"), (64, 32, 2, 1, 9, "fp32"), (256, 64, 1, 1, 3, "bf16")],
)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_forms(
    paged_kernel: ModuleType, form: dict[str, Any], page: int, block_n: int, H: int, G: int, M: int, dtype: str
) -> None:
    """Lengths of none, of less than the queries, of whole pages and a few more; tiles of 16 rows in FP32."""
    told = paged([0, 1, page, page + 37], G, 24, page, dtype=DTYPES[dtype])
    q = random(4, H, M, 24, dtype=dtype, seed=1)
    form = {**form, "sinks": random(H, dtype=dtype)} if form.get("sinks") else form
    assert_right(paged_kernel, q, told, dtype, 2, block_n, **form)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page=st.sampled_from([16, 32, 64, 128, 256]),
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=3),
    more=st.integers(0, 2),
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    M=st.integers(1, 7),
    D=st.integers(1, 40),
    splits=st.integers(1, 9),
    causal=st.booleans(),
    window_size=st.tuples(st.integers(-1, 160), st.integers(-1, 5)),
    softcap=st.sampled_from([0.0, 3.0]),
    sinks=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_odd_shapes(
    paged_kernel: ModuleType,
    page: int,
    lengths: list[int],
    more: int,
    heads: tuple[int, int],
    M: int,
    D: int,
    splits: int,
    dtype: str,
    sinks: bool,
    **form: Any,
) -> None:
    entries = -(-max(lengths) // page) + more
    told = paged(lengths, heads[1], D, page, entries=entries, dtype=DTYPES[dtype], seed=M)
    q = random(len(lengths), heads[0], M, D, dtype=dtype, seed=D)
    sink = random(heads[0], dtype=dtype) if sinks else None
    assert_right(paged_kernel, q, told, dtype, splits, sinks=sink, **form)


def test_numbers_of_64_bits_and_rows_that_lie_apart(paged_kernel: ModuleType) -> None:
    told = paged([70, 5], 2, 16, 32, dtype=torch.float16, numbers=torch.int64)
    wide = torch.full((*told.k_pages.shape[:3], 40), float("nan"), dtype=torch.float16)[..., 3:19]
    apart = told._replace(
        k_pages=wide.copy_(told.k_pages),
        v_pages=told.v_pages.transpose(1, 2).contiguous().transpose(1, 2),
        pages=torch.cat([told.pages, told.pages], dim=1)[:, :3],
    )
    q = random(2, 3, 4, 20, dtype="fp16").transpose(1, 2)[..., :16]
    assert_right(paged_kernel, q, apart, "fp16", 3)


def test_what_was_prepared_once_serves_as_sequences_grow(paged_kernel: ModuleType) -> None:
    """As a graph would: the same launch, with what the device has then; of lengths that nobody can have, what there
    is."""
    q = random(2, 2, 1, 16, dtype="fp32")
    first, last = (paged(n, 1, 16, 16, entries=6) for n in ([1, 0], [96, 81]))
    pages, lengths = first.pages.clone(), first.lengths.clone()
    some = paged_kernel.Launch(3, 32)
    forward = paged_kernel.prepared(q, last.k_pages, last.v_pages, pages, PLAIN[True], some)
    for told in (first, last):
        pages.copy_(told.pages)
        lengths.copy_(told.lengths)
        out, _ = forward(q, told.k_pages, told.v_pages, pages, lengths, 0.25)
        assert (out - expected(q, told)[0]).abs().max() < 1e-5
    lengths.copy_(torch.tensor([2**31 - 1, -5]))
    beyond, lse = forward(q, last.k_pages, last.v_pages, pages, lengths, 0.25)
    assert torch.equal(beyond[0], out[0])
    assert (beyond[1].abs().max(), lse[1].max()) == (0, float("-inf"))


@pytest.mark.parametrize("page", [16, 64])
def test_what_lies_before_every_window_is_not_read(paged_kernel: ModuleType, page: int) -> None:
    """Whoever has no other use for these pages may give them away."""
    told = paged([140, 100], 1, 16, page)
    q, left = random(2, 2, 3, 16, dtype="fp32"), 10
    right, _ = expected(q, told, window_size=(left, -1))
    for b, length in enumerate((140, 100)):
        gone = length - 3 - left
        told.k_pages[told.pages[b, gone // page], :, : gone % page] = float("nan")
        told.v_pages[told.pages[b, gone // page], :, : gone % page] = float("nan")
        told.pages[b, : gone // page] = ASTRAY[1]
    for block_n in (32, 64):
        out, _ = paged_kernel.forward(
            q, *told.tensors, form=Form.of(True, (left, -1)), scale=0.25, launch=paged_kernel.Launch(2, block_n)
        )
        assert (out - right).abs().max() < 1e-5


@pytest.mark.parametrize("left", [29, 30, 31])
def test_a_window_that_hides_one_key_or_none(paged_kernel: ModuleType, left: int) -> None:
    """Of as many as the entries hold."""
    told, q = paged([32], 1, 16, 16), random(1, 1, 1, 16, dtype="fp32")
    assert_right(paged_kernel, q, told, "fp32", 1, window_size=(left, -1))


@pytest.mark.parametrize("sequences", [1, 8, 64])
@pytest.mark.parametrize(("keys", "rows"), [(131072, 1), (8192, 8), (131072, 128), (8192, 4000), (16, 1)])
def test_the_workspace_is_small(paged_kernel: ModuleType, keys: int, rows: int, sequences: int) -> None:
    """Beside the keys and values that there is room for, of which a sequence may have all, or its share."""
    tile = paged_kernel.tile_rows(rows, 128, torch.bfloat16)
    tiles, gpu = -(-rows // tile), paged_kernel.GPU.of((9, 0), 132)
    for held in (keys, keys // sequences):
        launch = paged_kernel._chosen(sequences, keys, held, min(rows, tile), tiles, 128, torch.bfloat16, gpu)
        assert launch.splits >= 1
        if launch.splits > 1:
            assert launch.splits * rows * 4 <= 0.05 * held * 2 * 2


@pytest.mark.parametrize("dtype", [*DTYPES, "fp64"])
def test_appended(append: ModuleType, dtype: str) -> None:
    """Each token to its place, of views too; none where there is no place for it, and nothing else is touched."""
    kind = {**DTYPES, "fp64": torch.float64}[dtype]
    told = paged([40, 2, 0, 64, 33], 3, 20, 16, dtype=kind, numbers=torch.int64)
    told = told._replace(v_pages=told.v_pages.transpose(1, 2).contiguous().transpose(1, 2))
    told.lengths[3] = 70  # six more than its entries hold
    told.pages[4, 2] = len(told.k_pages)  # none of them
    k, v = (torch.randn(5, 7, 3, 24).to(kind).transpose(1, 2)[..., 2:22] for _ in range(2))
    before = [x.clone() for x in told.tensors]
    append.prepared(k, v, *told.tensors[:3])(k, v, *told.tensors)
    touched = torch.zeros(told.k_pages.shape[0], 16, dtype=torch.bool)
    for b, length in enumerate(told.lengths.tolist()):
        for m, position in enumerate(range(length - 7, length)):
            if position < 0 or position >= 64 or (b, position) == (4, 32):
                continue
            place = told.pages[b, position // 16], position % 16
            touched[place] = True
            assert torch.equal(told.k_pages[place[0], :, place[1]], k[b, :, m])
            assert torch.equal(told.v_pages[place[0], :, place[1]], v[b, :, m])
    assert touched.sum() == 7 + 2 + 1 + 6
    for now, then in zip(told.tensors[:2], before, strict=False):
        kept = (now == then) | (now.isnan() & then.isnan())
        assert torch.equal(kept.all(-1).all(1), ~touched)
