"""A linear layer whose product has its activation in it, without a GPU: which calls it serves, and how; and a
transformer takes it only where nobody looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import groundspeed as gs
from groundspeed.kernels import calls, launch
from groundspeed.kernels.activations import activated
from groundspeed.kernels.linear import parts
from groundspeed.kernels.moe import dense, dense_api
from groundspeed.kernels.moe.hopper.choice import NUMBER, Launch
from groundspeed.nn import transformer
from groundspeed.nn.config import TransformerConfig
from groundspeed.suites.inference.shapes import PREFILL, WIDENING

pytestmark = [
    pytest.mark.filterwarnings("ignore:groundspeed:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning"),
]


def test_of_the_nine_prompts_those_are_chosen_whose_tiles_fill_the_gpu() -> None:
    found = {name: dense_api.pays(shape.B * shape.S, WIDENING * shape.d, shape.d) for name, shape in PREFILL.items()}
    assert [name for name, chosen in found.items() if chosen] == [
        "small-16x2048", "medium-4x512", "medium-8x1024", "large-4x512", "large-8x2048",
    ]  # fmt: skip
    assert not dense_api.pays(0, 4096, 64)
    assert not dense_api.pays(100, 132 * 256, 64)  # one round, in which each tile is filled by three quarters
    assert dense_api.pays(128, 132 * 256, 64)
    assert not dense_api.pays(128, 132 * 256, 8256)
    assert not dense_api.pays(1024, 132 * 256, 72)
    assert not dense_api.pays(1024, 132 * 256 - 8, 64)


def test_tiles_and_multiprocessors_are_those_of_the_kernel() -> None:
    """dense_api.py has them again, because it does without triton."""
    assert dense_api.MULTIPROCESSORS == launch.MULTIPROCESSORS
    for rows in (128, 2048, 32768):
        chosen = Launch.choose(rows, 1, 132 * 256, "gelu")
        assert (chosen.rows, chosen.block_n) == dense_api.TILE
    assert set(NUMBER) >= {"gelu", "gelu_tanh", "relu2", "swiglu"}
    assert len(set(NUMBER.values())) == len(NUMBER)


@pytest.fixture
def on_hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    monkeypatch.setattr(calls, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(dense_api, "_recall", dense_api.Recall())
    with FakeTensorMode(), torch.no_grad():
        yield


def some(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> Any:
    return torch.empty(shape, dtype=dtype, device=device)


OTHERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "few rows": lambda: (some(2, 64, 64), some(8448, 64), some(8448), "gelu"),
    "fp32": lambda: tuple(x.float() if isinstance(x, torch.Tensor) else x for x in call()),
    "on a CPU": lambda: (some(2, 1024, 64, device="cpu"), some(8448, 64, device="cpu"), None, "gelu"),
    "a weight of another dtype": lambda: (some(2, 1024, 64), some(8448, 64).half(), None, "gelu"),
    "a weight of another size": lambda: (some(2, 1024, 64), some(8448, 72), None, "gelu"),
    "a bias of another size": lambda: (some(2, 1024, 64), some(8448, 64), some(1), "gelu"),
    "a bias in fp32": lambda: (some(2, 1024, 64), some(8448, 64), some(8448).float(), "gelu"),
    "a gated activation with a bias": lambda: (some(2, 1024, 64), some(8448, 64), some(8448), "swiglu"),
    "rows apart": lambda: (
        torch.empty_strided((2, 1024, 64), (131072, 128, 1), dtype=torch.bfloat16, device="cuda"),
        some(8448, 64),
        None,
        "gelu",
    ),
    "a turned weight": lambda: (
        some(2, 1024, 64),
        torch.empty_strided((8448, 64), (1, 8448), dtype=torch.bfloat16, device="cuda"),
        None,
        "gelu",
    ),
    "odd rows": lambda: (some(2, 1024, 63), some(8448, 63), None, "gelu"),
    "odd columns": lambda: (some(2, 1024, 64), some(8447, 64), None, "gelu"),
    "halves that are odd": lambda: (some(2, 1024, 64), some(8440, 64), None, "swiglu"),
}


def call() -> tuple[Any, ...]:
    return some(2, 1024, 64), some(8448, 64), some(8448), "gelu"


@pytest.mark.usefixtures("on_hopper")
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu2", "swiglu"])
def test_what_is_served(activation: str) -> None:
    x, weight, bias, _ = call()
    assert dense_api.is_chosen(x, weight, None, activation)
    assert dense_api.is_chosen(x, weight, bias, activation) == (activation != "swiglu")
    assert dense_api.is_chosen(x.half(), weight.half(), None, activation)
    out = torch.ops.groundspeed.activated_linear_forward(x, weight, None, activation)
    assert (out.shape, out.dtype) == ((2, 1024, 4224 if activation == "swiglu" else 8448), x.dtype)


@pytest.mark.usefixtures("on_hopper")
@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not(other: str) -> None:
    assert dense_api.is_chosen(*call())
    assert not dense_api.is_chosen(*OTHERS[other]())
    if "odd" in other:  # whatever pays
        assert not dense_api._can_serve(*OTHERS[other]())


@pytest.mark.usefixtures("on_hopper")
def test_on_a_gpu_with_fewer_multiprocessors_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "multiprocessors", lambda device: 114)
    assert not dense_api.is_chosen(*call())


@pytest.mark.usefixtures("on_hopper")
def test_nor_with_gradients_autocast_or_on_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias, activation = call()
    with torch.enable_grad():
        assert dense_api.is_chosen(x, weight, bias, activation)
        assert not dense_api.is_chosen(x, weight.requires_grad_(), bias, activation)
    assert dense_api.is_chosen(x, weight, bias, activation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
        assert not dense_api.is_chosen(x, weight, bias, activation)
    for capability in ((8, 0), (10, 0), (12, 0)):
        monkeypatch.setattr(calls, "capability", lambda device, found=capability: found)
        assert not dense_api.is_chosen(x, weight, bias, activation)


@pytest.mark.usefixtures("on_hopper")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiler_sees_one_operator(dynamic: bool) -> None:
    """Of `gs.linear` and of a network; only where it is chosen."""
    seen: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def ops(function: Callable[..., Any], *told: Any) -> list[str]:
        seen.clear()
        torch.compiler.reset()
        torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)(*told)
        return [name for name in seen if "groundspeed" in name or "linear" in name]

    x, weight, bias, _ = call()
    with torch.device("meta"):
        network = transformer.MLP(TransformerConfig(1, 64, 1, intermediate=8448, activation="gelu", bias=True))
    for layer in (network.up, network.down):
        for name, parameter in layer._parameters.items():
            layer._parameters[name] = some(*parameter.shape)
    fused = "groundspeed.activated_linear_forward"
    assert ops(lambda x: gs.linear(x, weight, bias, activation="gelu"), x) == [fused]
    assert ops(network, x)[0] == fused
    assert len(seen) == 2  # and the second layer
    assert fused not in ops(lambda x: gs.linear(x, weight, bias), x)
    assert fused not in ops(network, some(2, 100, 64))


HOOKED: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda mlp: mlp.up.register_forward_hook(lambda *told: None),
    "a hook before": lambda mlp: mlp.up.register_forward_pre_hook(lambda *told: None),
    "another forward": lambda mlp: setattr(mlp.up, "forward", mlp.up.forward),
    "another layer": lambda mlp: setattr(mlp, "up", torch.nn.Sequential(mlp.up)),
    "a layer made of ours": lambda mlp: setattr(mlp.up, "__class__", type("Own", (torch.nn.Linear,), {})),
}


def test_a_network_leaves_its_parts_to_who_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "pays", lambda *told: True)
    monkeypatch.setattr(transformer, "is_chosen", lambda *told: True)
    monkeypatch.setattr(transformer, "activated_linear", lambda x, *told: x.new_zeros(*x.shape[:-1], 48))

    def made() -> transformer.MLP:
        return transformer.MLP(TransformerConfig(1, 32, 1, intermediate=48, activation="gelu"))

    x = torch.randn(3, 32)
    with torch.no_grad():
        assert not made()(x).any()
        for name, change in HOOKED.items():
            mlp = made()
            change(mlp)
            assert mlp(x).any(), name
        hook = torch.nn.modules.module.register_module_forward_hook(lambda *told: None)
        try:
            assert made()(x).any()
        finally:
            hook.remove()
        assert not made()(x).any()


def test_a_linear_layer_asks_only_if_it_may_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a product alone, a gate of its own, or PyTorch's path; a norm and a residual stay beside it."""
    asked: list[str] = []

    def chosen(x: Any, weight: Any, bias: Any, activation: str) -> bool:
        asked.append(activation)
        return True

    monkeypatch.setattr(parts, "is_chosen", chosen)
    monkeypatch.setattr(
        parts, "activated_linear", lambda x, w, b, activation: activated(functional.linear(x, w, b), activation)
    )
    x, weight, gate, residual = torch.randn(20, 40), torch.randn(24, 40), torch.randn(24, 40), torch.randn(20, 24)
    gs.linear(x, weight)
    gs.linear(x, weight, gate=gate, activation="swiglu")
    gs.linear(x, weight, activation="gelu", impl="torch")
    assert asked == []
    told: dict[str, Any] = {"norm": gs.Norm(torch.rand(40)), "activation": "relu2", "residual": residual}
    torch.testing.assert_close(gs.linear(x, weight, **told), gs.linear(x, weight, **told, impl="torch"))
    assert asked == ["relu2"]


