"""C9 on the GPU: a few rows times a matrix with norm, activation and residual, and queries, keys and values with their
positions and pages, against FP64; outputs poisoned before; in chains, in a graph, and the same bits each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.kernels.activations import ACTIVATIONS
from groundspeed.kernels.linear import reference
from groundspeed.kernels.linear.api import has_norm_apart
from groundspeed.kernels.linear.form import Pages
from groundspeed.kernels.linear.qkv_api import project_paged
from groundspeed.kernels.rotary import reference as rotary_reference

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def random(*shape: int, dtype: str = "bf16") -> Any:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])


def poison(*shape: int, dtype: str) -> None:
    """Freed memory of the output's size full of NaN, so that an element never written shows."""
    blocks = [torch.full(shape, float("nan"), device="cuda", dtype=DTYPES[dtype]) for _ in range(3)]
    del blocks


def assert_close(out: Any, expected: Any, dtype: str, slack: float = 1.0) -> None:
    error = (out.double() - expected.reshape(out.shape)).square().mean().sqrt()
    assert error <= slack * reference.ERROR[dtype] * expected.square().mean().sqrt()


def norm_of(kind: str, K: int, dtype: str) -> gs.Norm | None:
    if kind == "none":
        return None
    return gs.Norm(
        random(K, dtype=dtype) + 1, random(K, dtype=dtype) if kind == "layer" else None, 1e-5, kind == "layer"
    )


