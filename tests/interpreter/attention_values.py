"""A1: the portable attention kernel computes attention, for every shape it takes, in the interpreter."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attention_oracle import oracle
from groundspeed.kernels.attention.form import Form
from groundspeed.kernels.attention.reference import TOLERANCE

LSE_ABS = 1e-5
"""The log-sum-exp is FP32. Where it is large, the roundings of a dot product and of a few steps more are larger than
this: they grow with the square root of the number of terms."""
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KINDS = [(False, "bf16"), (True, "fp16"), (True, "fp32")]
"""Under a causal mask or without: of every shape each dtype once, since a kernel is the same for all."""


def assert_right(
    kernel: ModuleType, q: Any, k: Any, v: Any, causal: bool, scale: float, dtype: str, **form: Any
) -> None:
    out, lse = kernel.forward(q, k, v, causal=causal, scale=scale, **form)
    expected, expected_lse = oracle(q, k, v, causal, scale, **form)
    error = (out.double() - expected).abs()
    assert error.max() <= TOLERANCE[dtype].max_abs
    # Of few terms that cancel out, what is left is no larger than the roundings of the terms.
    rounding = 0.5 * torch.finfo(torch.float32).eps * v.double().square().mean().sqrt()
    if not form:  # a weight p is rounded to the dtype before it is multiplied: half of its eps of √Σp² together
        twice = oracle(q, k, v, causal, 2 * scale)[1]
        squares = torch.where(expected_lse.isfinite(), (twice - 2 * expected_lse).exp(), 0.0)
        rounding = rounding + 0.5 * torch.finfo(q.dtype).eps * (squares.mean() * v.double().square().mean()).sqrt()
    assert error.square().mean().sqrt() <= TOLERANCE[dtype].rms_rel * expected.square().mean().sqrt() + rounding + 1e-12
    empty = expected_lse == float("-inf")
    assert torch.equal(lse == float("-inf"), empty)
    assert torch.all(out[empty] == 0)
    lse, expected_lse = lse[~empty].double(), expected_lse[~empty]
    roundings = 4 + q.shape[-1] ** 0.5
    bound = torch.clamp(expected_lse.abs() * roundings * torch.finfo(torch.float32).eps, min=LSE_ABS)
    assert ((lse - expected_lse).abs() <= bound).all()


def random(*shape: int, dtype: str, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DTYPES[dtype])


@pytest.mark.parametrize(("D", "V"), [(48, 32), (24, 40), (16, 100)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_another_dimension(kernel: ModuleType, dtype: str, D: int, V: int) -> None:
    q, k, v = (random(2, n, m, columns, dtype=dtype) for n, m, columns in ((4, 37, D), (2, 53, D), (2, 53, V)))
    for causal in (False, True):
        assert_right(kernel, q, k, v, causal, D**-0.5, dtype, window_size=(20, -1))
        assert_right(kernel, q, k, v, causal, D**-0.5, dtype)


def test_the_same_without_an_lse_that_nobody_asks_for(kernel: ModuleType) -> None:
    q, k, v = (random(1, 2, 70, 40, dtype="fp16", seed=seed) for seed in range(3))
    out, _ = kernel.forward(q, k, v, causal=True, scale=0.1)
    alone, lse = kernel.forward(q, k, v, causal=True, scale=0.1, with_lse=False)
    assert lse is None
    assert torch.equal(alone, out)


@pytest.mark.parametrize(("causal", "dtype"), KINDS)
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D"),
    [
        (1, 1, 1, 1, 1, 16),
        (1, 2, 2, 64, 64, 64),
        (2, 4, 2, 37, 53, 40),
        (1, 2, 2, 70, 70, 72),
        (1, 4, 1, 130, 70, 64),
        (1, 1, 1, 70, 130, 96),
        (1, 1, 1, 65, 129, 128),
        (1, 1, 1, 33, 17, 256),
        (1, 2, 1, 1, 200, 80),
    ],
)  # fmt: skip
def test_matches_fp64(
    kernel: ModuleType, B: int, H: int, G: int, M: int, N: int, D: int, dtype: str, causal: bool
) -> None:
    q = random(B, H, M, D, dtype=dtype, seed=1)
    k, v = (random(B, G, N, D, dtype=dtype, seed=seed) for seed in (2, 3))
    assert_right(kernel, q, k, v, causal, D**-0.5, dtype)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    H=st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]),
    M=st.integers(1, 140),
    N=st.integers(1, 140),
    D=st.integers(1, 100),
    causal=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
    scale=st.floats(-0.5, 0.5),
)
def test_odd_shapes_and_scales(
    kernel: ModuleType, H: tuple[int, int], M: int, N: int, D: int, causal: bool, dtype: str, scale: float
) -> None:
    q = random(1, H[0], M, D, dtype=dtype, seed=M)
    k, v = (random(1, H[1], N, D, dtype=dtype, seed=seed) for seed in (N, D + 1000))
    assert_right(kernel, q, k, v, causal, scale, dtype)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    M=st.integers(1, 200),
    N=st.integers(1, 200),
    D=st.sampled_from([16, 40]),
    causal=st.booleans(),
    left=st.integers(-1, 150),
    right=st.integers(-1, 150),
    softcap=st.sampled_from([0.0, 0.5, 30.0]),
    sinks=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_windows_soft_caps_and_sinks(
    kernel: ModuleType,
    M: int,
    N: int,
    D: int,
    causal: bool,
    left: int,
    right: int,
    softcap: float,
    sinks: bool,
    dtype: str,
) -> None:
    q = random(1, 2, M, D, dtype=dtype, seed=M)
    k, v = (random(1, 1, N, D, dtype=dtype, seed=seed) for seed in (N, D + 1000))
    sink = random(2, dtype=dtype, seed=7) if sinks else None
    assert_right(kernel, q, k, v, causal, D**-0.5, dtype, window_size=(left, right), softcap=softcap, sinks=sink)


@pytest.mark.parametrize("window_size", [(2**31 - 1, 2**31 - 1), (2**40, 3), (3, 2**40)])
def test_windows_may_be_wider_than_there_are_keys(kernel: ModuleType, window_size: tuple[int, int]) -> None:
    q, k, v = (random(1, 1, 100, 16, dtype="fp32", seed=seed) for seed in (1, 2, 3))
    assert_right(kernel, q, k, v, False, 0.25, "fp32", window_size=window_size)


@pytest.mark.parametrize("view", ["transposed", "sliced", "misaligned", "last dimension strided"])
def test_strided_inputs_are_read_where_they_lie(kernel: ModuleType, view: str) -> None:
    def make(seed: int) -> Any:
        if view == "transposed":
            return random(2, 40, 3, 32, dtype="fp16", seed=seed).transpose(1, 2)
        if view == "sliced":
            return random(2, 6, 80, 32, dtype="fp16", seed=seed)[:, ::2, ::2]
        if view == "misaligned":
            return random(2 * 3 * 40 * 32 + 1, dtype="fp16", seed=seed)[1:].view(2, 3, 40, 32)
        return random(2, 3, 40, 64, dtype="fp16", seed=seed)[..., ::2]

    q, k, v = make(1), make(2), make(3)
    assert_right(kernel, q, k, v, True, 0.2, "fp16")
    out, _ = kernel.forward(q, k, v, causal=True, scale=0.2)
    assert (out.transpose(1, 2) if view == "transposed" else out).is_contiguous()


FORMS: list[dict[str, Any]] = [{}, {"window_size": (7, 0)}, {"softcap": 2.0, "window_size": (5, 9)}, {"sinks": True}]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "lengths", [[(5, 5)], [(40, 40), (1, 1), (70, 70)], [(0, 9), (33, 0), (3, 50), (50, 3), (0, 0), (65, 64)]], ids=str
)
def test_packed_sequences(
    kernel: ModuleType, lengths: list[tuple[int, int]], form: dict[str, Any], causal: bool
) -> None:
    """Each as if it were alone."""
    cu_q, cu_k = (torch.tensor([0, *(one[side] for one in lengths)]).cumsum(0).int() for side in (0, 1))
    q = random(int(cu_q[-1]), 4, 16, dtype="fp16", seed=1)
    k, v = (random(int(cu_k[-1]), 2, 16, dtype="fp16", seed=seed) for seed in (2, 3))
    sinks = random(4, dtype="fp16", seed=4) if form.get("sinks") else None
    asked = {**form, "sinks": sinks}
    out, lse = kernel.packed_forward(
        q, k, v, cu_q, cu_k, int(cu_q.diff().max()), form=Form.of(causal, **asked), scale=0.2, sinks=sinks
    )
    assert (out.shape, lse.shape) == (q.shape, (4, len(q)))
    for (a, b), (c, d) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        one = (q[a:b], k[c:d], v[c:d])
        expected, expected_lse = oracle(*(x.transpose(0, 1)[None] for x in one), causal, 0.2, **asked)
        assert torch.allclose(out[a:b].double(), expected[0].transpose(0, 1), atol=5e-3)
        assert torch.allclose(lse[:, a:b].double(), expected_lse[0], atol=1e-4)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # tanh is 1 there
@pytest.mark.parametrize("softcap", [0.1, 1e3, 1e6, 1e9])
def test_soft_caps_of_any_size(kernel: ModuleType, softcap: float) -> None:
    q, k, v = (random(1, 2, 70, 32, dtype="fp32", seed=seed) for seed in (1, 2, 3))
    assert_right(kernel, q, k, v, True, 0.3, "fp32", softcap=softcap)


def test_nothing_to_do(kernel: ModuleType) -> None:
    out, lse = kernel.forward(
        torch.empty(0, 2, 5, 16), torch.empty(0, 2, 5, 16), torch.empty(0, 2, 5, 16), causal=False, scale=1.0
    )
    assert out.shape == (0, 2, 5, 16)
    assert lse.shape == (0, 2, 5)


def test_large_scores_do_not_overflow(kernel: ModuleType) -> None:
    q, k, v = (random(1, 1, 40, 32, dtype="fp32", seed=seed) * 100 for seed in (1, 2, 3))
    out, _ = kernel.forward(q, k, v, causal=False, scale=1.0)
    expected, _ = oracle(q, k, v, False, 1.0)
    assert torch.isfinite(out).all()
    assert (out.double() - expected).abs().max() <= 1e-2


def test_nan_stays_in_its_row(kernel: ModuleType) -> None:
    q, k, v = (torch.randn(1, 1, 20, 16) for _ in range(3))
    q[0, 0, 7] = float("nan")
    o, lse = kernel.forward(q, k, v, causal=False, scale=0.25)
    bad = torch.arange(20) == 7
    assert o[0, 0].isnan().any(dim=1).equal(bad)
    assert lse[0, 0].isnan().equal(bad)


@pytest.mark.parametrize(
    ("strides", "wide"),
    [((64, 1), False), ((2**20, 1), False), ((2**23, 1), True), ((1, 2**26), False), ((1, 2**27), True)],
)
def test_offsets_take_64_bits_where_they_must(kernel: ModuleType, strides: tuple[int, int], wide: bool) -> None:
    far = torch.empty_strided((1, 1, 256, 16), (0, 0, *strides), device="meta")
    near = torch.empty(1, 1, 256, 16, device="meta")
    assert kernel.is_wide(near, far, near) == wide