def test_a_call_is_prepared_once_and_served_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []

    def prepare(a: Any, b: Any, *, activation: str, biased: bool, **_: Any) -> Any:
        prepared.append((tuple(a.shape), activation, biased))
        return lambda a, b, *bias: activated(functional.linear(a, b, *bias), activation)

    monkeypatch.setattr(dense, "prepared", prepare)
    monkeypatch.setattr(dense_api, "_recall", dense_api.Recall())
    x, weight, bias = torch.randn(2, 3, 40), torch.randn(24, 40), torch.randn(24)
    for _ in range(2):
        for told in ((bias, "gelu"), (None, "gelu"), (None, "relu2"), (None, "swiglu")):
            out = dense_api.activated_linear(x, weight, *told)
            torch.testing.assert_close(out, activated(functional.linear(x, weight, told[0]), told[1]))
    assert prepared == [((6, 40), "gelu", True), *(((6, 40), a, False) for a in ("gelu", "relu2", "swiglu"))]


def test_where_a_compiler_could_not_know_the_address_the_parts_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "prepared", None)
    x, weight = torch.randn(6 * 40 + 1)[1:].view(6, 40), torch.randn(24, 40)
    out = dense_api.activated_linear(x, weight, None, "gelu")
    torch.testing.assert_close(out, functional.gelu(functional.linear(x, weight)))


def test_the_portable_product_has_neither_activation_nor_bias() -> None:
    a = b = torch.empty(16, 64, dtype=torch.bfloat16)
    for asked in ({"activation": "gelu"}, {"biased": True}):
        with pytest.raises(ValueError, match="the portable product has no bias, and an activation only for experts"):
            dense.prepared(a, b, capability=(9, 0), hopper=False, **asked)  # type: ignore[arg-type]
