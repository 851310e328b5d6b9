"""Linear layers of many rows with their activation in the product, on the GPU: against FP64, with outputs poisoned
before; as one operator of a compiler, in a graph, and in a transformer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.kernels.linear import reference
from groundspeed.kernels.moe import dense, dense_api
from groundspeed.kernels.moe.hopper.choice import Launch
from groundspeed.nn import transformer
from groundspeed.nn.config import TransformerConfig

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="needs compute capability 9.0"
)


DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
ACTIVATIONS = [None, "gelu", "gelu_tanh", "relu2"]


def random(*shape: int, dtype: str = "bf16") -> Any:
    return torch.randn(shape, device="cuda").to(DTYPES[dtype])


def layer(M: int, N: int, K: int, dtype: str = "bf16", *, biased: bool = True) -> list[Any]:
    made = [random(M, K, dtype=dtype), (random(N, K, dtype="bf16").float() / K**0.5).to(DTYPES[dtype])]
    return [*made, random(N, dtype=dtype)] if biased else made


def assert_close(out: Any, told: list[Any], activation: str | None, dtype: str = "bf16") -> None:
    expected = reference.linear(*told, activation=activation)
    error = (out.double() - expected).square().mean(-1).sqrt()
    assert (error <= reference.ERROR[dtype] * expected.square().mean(-1).sqrt()).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("M", "N", "K"), [(2048, 3072, 768), (1000, 264, 72), (1, 256, 64), (129, 1032, 200), (4099, 8192, 2048)]
)
def test_products_with_a_bias(M: int, N: int, K: int, activation: str | None, dtype: str) -> None:
    told = layer(M, N, K, dtype)
    multiply = dense.prepared(
        *told[:2], capability=(9, 0), hopper=True, activation=activation, biased=True, launch=Launch()
    )
    blocks = [torch.full((M, N), float("nan"), device="cuda", dtype=DTYPES[dtype]) for _ in range(3)]
    del blocks
    out = multiply(*told)
    assert_close(out, told, activation, dtype)
    for _ in range(3):
        assert torch.equal(multiply(*told), out)


@pytest.mark.parametrize("launch", [Launch(lag=2), Launch(block_n=128, stages=6), Launch(1, stages=5)], ids=str)
def test_other_tiles_with_a_bias(launch: Launch) -> None:
    told = layer(2000, 1160, 1024)
    multiply = dense.prepared(*told[:2], capability=(9, 0), hopper=True, activation="gelu", biased=True, launch=launch)
    assert_close(multiply(*told), told, "gelu")


def test_what_is_chosen_is_used_and_right() -> None:
    told = layer(2048, 8192, 512)
    assert dense_api.is_chosen(*told, "gelu")
    with torch.inference_mode():
        out = gs.linear(*told, activation="gelu")
        assert torch.equal(out, dense_api.activated_linear(*told, "gelu"))
        assert_close(out, told, "gelu")
        gated = layer(2048, 8192, 512, biased=False)
        assert_close(gs.linear(*gated, activation="swiglu"), gated, "swiglu")
        batch = gs.linear(told[0].view(4, 512, 512), *told[1:], activation="gelu")
        assert torch.equal(batch.view(2048, 8192), out)


def test_under_a_compiler_at_any_address_and_in_a_graph() -> None:
    told = layer(2048, 8192, 512)
    with torch.inference_mode():
        expected = gs.linear(*told, activation="gelu")
        compiled = torch.compile(lambda *given: gs.linear(*given, activation="gelu"), fullgraph=True, dynamic=False)
        assert torch.equal(compiled(*told), expected)
        apart = torch.empty(2048 * 512 + 1, dtype=torch.bfloat16, device="cuda")[1:].view(2048, 512)
        apart.copy_(told[0])
        assert_close(compiled(apart, *told[1:]), told, "gelu")
        assert_close(gs.linear(apart, *told[1:], activation="gelu"), told, "gelu")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = gs.linear(*told, activation="gelu")
        told[0].copy_(random(2048, 512))
        graph.replay()
        assert torch.equal(out, gs.linear(*told, activation="gelu"))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu2", "swiglu"])
def test_a_network_of_a_transformer(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with its activation in the product and beside it, as far as rounding allows."""
    config = TransformerConfig(1, 512, 8, intermediate=8192, activation=activation, bias=activation != "swiglu")
    network = transformer.MLP(config, device="cuda", dtype=torch.bfloat16).eval()
    x = random(4, 512, 512)
    with torch.inference_mode():
        found = network(x)
        monkeypatch.setattr(transformer, "pays", lambda rows, columns, K: False)
        beside = network(x)
    assert not torch.equal(found, beside)  # the product is not rounded before its activation
    assert (found - beside).double().norm() <= 8e-3 * beside.double().norm()
