"""B1: kernels that go row by row, in the interpreter: norms, rotary embedding and activations, wherever rows lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groundspeed.kernels import calls
from groundspeed.kernels.activation import api as activation_api
from groundspeed.kernels.activation import reference as activation_reference
from groundspeed.kernels.activation import triton as activation
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.norm import api as norm_api
from groundspeed.kernels.norm import reference as norm_reference
from groundspeed.kernels.norm import triton as norm
from groundspeed.kernels.rotary import api as rotary_api
from groundspeed.kernels.rotary import reference as rotary_reference
from groundspeed.kernels.rotary import triton as rotary
from groundspeed.kernels.rows import Rows

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CUT_OFF = 2
"""By how much the errors of BF16 may be greater here: the interpreter cuts it off where a GPU rounds."""
SMALL = norm.Launch(1, 32, 1)
"""Blocks of 32: longer rows are long ones."""


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is allocated is NaN, so that an element never written shows."""
    original = torch.empty_strided

    def empty_strided(*told: Any, **asked: Any) -> Any:
        made = original(*told, **asked)
        return made if made.is_meta else made.fill_(float("nan"))

    monkeypatch.setattr(torch, "empty_strided", empty_strided)


def random(*shape: int, dtype: str = "fp32", seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DTYPES[dtype])


def apart(x: Any, by: int = 5) -> Any:
    """The same with rows that lie farther apart, NaN between them, and begin at an odd place."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] + by), float("nan"), dtype=x.dtype)
    wide[..., 3 : 3 + x.shape[-1]] = x
    return wide[..., 3 : 3 + x.shape[-1]]


def assert_right(out: Any, expected: Any, tolerance: dict[str, Any], dtype: str, like: Any = None) -> None:
    slack = CUT_OFF if dtype == "bf16" else 1
    assert out.dtype == DTYPES[dtype]
    error = (out.double() - expected.view(out.shape)).abs()
    assert error.max() <= slack * tolerance[dtype].max_abs
    assert error.square().mean().sqrt() <= slack * tolerance[dtype].rms_rel * expected.square().mean().sqrt()
    if like is not None:
        assert out.stride() == torch.empty_like(like).stride()


def check_norm(
    x: Any, weight: Any, bias: Any, residual: Any, dtype: str, centered: bool, eps: float = 1e-5, launch: Any = None
) -> None:
    found = norm.forward(x, weight, bias, residual, eps=eps, centered=centered, launch=launch)
    y, total = found if residual is not None else (found, None)
    if centered:
        expected = norm_reference.layer_norm(x, weight, bias, eps=eps, residual=residual)
    else:
        expected = norm_reference.rms_norm(x, weight, eps=eps, residual=residual)
    assert_right(y, expected, norm_reference.TOLERANCE, dtype, like=x)
    if total is not None:
        assert dtype == "bf16" or torch.equal(total, x + residual)
        assert total.stride() == torch.empty_like(x).stride()
        assert torch.equal(
            norm.forward(total, weight, bias, eps=eps, centered=centered, launch=launch), y
        )  # as rounded


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centered", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize(("N", "launch"), [(301, None), (150, SMALL)])
def test_norms(N: int, launch: Any, residual: bool, centered: bool, dtype: str) -> None:
    x, weight, bias = random(2, 3, N, dtype=dtype), random(N, dtype=dtype), random(N) if centered else None
    added = random(2, 3, N, dtype=dtype, seed=1) if residual else None
    check_norm(x, weight, bias, added, dtype, centered, launch=launch)


@pytest.mark.parametrize(("N", "eps"), [(1, 0.1), (3, 0.1), (65536, 1e-6)])
@pytest.mark.parametrize("centered", [False, True], ids=["rms", "layer"])
def test_the_shortest_and_the_longest_rows(N: int, eps: float, centered: bool) -> None:
    """Few elements may be close to each other: with a larger eps the digits that are lost there do not matter."""
    check_norm(random(2, N), random(N), None, random(2, N, seed=1), "fp32", centered, eps)


@pytest.mark.parametrize("N", [64, 200])
def test_a_mean_far_away_from_zero_takes_no_digits_of_the_variance(N: int) -> None:
    """In one block, and in several, whose lanes have means of their own."""
    x, weight = random(4, N) + 1000.0, torch.ones(N)
    for launch in (None, SMALL):
        out = norm.forward(x, weight, eps=1e-6, centered=True, launch=launch)
        assert (out - norm_reference.layer_norm(x, weight, eps=1e-6)).abs().max() < 3e-4  # five digits of a thousand


def shuffled(x: Any, order: tuple[int, ...]) -> Any:
    """The same tensor, its leading dimensions in memory in another order."""
    back = [*(order.index(i) for i in range(len(order))), len(order)]
    return x.permute(*order, len(order)).contiguous().permute(back)


@settings(max_examples=20)
@given(st.data())
def test_norms_of_rows_anywhere(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3), "leading")
    N = data.draw(st.integers(16, 100), "N")
    orders = st.permutations(range(len(shape))).map(tuple)
    x, residual = (shuffled(random(*shape, N, seed=i), data.draw(orders)) for i in range(2))
    x, residual = (apart(t) if data.draw(st.booleans()) else t for t in (x, residual))
    centered, launch = data.draw(st.booleans()), data.draw(st.sampled_from([None, SMALL]))
    added = residual if data.draw(st.booleans()) else None
    if 0 in shape:
        found = norm.forward(x, random(N), None, added, eps=1e-5, centered=centered, launch=launch)
        assert (found if added is None else found[0]).shape == x.shape
    else:
        check_norm(x, random(N), None, added, "fp32", centered, launch=launch)


@pytest.mark.parametrize("launch", [None, SMALL], ids=["in one block", "in several"])
def test_dimensions_that_cannot_be_taken_together(launch: Any) -> None:
    x, residual = random(2, 3, 4, 40), shuffled(random(2, 3, 4, 40, seed=1), (2, 1, 0))
    assert Rows.of(x, residual).sizes == (2, 3, 4)
    check_norm(x, random(40), None, residual, "fp32", False, launch=launch)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN
@pytest.mark.parametrize("launch", [None, SMALL], ids=["in one block", "in several"])
@pytest.mark.parametrize("centered", [False, True], ids=["rms", "layer"])
def test_nan_and_infinity_stay_in_their_rows(centered: bool, launch: Any) -> None:
    x = random(6, 40)
    x[1, 7], x[4, 39] = float("nan"), float("inf")
    out = norm.forward(x, torch.ones(40), eps=1e-6, centered=centered, launch=launch)
    assert out[1].isnan().all()
    assert out[4].isnan().all() if centered else out[4, 39].isnan() and (out[4, :39] == 0).all()
    assert not out[[0, 2, 3, 5]].isnan().any()


@settings(max_examples=40)
@given(st.data())
def test_rows_are_where_the_tensors_have_them(data: st.DataObject) -> None:
    """Each place once, whatever the order of each tensor's dimensions."""
    shape = data.draw(st.lists(st.integers(0, 3), max_size=5))
    tensors = [random(*shape, 4) for _ in range(2)]
    if len(shape) <= 3:
        orders = st.permutations(range(len(shape))).map(tuple)
        tensors = [shuffled(x, data.draw(orders)) for x in tensors]
        tensors = [apart(x) if data.draw(st.booleans()) else x for x in tensors]
        if shape and shape[-1] and data.draw(st.booleans()):
            tensors[1] = tensors[1][..., :1, :].expand(*shape, 4)
    rows = Rows.of(*tensors)
    told = itertools.product(*map(range, shape))
    expected = sorted(tuple(sum(i * n for i, n in zip(at, x.stride(), strict=False)) for x in tensors) for at in told)
    found = itertools.product(*map(range, rows.sizes))
    assert expected == sorted(
        tuple(sum(i * n for i, n in zip(at, strides, strict=True)) for strides in rows.strides) for at in found
    )
    assert rows.count == len(expected)
    if all(x.is_contiguous() for x in tensors):
        assert rows.flat


