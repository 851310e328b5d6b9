"""B1 on the GPU: norms, rotary embedding and activations against FP64, outputs poisoned before; odd, strided,
misaligned and very large tensors; in a graph, under a compiler, and the same bits each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from exact import allocated_by
from torch.nn import functional

import groundspeed as gs
from groundspeed.kernels.activation import reference as activation_reference
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.norm import reference as norm_reference
from groundspeed.kernels.norm import triton as norm
from groundspeed.kernels.rotary import reference as rotary_reference

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def random(*shape: int, dtype: str) -> Any:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])


def poison(like: Any, count: int = 2) -> None:
    """Freed memory of the output's size full of NaN, so that an element never written shows."""
    blocks = [torch.full_like(like, float("nan")) for _ in range(count + 1)]
    del blocks


def assert_close(out: Any, expected: Any, tolerance: dict[str, Any], dtype: str) -> None:
    assert out.dtype == DTYPES[dtype]
    error = (out.double() - expected.view(out.shape)).abs()
    assert error.max() <= tolerance[dtype].max_abs
    assert error.square().mean().sqrt() <= tolerance[dtype].rms_rel * expected.square().mean().sqrt()


def assert_differs_in_roundings(one: Any, other: Any, dtype: str) -> None:
    """The sums may be added up in another order, which changes the last bit here and there: in 16 bits rarely."""
    step = torch.finfo(DTYPES[dtype]).eps
    apart = (one.double() - other.double()).abs()
    assert (apart <= 2 * step * other.double().abs()).all()
    assert dtype == "fp32" or (apart > 0).double().mean() < 0.01