def check(M: int, N: int, K: int, kind: str, activation: str | None, dtype: str, *, others: bool = True) -> None:
    wide = 2 * N if activation == "swiglu" else N
    x, weight = random(M, K, dtype=dtype), random(wide, K, dtype=dtype) / K**0.5
    bias = random(wide, dtype=dtype) if others else None
    asked: dict[str, Any] = {"norm": norm_of(kind, K, dtype), "activation": activation}
    asked["residual"] = random(M, N, dtype=dtype) if others else None
    poison(M, N, dtype=dtype)
    out = gs.linear(x, weight, bias, **asked, impl="triton")
    assert_close(out, reference.linear(x, weight, bias, **asked), dtype)
    assert torch.equal(out, gs.linear(x, weight, bias, **asked, impl="triton"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("M", "N", "K"),
    [(1, 12288, 4096), (1, 4096, 16384), (2, 2304, 768), (3, 768, 3072), (8, 16384, 4096), (16, 11008, 4096),
     (5, 1001, 1003), (7, 40, 24), (1, 1, 1), (9, 777, 8200)],
)  # fmt: skip
def test_products(M: int, N: int, K: int, dtype: str) -> None:
    check(M, N, K, "none", None, dtype)
    check(M, N, K, "none", None, dtype, others=False)
    if K >= 16:
        check(M, N, K, "rms", "swiglu", dtype)
        check(M, N, K, "layer", "gelu", dtype)


def test_a_gate_of_its_own() -> None:
    x, weight, gate = random(4, 2048), random(1024, 2048) / 45, random(1024, 2048) / 45
    asked: dict[str, Any] = {"gate": gate, "norm": norm_of("rms", 2048, "bf16"), "activation": "swiglu"}
    out = gs.linear(x, weight, **asked, impl="triton")
    assert_close(out, reference.linear(x, weight, **asked), "bf16")
    del asked["gate"]
    assert torch.equal(out, gs.linear(x, torch.cat([gate, weight]), **asked, impl="triton"))


@pytest.mark.parametrize("M", [17, 33, 64, 130, 200])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_more_rows(M: int, activation: str | None) -> None:
    check(M, 3000, 2048, "none", activation, "bf16")
    x, weight, norm = random(M, 2048), random(600, 2048) / 45, norm_of("layer", 2048, "bf16")
    assert_close(gs.linear(x, weight, norm=norm), reference.linear(x, weight, norm=norm), "bf16", 1.5)


def test_rows_apart_and_misaligned() -> None:
    wide = random(4, 3, 2060)
    weight = random(300, 2048) / 45
    for x in (wide[..., 8:2056], wide[..., 1:2049], wide[:1, :, :2048], wide[:, :1, 3:2051]):
        assert_close(gs.linear(x, weight, impl="triton"), reference.linear(x, weight), "bf16")
    x, off = wide[..., :2048], (random(300 * 2048 + 1) / 45)[1:].view(300, 2048)
    assert_close(gs.linear(x, off, impl="triton"), reference.linear(x, off), "bf16")


def test_a_chain_of_products_waits_for_what_it_reads() -> None:
    """Each begins while the one before runs: 200 products of one another, bit for bit what they are one by one."""
    weights = [random(2048, 2048) / 45 for _ in range(8)]
    norm = gs.Norm(torch.ones(2048, device="cuda", dtype=torch.bfloat16))
    x = start = random(1, 2048)
    for i in range(200):
        x = gs.linear(x, weights[i % 8], norm=norm, residual=x, impl="triton")
    y = start
    for i in range(200):
        y = gs.linear(y, weights[i % 8], norm=norm, residual=y, impl="triton")
        torch.cuda.synchronize()
    assert torch.equal(x, y)
    assert x.isfinite().all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_in_a_graph_and_under_a_compiler() -> None:
    x, weight, residual = random(4, 2048), random(2 * 1024, 2048) / 45, random(4, 1024)
    norm = norm_of("rms", 2048, "bf16")

    def call(x: Any) -> Any:
        return gs.linear(x, weight, norm=norm, activation="swiglu", residual=residual, impl="triton")

    expected = call(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(x)
    out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(out, expected)
    assert torch.equal(torch.compile(call, fullgraph=True)(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    ("B", "S", "H", "G", "D", "K"),
    [
        (1, 1, 32, 8, 128, 4096),
        (8, 1, 32, 32, 128, 4096),
        (8, 1, 40, 40, 128, 1024),  # 32 pairs of columns for a program
        (2, 4, 40, 40, 128, 5120),
        (16, 1, 64, 64, 64, 1024),
        (64, 1, 12, 12, 64, 768),
        (3, 5, 4, 2, 80, 640),
    ],
)
def test_queries_keys_and_values(B: int, S: int, H: int, G: int, D: int, K: int, turned: bool, dtype: str) -> None:
    page = 64
    x, weight = random(B, S, K, dtype=dtype), random((H + 2 * G) * D, K, dtype=dtype) / K**0.5
    bias, norm = random(len(weight), dtype=dtype), norm_of("layer", K, dtype)
    angle = torch.rand(B, S, D // 2, device="cuda") * 100
    angles = (angle.cos(), angle.sin()) if turned else None
    table = torch.randperm(4 * B, device="cuda")[: 3 * B].view(B, 3).int()
    lengths = torch.randint(S, 3 * page + 1, (B,), device="cuda", dtype=torch.int32)
    made = [torch.full((4 * B, G, page, D), float("nan"), device="cuda", dtype=x.dtype) for _ in "kv"]
    pages = Pages(*made, table, lengths)
    poison(B * S, H * D, dtype=dtype)
    q = project_paged(x, weight, bias, norm, angles, pages, H)
    right = reference.linear(x, weight, bias, norm=norm).view(B, S, H + 2 * G, D).transpose(1, 2)
    right_q, right_k, right_v = right.split((H, G, G), dim=1)
    if angles is not None:
        right_q, right_k = rotary_reference.rotary(right_q, right_k, *angles)
    slack = 2.0 if has_norm_apart(x) else 1.5
    assert_close(q, right_q, dtype, slack)
    at = (lengths[:, None] - S + torch.arange(S, device="cuda")).long()
    rows = table.long().gather(1, at // page)
    for found, expected in ((pages.k_pages, right_k), (pages.v_pages, right_v)):
        assert_close(found[rows, :, at % page], expected.transpose(1, 2), dtype, slack)
        assert int((~found.isnan()).sum()) == B * S * G * D