def tables(B: int, S: int, half: int, dtype: str = "fp32") -> tuple[Any, Any]:
    angle = random(B, S, half, seed=9) * 3
    return angle.cos().to(DTYPES[dtype]), angle.sin().to(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("B", "H", "G", "S", "D", "R", "batches"),
    [(2, 4, 2, 9, 64, 64, 1), (2, 3, 1, 5, 80, 32, 2), (1, 5, 5, 3, 20, 20, 1), (1, 2, 1, 1, 256, 256, 1)],
)
def test_rotary(B: int, H: int, G: int, S: int, D: int, R: int, batches: int, dtype: str) -> None:
    q, k = (random(B, heads, S, D, dtype=dtype) for heads in (H, G))
    for of in {dtype, "fp32"}:
        cos, sin = tables(batches, S, R // 2, of)
        expected = rotary_reference.rotary(q, k, cos, sin)
        for made, right, x in zip(rotary.forward(q, k, cos, sin), expected, (q, k), strict=True):
            assert_right(made, right, rotary_reference.TOLERANCE, dtype, like=x)
            assert torch.equal(made[..., R:], x[..., R:])


@settings(max_examples=10)
@given(st.data())
def test_rotary_wherever_heads_lie(data: st.DataObject) -> None:
    B, S, H, G, D = (data.draw(st.integers(1, n)) for n in (2, 7, 5, 3, 40))
    D = D + D % 2
    half = data.draw(st.integers(1, D // 2))
    orders = st.permutations(range(3)).map(tuple)
    q, k = (shuffled(random(B, heads, S, D), data.draw(orders)) for heads in (H, G))
    cos, sin = tables(data.draw(st.sampled_from([1, B])), S, half)
    q, k, cos, sin = (apart(x) if data.draw(st.booleans()) else x for x in (q, k, cos, sin))
    launch = data.draw(st.sampled_from([None, rotary.Launch(2, 1)]))
    made = rotary.forward(q, k, cos, sin, launch=launch)
    for one, right, x in zip(made, rotary_reference.rotary(q, k, cos, sin), (q, k), strict=True):
        assert_right(one, right, rotary_reference.TOLERANCE, "fp32", like=x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str) -> None:
    """Whole, of an odd number of elements, and in rows of which one does not fill a program or takes several."""
    for shape in ((3, 1001), (2, 3, 40), (2, 3000)):
        x = random(*shape, dtype=dtype)
        gate = random(*shape, dtype=dtype, seed=1) if name == "swiglu" else None
        for lying in (x, apart(x)):
            out = activation.forward(lying, name, gate)
            assert_right(
                out, activation_reference.activate(x, name, gate), activation_reference.TOLERANCE, dtype, like=x
            )


@pytest.mark.parametrize("shape", [(4, 6), (3, 2, 80), (1, 5000), (2,), (0, 8), (3, 0)])
def test_swiglu_of_halves_is_that_of_two(shape: tuple[int, ...]) -> None:
    both = random(*shape)
    gate, up = both.chunk(2, dim=-1)
    out = activation.forward(both, "swiglu")
    assert out.is_contiguous()
    assert torch.equal(out, activation.forward(up, "swiglu", gate))
    torch.testing.assert_close(out, torch.nn.functional.silu(gate) * up)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what overflows, and of NaN
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_number_of_fp16(name: str) -> None:
    """Half of the last digit, and a fifth more for GELU by its polynomial; beyond ±5 less than 8e-7."""
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
    gate = torch.ones_like(x) if name == "swiglu" else None
    for values, beside in ((x, gate), *([(torch.ones_like(x), x)] if name == "swiglu" else [])):
        out = activation.forward(values, name, beside).double()
        expected = activation_reference.activate(values, name, beside)
        finite = values.isfinite() & (values if beside is None else beside).isfinite()
        assert torch.equal(out.isnan() & ~finite, expected.half().isnan() & ~finite)
        expected = expected[finite]
        rounded = expected.half().double()
        held = rounded.isfinite()
        bound = (
            (expected.abs() * 2.0**-11).clamp(min=2.0**-25) * 1.001 + expected.abs() * 1e-4 + 8e-7 * (name == "gelu")
        )
        assert ((out[finite] - expected).abs()[held] <= bound[held]).all()
        assert torch.equal(out[finite][~held], rounded[~held])


@settings(max_examples=15)
@given(st.data())
def test_activations_of_rows_anywhere(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), max_size=3))
    name, N = data.draw(st.sampled_from(ACTIVATIONS)), 2 * data.draw(st.integers(1, 40))
    orders = st.permutations(range(len(shape))).map(tuple)
    x, gate = (shuffled(random(*shape, N, seed=i), data.draw(orders)) for i in range(2))
    x, gate = (apart(t) if data.draw(st.booleans()) else t for t in (x, gate))
    beside = gate if name == "swiglu" and data.draw(st.booleans()) else None
    launch = data.draw(st.sampled_from([None, activation.Launch(4, 16, 1)]))
    out = activation.forward(x, name, beside, launch=launch)
    expected = activation_reference.activate(x, name, beside)
    torch.testing.assert_close(out.double(), expected, rtol=2e-6, atol=2e-7)


CALLS: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
    "norm_forward": (norm_api._forward, lambda: (random(2, 3, 24), random(24), random(24), 1e-5, True)),
    "norm_residual_forward": (
        norm_api._launch,
        lambda: (random(5, 2, 24).transpose(0, 1), random(24), None, apart(random(2, 5, 24)), 1e-5, False),
    ),
    "rotary_forward": (
        rotary_api._launch,
        lambda: (random(2, 5, 3, 8).transpose(1, 2), random(2, 1, 5, 8), *tables(1, 5, 3)),
    ),
    "activation_forward": (activation_api._launch, lambda: (apart(random(5, 2, 24)).transpose(0, 1), None, "swiglu")),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_are_what_they_tell_a_compiler(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema, shapes, strides and dtypes, and no result that is an input."""
    monkeypatch.setattr(calls, "capability", lambda device: (8, 0))
    served, tensors = CALLS[name]
    library = torch.library.Library("groundspeed", "IMPL")
    library.impl(name, served, "CPU")
    try:
        operator = getattr(torch.ops.groundspeed, name).default
        torch.library.opcheck(operator, tensors(), test_utils=("test_schema", "test_faketensor"))
        compiled = torch.compile(lambda *told: operator(*told), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*tensors()), operator(*tensors()), rtol=0, atol=0)
    finally:
        library._destroy()