def assert_normed(x: Any, weight: Any, bias: Any, residual: Any, dtype: str, centered: bool, eps: float = 1e-5) -> None:
    poison(x)
    if centered:
        found = gs.layer_norm(x, weight, bias, residual=residual, eps=eps, impl="triton")
        expected = norm_reference.layer_norm(x, weight, bias, residual=residual, eps=eps)
    else:
        found = gs.rms_norm(x, weight, residual=residual, eps=eps, impl="triton")
        expected = norm_reference.rms_norm(x, weight, residual=residual, eps=eps)
    y = found if residual is None else found[0]
    assert_close(y, expected, norm_reference.TOLERANCE, dtype)
    assert y.stride() == torch.empty_like(x).stride()
    if residual is not None:
        assert torch.equal(found[1], x + residual)
        if x.is_contiguous() and residual.is_contiguous():  # the norm of the sum as it was rounded
            assert_differs_in_roundings(y, norm.forward(found[1], weight, bias, eps=eps, centered=centered), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("centered", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize(
    ("M", "N"),
    [(1, 4096), (7, 16), (1000, 64), (4099, 128), (33, 1001), (513, 4096), (64, 4104), (300, 5120), (17, 8191),
     (50, 16384), (20, 16392), (9, 40000), (5, 65536), (2, 300000)],
)  # fmt: skip
def test_norms(M: int, N: int, residual: bool, centered: bool, dtype: str) -> None:
    x, added = random(M, N, dtype=dtype), random(M, N, dtype=dtype) if residual else None
    for of in {dtype, "fp32"}:
        assert_normed(x, random(N, dtype=of), random(N, dtype=of) if centered else None, added, dtype, centered)


@pytest.mark.parametrize("N", [1, 2, 5, 15])
def test_norms_of_a_few_elements(N: int) -> None:
    """Which may be close to each other: with a larger eps the digits that are lost there do not matter."""
    for centered in (False, True):
        assert_normed(random(300, N, dtype="fp32"), random(N, dtype="fp32"), None, None, "fp32", centered, eps=0.1)


@pytest.mark.parametrize("N", [520, 20000])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_norms_of_rows_that_lie_apart_turned_and_misaligned(N: int, dtype: str) -> None:
    weight = random(N, dtype=dtype)
    wide = random(3, 4, 5, N + 24, dtype=dtype)
    plain = random(3, 4, 5, N, dtype=dtype)
    views = [
        wide[..., 8 : N + 8],
        wide[..., 1 : N + 1],
        wide[..., :N].transpose(0, 2),
        wide[:, ::2, ::2, :N],
        plain.permute(2, 0, 1, 3),
        plain[:, :1].expand(3, 4, 5, N),
        plain.flatten()[1 : 1 + 2 * N].view(2, N),
    ]
    for x in views:
        assert_normed(x, weight, None, None, dtype, False)
        assert_normed(x, weight, weight, torch.randn_like(x), dtype, True)
        assert_normed(torch.randn_like(x), weight, None, x, dtype, False)
    off = random(N + 1, dtype=dtype)[1:]
    assert_normed(plain, off, off, None, dtype, True)


@pytest.mark.parametrize("N", [128, 4096, 20000])
def test_a_row_has_the_same_bits_whatever_is_beside_it(N: int) -> None:
    x, weight = random(100, N, dtype="bf16"), random(N, dtype="bf16")
    out, alone = gs.layer_norm(x, weight, impl="triton"), gs.layer_norm(x[37:38].clone(), weight, impl="triton")
    assert torch.equal(out[37:38], alone)


def test_a_mean_far_away_from_zero_takes_no_digits_of_the_variance() -> None:
    for N in (4096, 65536):
        x, weight = random(8, N, dtype="fp32") + 1000.0, torch.ones(N, device="cuda")
        expected = norm_reference.layer_norm(x, weight, eps=1e-6)
        assert (gs.layer_norm(x, weight, eps=1e-6, impl="triton") - expected).abs().max() < 1e-3


@pytest.mark.parametrize("N", [100, 20000])
def test_nan_and_infinity_stay_in_their_rows(N: int) -> None:
    x, weight = random(50, N, dtype="bf16"), random(N, dtype="bf16")
    x[7, N - 1], x[33, 0] = float("nan"), float("inf")
    for out in (gs.rms_norm(x, weight, impl="triton"), gs.layer_norm(x, weight, impl="triton")):
        assert out.isnan().any(1).nonzero().flatten().tolist() == [7, 33]
        assert out[7].isnan().all()


def tables(B: int, S: int, half: int, dtype: str = "fp32") -> tuple[Any, Any]:
    angle = torch.rand(B, S, half, device="cuda") * 100
    return angle.cos().to(DTYPES[dtype]), angle.sin().to(DTYPES[dtype])


def assert_turned(q: Any, k: Any, cos: Any, sin: Any, dtype: str) -> None:
    poison(q)
    poison(k)
    made = gs.rotary(q, k, cos, sin, impl="triton")
    for out, right, x in zip(made, rotary_reference.rotary(q, k, cos, sin), (q, k), strict=True):
        assert_close(out, right.reshape(out.shape), rotary_reference.TOLERANCE, dtype)
        assert out.stride() == torch.empty_like(x).stride()
        turned = 2 * cos.shape[2]
        assert torch.equal(out[..., turned:], x[..., turned:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("B", "H", "G", "S", "D", "R"),
    [(1, 32, 8, 1, 128, 128), (3, 32, 8, 517, 128, 128), (2, 16, 16, 300, 64, 64), (2, 5, 3, 77, 80, 32),
     (1, 8, 1, 129, 96, 96), (2, 4, 2, 33, 20, 18), (1, 7, 1, 50, 576, 64), (1, 2, 2, 9, 1024, 1024)],
)  # fmt: skip
def test_rotary(B: int, H: int, G: int, S: int, D: int, R: int, dtype: str) -> None:
    for batches, of in ((1, "fp32"), (B, dtype)):
        cos, sin = tables(batches, S, R // 2, of)
        q, k = (random(B, heads, S, D, dtype=dtype) for heads in (H, G))
        assert_turned(q, k, cos, sin, dtype)
        together = random(B, S, H + 2 * G, D, dtype=dtype).transpose(1, 2)  # as one projection writes them
        assert_turned(together[:, :H], together[:, H : H + G], cos, sin, dtype)
    wide = random(B, H, S, D + 1, dtype=dtype)[..., 1:]
    halves = torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)
    assert_turned(wide, wide[:, :1], *(table[..., : R // 2] for table in halves), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str) -> None:
    def check(x: Any, gate: Any = None) -> None:
        poison(x)
        out = gs.activate(x, name, gate=gate, impl="triton")
        expected = activation_reference.activate(x, name, gate)
        assert_close(out, expected.reshape(out.shape), activation_reference.TOLERANCE, dtype)
        assert out.stride() == torch.empty_like(x if out.shape == x.shape else x[..., : out.shape[-1]]).stride()

    for shape in ((1, 22016), (777, 2816), (3, 50, 64), (129, 1002), (40, 30000)):
        x = random(*shape, dtype=dtype)
        wide = random(*shape[:-1], shape[-1] + 24, dtype=dtype)
        for lying in (x, x.transpose(0, -2), wide[..., 8:-16], wide[..., 1:-23], x[..., 1:-1], x.flatten()[1:-1]):
            check(lying)
            if name == "swiglu":
                check(lying, torch.randn_like(lying))
                check(torch.randn_like(lying), lying)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_number_of_fp16_and_bf16(name: str) -> None:
    for dtype, digits in ((torch.float16, 11), (torch.bfloat16, 8)):
        x = torch.arange(-(1 << 15), 1 << 15, device="cuda").to(torch.int16).view(dtype)
        gate = torch.ones_like(x) if name == "swiglu" else None
        out = gs.activate(x, name, gate=gate, impl="triton").double()
        expected = activation_reference.activate(x, name, gate)
        held = x.isfinite() & expected.to(dtype).isfinite()
        bound = expected.abs() * (2.0**-digits * 1.01 + 1e-4) + 2.0**-24 + 8e-7 * (name == "gelu")
        assert ((out - expected).abs()[held] <= bound[held]).all()
        assert out[x.isnan()].isnan().all()


def test_more_elements_than_fit_32_bits() -> None:
    """Rows before, at and behind 2³¹ elements, and rows that lie that far apart."""
    if torch.cuda.get_device_properties(0).total_memory < 40 << 30:
        pytest.skip("needs 40 GiB")
    N, rows = 4096, torch.tensor([0, (1 << 19) - 1, 1 << 19, (1 << 19) + 1000])
    x = torch.randn((1 << 19) + 1001, N, device="cuda", dtype=torch.bfloat16)
    weight = random(N, dtype="bf16")
    y, total = gs.rms_norm(x, weight, residual=x, impl="triton")
    assert torch.equal(total[rows], x[rows] + x[rows])
    assert_close(y[rows], norm_reference.rms_norm(total, weight, eps=1e-6, rows=rows), norm_reference.TOLERANCE, "bf16")
    del total
    out = gs.activate(x, "gelu", impl="triton")
    right = activation_reference.activate(x[rows], "gelu")
    assert_close(out[rows], right, activation_reference.TOLERANCE, "bf16")
    halved = gs.activate(x, impl="triton")
    right = activation_reference.activate(x[rows], "swiglu")
    assert_close(halved[rows], right, activation_reference.TOLERANCE, "bf16")
    del y, out, halved
    heads = x[: 1 << 19].view(1 << 10, 512, 32, 128).transpose(1, 2)
    cos, sin = tables(1, 512, 64)
    turned, _ = gs.rotary(heads, heads[:, :1], cos, sin, impl="triton")
    right, _ = rotary_reference.rotary(heads[-1:], heads[-1:, :1], cos, sin)
    assert_close(turned[-1:], right.reshape(turned[-1:].shape), rotary_reference.TOLERANCE, "bf16")
    del turned, heads
    far = x.as_strided((3, N), (1 << 30, 1))
    assert_normed(far, weight, None, None, "bf16", False)


CALLS: dict[str, Callable[..., Any]] = {
    "rms_norm": lambda x, w: gs.rms_norm(x, w, impl="triton"),
    "rms_norm, few rows": lambda x, w: gs.rms_norm(x[:2], w, impl="triton"),
    "layer_norm with residual": lambda x, w: gs.layer_norm(x, w, w, residual=x, impl="triton"),
    "short rows": lambda x, w: gs.rms_norm(x.unflatten(-1, (-1, 128)), w[:128], impl="triton"),
    "long rows": lambda x, w: gs.layer_norm(x.view(-1, 32768), torch.ones_like(x[:8].flatten()), impl="triton"),
    "rotary": lambda x, w: gs.rotary(*heads(x), impl="triton"),
    "swiglu": lambda x, w: gs.activate(x, impl="triton"),
    "gelu": lambda x, w: gs.activate(x, "gelu", impl="triton"),
}


def heads(x: Any) -> tuple[Any, ...]:
    """As q, k, cos and sin."""
    q = x.view(4, 64, 32, 128).transpose(1, 2)
    angle = torch.linspace(0, 9, 64 * 64, device="cuda").view(1, 64, 64)
    return q, q[:, :8], angle.cos(), angle.sin()


@pytest.mark.parametrize("name", CALLS)
def test_the_same_bits_200_times_and_in_a_graph(name: str) -> None:
    call, x, weight = CALLS[name], random(256, 4096, dtype="bf16"), random(4096, dtype="bf16")
    first = call(x, weight)
    for _ in range(200):
        torch.testing.assert_close(call(x, weight), first, rtol=0, atol=0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(x, weight)
    other = torch.randn_like(x)
    expected = call(other, weight)
    x.copy_(other)
    graph.replay()
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_under_a_compiler_it_is_one_graph(name: str, dynamic: bool) -> None:
    """Between operators of PyTorch's, whose results it may lay out as it likes."""
    torch.compiler.reset()
    call, x, weight = CALLS[name], random(256, 4096, dtype="bf16"), random(4096, dtype="bf16")

    def model(x: Any, weight: Any) -> Any:
        made = call(x.sin(), weight)
        return [one.float() * 2 for one in (made if isinstance(made, tuple) else (made,))]

    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)(x, weight)
        torch.testing.assert_close(compiled, model(x, weight), rtol=2e-2, atol=2e-2)


def test_no_rows_and_no_elements() -> None:
    x, weight = random(0, 3, 64, dtype="bf16"), random(64, dtype="bf16")
    assert gs.rms_norm(x, weight, impl="triton").shape == x.shape
    assert [t.shape for t in gs.layer_norm(x, weight, residual=x, impl="triton")] == [x.shape] * 2
    assert gs.activate(x, impl="triton").shape == (0, 3, 32)
    assert gs.activate(random(5, 0, dtype="bf16"), "gelu", impl="triton").shape == (5, 0)
    q = random(2, 3, 0, 8, dtype="bf16")
    assert gs.rotary(q, q, *tables(1, 0, 4), impl="triton")[1].shape == q.shape


@pytest.mark.filterwarnings("ignore:groundspeed")
def test_gradients_transforms_and_modes() -> None:
    """What needs gradients goes to PyTorch; what is mapped or only inferred is served by us."""
    x, layer = random(6, 5, 128, dtype="fp32"), gs.nn.RMSNorm(128, device="cuda")
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    expected = functional.rms_norm(x, (128,), layer.weight.detach(), 1e-6)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            torch.testing.assert_close(layer(x), expected)
            assert torch.equal(gs.nn.RMSNorm(128, device="cuda", impl="triton")(x), layer(x))
    assert torch.func.grad(lambda x: layer(x).sum())(x).shape == x.shape
    with torch.no_grad(), torch.device("cpu"):  # where new tensors are made by default; not those of a kernel
        assert gs.activate(x, "gelu").device == x.device
    negative = torch.complex(x, x).conj().imag  # its numbers are negated when they are read
    torch.testing.assert_close(gs.activate(negative.contiguous(), "relu2"), gs.activate(negative, "relu2"))


def test_launches_of_other_sizes_agree() -> None:
    x, weight = random(40, 3000, dtype="fp32"), random(3000, dtype="fp32")
    first = norm.forward(x, weight, eps=1e-6, centered=True)
    for launch in (norm.Launch(1, 4096, 4), norm.Launch(4, 4096, 16), norm.Launch(1, 1024, 4), norm.Launch(1, 512, 8)):
        torch.testing.assert_close(norm.forward(x, weight, eps=1e-6, centered=True, launch=launch), first)


def test_memory() -> None:
    """The results, and nothing else."""
    x, weight = random(4096, 4096, dtype="bf16"), random(4096, dtype="bf16")
    for call, results in ((CALLS["rms_norm"], 1), (CALLS["layer_norm with residual"], 2), (CALLS["gelu"], 1)):
        assert allocated_by(partial(call, x, weight)) == results * x.nbytes


def test_kernels_that_start_early_wait_for_what_they_read() -> None:
    """Through a chain in which each kernel starts before the one ahead has ended: rows, weights and sums that an
    earlier one is still computing; alone and in a graph."""
    rows, N, pairs = 300, 2048, 20
    x, scale = random(rows, N, dtype="bf16"), random(1, N, dtype="bf16")
    matrix = torch.eye(N, device="cuda", dtype=torch.bfloat16)

    def chain(pause: Callable[[], None]) -> Any:
        total, y = x, x
        for _ in range(pairs):
            weight = gs.linear(scale, matrix, activation="relu2")[0]  # for one row, our kernel
            pause()
            y = gs.activate(y, "gelu")
            pause()
            y, total = gs.rms_norm(y, weight, residual=total)
            pause()
        return y, total

    with torch.inference_mode():
        expected = chain(torch.cuda.synchronize)
        for _ in range(20):
            assert all(map(torch.equal, chain(lambda: None), expected))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = chain(lambda: None)
        for _ in range(20):
            graph.replay()
            assert all(map(torch.equal, out, expected))
