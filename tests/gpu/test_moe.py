"""B1 on the GPU: a mixture of experts against FP64, for tokens from one to many, all kinds of routing and experts, and
the same bits each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groundspeed.kernels.moe import api, dense, layer, reference
from groundspeed.kernels.moe.form import Routing
from groundspeed.kernels.moe.hopper.choice import Transposed
from groundspeed.nn import MoE

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
RMS_REL = {"fp16": 7e-4, "bf16": 5e-3}
"""Of two roundings, that of what is between the products and that of the result."""
ROUNDING = 1e-4
"""Of logits near 1: closer ones may be chosen either way."""


def tensors(T: int, H: int, inner: int, E: int, activation: str, dtype: str, skew: float = 0.0) -> list[Any]:
    """`skew`: the first experts get most of the tokens."""
    wide = 2 if activation == "swiglu" else 1
    sizes = (T, H), (E, H), (E, wide * inner, H), (E, H, inner)
    made = [torch.randn(size, device="cuda") * (1.0 if i == 0 else size[-1] ** -0.5) for i, size in enumerate(sizes)]
    made[0][:, 0] = 1.0
    made[1][:, 0] = -skew * torch.arange(E, device="cuda").log1p()
    return [tensor.to(DTYPES[dtype]) for tensor in made]


def assert_right(told: list[Any], activation: str, dtype: str, impl: str, bias: Any = None, **asked: Any) -> Any:
    routing = Routing(**asked)
    out, routed = api.moe(*told, activation=activation, bias=bias, return_routing=True, impl=impl, **asked)
    rows = torch.randperm(len(told[0]))[:512].cuda()
    right = reference.route(told[0][rows], told[1], routing, bias)
    clear = right.margin > ROUNDING
    assert (~clear).sum() <= max(1, len(rows) // 10)
    assert torch.equal(routed.experts[rows][clear].long(), right.experts[clear])
    expected = reference.moe(*told, routing, activation=activation, bias=bias, rows=rows)[clear]
    assert (out[rows][clear].double() - expected).norm() <= RMS_REL[dtype] * expected.norm()
    assert torch.equal(routed.counts, routed.experts.flatten().bincount(minlength=len(told[1])).int())
    return out


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("activation", ["gelu", "swiglu", "relu2"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("T", [1, 8, 63, 64, 65, 777, 4096, 20000])
def test_tokens(T: int, dtype: str, activation: str, impl: str) -> None:
    assert_right(tensors(T, 512, 1024, 16, activation, dtype), activation, dtype, impl, top_k=2)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize(("H", "inner", "E", "top_k"), [(264, 328, 5, 5), (2048, 768, 128, 8), (1024, 40, 3, 1)])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_odd_sizes_and_many_experts(H: int, inner: int, E: int, top_k: int, score: str, impl: str) -> None:
    told, bias = tensors(1500, H, inner, E, "swiglu", "bf16"), torch.randn(E, device="cuda") / 10
    assert_right(told, "swiglu", "bf16", impl, bias, top_k=top_k, score=score, renormalize=E > 3, scale=1.5)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("skew", [1.0, 8.0])
def test_skewed_routing_and_experts_without_tokens(skew: float, impl: str) -> None:
    told = tensors(3000, 512, 512, 24, "gelu", "bf16", skew)
    _, routed = api.moe(*told, top_k=2, activation="gelu", return_routing=True, impl=impl)
    assert (routed.counts == 0).any() == (skew > 1)
    assert_right(told, "gelu", "bf16", impl, top_k=2)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
def test_a_router_in_fp32_decides_as_fp64_does(impl: str) -> None:
    told = tensors(4096, 1024, 256, 32, "gelu", "bf16")
    told[1] = torch.randn(32, 1024, device="cuda") / 32
    routed = api.moe(*told, top_k=2, activation="gelu", return_routing=True, impl=impl)[1]
    right = reference.route(*told[:2], Routing(2))
    clear = right.margin > 1e-5
    assert torch.equal(routed.experts[clear].long(), right.experts[clear])


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("T", [7, 1000])
def test_the_same_bits_a_thousand_times_and_in_a_graph(T: int, impl: str) -> None:
    """Also of few tokens, whose kernels are begun while those before them still run."""
    told = tensors(T, 512, 512, 16, "swiglu", "bf16")
    first = api.moe(*told, top_k=2, impl=impl)
    for _ in range(1000):
        assert torch.equal(api.moe(*told, top_k=2, impl=impl), first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = api.moe(*told, top_k=2, impl=impl)
    told[0].copy_(told[0].flip(0))
    graph.replay()
    assert torch.equal(out, first.flip(0))


@pytest.mark.parametrize("activation", ["gelu", "swiglu", "relu2"])
@pytest.mark.parametrize("long_first", [False, True])
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_with_operands_exchanged(activation: str, skew: float, long_first: bool) -> None:
    """Tiles of up to 160 rows: with and without their last 32."""
    told = tensors(1000, 512, 1032, 16, activation, "bf16", skew)
    launches = (Transposed(long_first=long_first),) * 2
    forward = layer.prepared(*told, Routing(2), activation, capability=(9, 0), hopper=True, launches=launches)
    first = forward(*told)[0]
    clear = reference.route(told[0], told[1], Routing(2)).margin > ROUNDING
    expected = reference.moe(*told, Routing(2), activation=activation, rows=torch.arange(1000).cuda())[clear]
    assert (first[clear].double() - expected).norm() <= RMS_REL["bf16"] * expected.norm()
    for _ in range(1000):
        assert torch.equal(forward(*told)[0], first)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
def test_nan_stays_with_its_token(impl: str) -> None:
    told = tensors(500, 256, 256, 8, "gelu", "bf16")
    told[0][77, 3] = float("nan")
    spoilt = api.moe(*told, top_k=2, activation="gelu", impl=impl).isnan().any(1)
    assert spoilt.nonzero().flatten().tolist() == [77]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_the_module_under_a_compiler_is_one_graph_and_no_tokens_are_none() -> None:
    layer = MoE(256, 512, 8, 2, shared_intermediate=128, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(3, 100, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        expected = layer(x)
        compiled = torch.compile(layer, fullgraph=True)(x)
        assert (compiled - expected).abs().max() <= 0.02 * expected.abs().max()
        assert layer(x[:, :0]).shape == (3, 0, 256)
    with pytest.warns(UserWarning, match="this call needs gradients"):
        layer(x).sum().backward()
    assert layer.up.grad is not None


def test_memory() -> None:
    """Rows of what is between the products, and of what goes in and out of them; nothing else of that size."""
    T, H, inner, E, top_k = 8192, 1024, 2048, 16, 2
    told = tensors(T, H, inner, E, "gelu", "bf16")
    api.moe(*told, top_k=top_k, activation="gelu", impl="hopper")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    api.moe(*told, top_k=top_k, activation="gelu", impl="hopper")
    rows = T * top_k + 63 * E
    assert torch.cuda.max_memory_allocated() - before <= 1.01 * 2 * (rows * (inner + 2 * H) + T * H)


@pytest.mark.parametrize("hopper", [True, False], ids=["hopper", "triton"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("M", "N", "K"), [(1, 64, 64), (64, 11008, 4096), (4099, 1032, 520), (8192, 4096, 1024)])
def test_b3_a_plain_product(M: int, N: int, K: int, dtype: str, hopper: bool) -> None:
    a, b = (torch.randn(size, device="cuda").to(DTYPES[dtype]) for size in ((M, K), (N, K)))
    first = dense.matmul(a, b, hopper=hopper)
    rows = torch.randint(M, (256,), device="cuda")
    expected = a[rows].double() @ b.double().T
    error = (first[rows].double() - expected).square().mean().sqrt()
    assert error <= RMS_REL[dtype] * expected.square().mean().sqrt()
    assert torch.equal(dense.matmul(a, b, hopper=hopper), first)
