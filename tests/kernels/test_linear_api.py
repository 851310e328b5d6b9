"""C9 on a CPU: a linear layer with norm, activation and residual in parts, with gradients, under a compiler; what
cannot be served is named; and a transformer takes the kernels for a few tokens only where nobody looks on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import groundspeed as gs
from groundspeed.kernels import calls
from groundspeed.kernels.linear import api, qkv_api, reference
from groundspeed.kernels.linear import qkv as qkv_kernel
from groundspeed.kernels.linear import triton as kernel
from groundspeed.kernels.linear.form import Pages
from groundspeed.nn import PagedCache, Transformer, TransformerConfig, few_rows

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed:UserWarning")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def norm_of(kind: str, dtype: torch.dtype) -> gs.Norm | None:
    if kind == "none":
        return None
    weight, bias = torch.randn(2, 40).to(dtype)
    return gs.Norm(weight, bias if kind == "layer" else None, 1e-5, kind == "layer")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["none", "rms", "layer"])
@pytest.mark.parametrize("activation", [None, "swiglu", "gelu"])
@pytest.mark.parametrize("impl", ["auto", "torch"])
def test_in_parts_it_agrees_with_the_oracle(impl: str, activation: str | None, kind: str, dtype: str) -> None:
    torch.manual_seed(0)
    wide = 48 if activation == "swiglu" else 24
    x, weight, bias, residual = (
        torch.randn(size).to(DTYPES[dtype]) for size in ((2, 3, 40), (wide, 40), (wide,), (2, 3, 24))
    )
    asked: dict[str, Any] = {"norm": norm_of(kind, x.dtype), "activation": activation, "residual": residual}
    out = gs.linear(x, weight, bias, **asked, impl=impl)
    expected = reference.linear(x, weight, bias, **asked)
    assert (out.shape, out.dtype) == ((2, 3, 24), x.dtype)
    error = (out.double() - expected).square().mean().sqrt()
    assert error <= 2 * reference.ERROR[dtype] * expected.square().mean().sqrt()  # each part rounds


def test_gradients_and_a_compiler_go_through_it() -> None:
    x, weight = torch.randn(5, 40, requires_grad=True), torch.randn(24, 40, requires_grad=True)
    norm = gs.Norm(torch.ones(40, requires_grad=True))
    gs.linear(x, weight, norm=norm, activation="gelu", residual=torch.zeros(5, 24)).sum().backward()
    assert x.grad is not None
    assert norm.weight.grad is not None
    with torch.no_grad():
        compiled = torch.compile(lambda x: gs.linear(x, weight, activation="relu2"), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), gs.linear(x, weight, activation="relu2"))


X, W = torch.randn(5, 40), torch.randn(24, 40)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: gs.linear(X, W[:, :39]), r"x is \[..., K\] and weight \[N, K\], not \[5, 40\] and \[24, 39\]"),
    (lambda: gs.linear(X, W.half()), "weight is like x, which is torch.float32 on cpu, not torch.float16"),
    (lambda: gs.linear(X, W, torch.zeros(23)), r"bias is \[24\], torch.float32 on cpu, not \[23\]"),
    (lambda: gs.linear(X, W, residual=X), r"residual is \[5, 24\], torch.float32 on cpu, not \[5, 40\]"),
    (lambda: gs.linear(X, W[:23], activation="swiglu"), r"of swiglu weight is \[2·N, K\], the gate first, not \[23,"),
    (lambda: gs.linear(X, W, activation="silu"), "activation='silu' is unknown: swiglu, gelu, gelu_tanh, relu2, or"),
    (lambda: gs.linear(X, W, impl="cuda"), "impl='cuda' is unknown: auto, triton, torch"),
    (lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(39))), r"weight is \[40\]"),
]


@pytest.mark.parametrize(("call", "told"), WRONG)
def test_what_does_not_fit_is_said(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        call()
    with pytest.raises(TypeError, match=r"norm is a groundspeed.Norm\(weight, bias, eps, centered\), not Tensor"):
        gs.linear(X, W, norm=torch.ones(40))
    with pytest.raises(NotImplementedError, match="cannot serve this call: our kernels run on NVIDIA GPUs"):
        gs.linear(X, W, impl="triton")


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, None),
        ({"rows": 65}, "up to 64 rows, not 65"),
        ({"rows": 17, "normed": True}, "up to 16 rows with a norm, not 17"),
        ({"dtype": torch.float32}, "takes fp16 and bf16, not torch.float32"),
        ({"turned": True}, "rows that lie at one distance"),
    ],
)
def test_our_kernel_takes_a_few_rows_of_16_bits(told: dict[str, Any], reason: str | None) -> None:
    rows, dtype = told.get("rows", 16), told.get("dtype", torch.float16)
    with FakeTensorMode():
        x, weight = torch.empty(rows, 40, dtype=dtype, device="cuda"), torch.empty(24, 40, dtype=dtype, device="cuda")
        if told.get("turned"):
            x = torch.empty(4, 3, 40, dtype=dtype, device="cuda").transpose(0, 1)
        norm = gs.Norm(torch.empty(40, dtype=dtype, device="cuda")) if told.get("normed") else None
        found = api.why_not_ours(x, weight, norm=norm)
    assert found is None if reason is None else reason in str(found)


def test_what_a_launch_is_chosen_for() -> None:
    """A program for nearly every multiprocessor of an H200, and no more shared memory than two of them have."""
    for rows in (1, 16, 17, 64):
        for columns in (768, 4096, 11008, 12288, 16384, 128256):
            for tiles in (1, 2):
                chosen = kernel.Launch.choose(rows, columns, tiles)
                assert chosen.num_stages >= 2
                assert columns < 4096 or -(-columns // chosen.block_n) >= 119
                stage = 2 * chosen.block_k * (tiles * chosen.block_n + max(16, rows))
                assert (chosen.num_stages - (rows <= 32)) * stage <= kernel.SHARED


def test_a_call_that_is_like_one_before_is_served_as_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was prepared then; another activation, norm or shape is prepared anew."""
    prepared: list[Any] = []

    def prepare(x: Any, weight: Any, bias: Any, norm: Any, activation: Any, residual: Any, **_: Any) -> Any:
        prepared.append(activation)
        count = float(len(prepared))
        return lambda x, weight, bias, norm, residual: torch.full((len(x), len(weight)), count)

    monkeypatch.setattr(api, "why_not_ours", lambda *told: None)
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    monkeypatch.setattr(kernel, "prepared", prepare)
    monkeypatch.setattr(api, "_recall", api.Recall())
    scale = torch.ones(40)
    for _ in range(2):
        assert gs.linear(X, W).flatten()[0] == 1
        assert gs.linear(X, W, activation="gelu").flatten()[0] == 2
        assert gs.linear(X, W, norm=gs.Norm(scale)).flatten()[0] == 3
        assert gs.linear(X, W, norm=gs.Norm(scale, eps=1e-3)).flatten()[0] == 4
        assert gs.linear(X[None], W).shape == (1, 5, 24)
    assert prepared == [None, "gelu", None, None, None]


def test_projections_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []

    def prepare(x: Any, weight: Any, norm: Any, angles: Any, pages: Any, heads: int, **_: Any) -> Any:
        prepared.append((tuple(x.shape), norm, heads))
        return lambda x, *told: torch.zeros(len(x), heads * 8)

    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    monkeypatch.setattr(qkv_kernel, "prepared", prepare)
    monkeypatch.setattr(qkv_api, "_recall", qkv_api.Recall())
    made = torch.zeros(4, 1, 16, 8)
    pages = Pages(made, made.clone(), torch.zeros(2, 4, dtype=torch.int32), torch.ones(2, dtype=torch.int32))
    norm = gs.Norm(torch.ones(40))
    for _ in range(2):
        q = qkv_api.project_paged(torch.randn(2, 3, 40), torch.randn(32, 40), None, norm, None, pages, 2)
        assert q.shape == (2, 2, 3, 8)
        qkv_api.project_paged(torch.randn(2, 20, 40), torch.randn(32, 40), None, norm, None, pages, 2)
    assert prepared == [((6, 40), norm, 2), ((40, 40), None, 2)]  # of many rows the norm comes before


CONFIG = TransformerConfig(1, 32, 4, key_heads=2, intermediate=48, vocabulary=50, max_positions=64)


def served(model: Transformer, tokens: int = 3, cache: PagedCache | None = None, **kind: Any) -> bool:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        x = torch.empty(2, tokens, 32, dtype=kind.get("dtype", torch.float16), device=kind.get("device", "cuda"))
        return few_rows.serve(model.blocks[0], x, cache)


@pytest.mark.usefixtures("on_a_gpu")
def test_who_has_something_else_in_its_place_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of another kind, a hook, a norm that is told what to take, other dtypes and sizes, many rows, a CPU."""
    monkeypatch.setattr(few_rows.calls, "is_plain", lambda *tensors: True)
    with torch.device("meta"):
        model = Transformer(CONFIG, dtype=torch.float16)
    with FakeTensorMode():
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = torch.empty(parameter.shape, dtype=torch.float16, device="cuda")
    assert served(model)
    assert not served(model, tokens=33)
    assert not served(model, dtype=torch.float32)
    assert not served(model, device="cpu")
    hook = model.blocks[0].mlp.up.register_forward_hook(lambda *told: None)
    assert not served(model)
    hook.remove()
    assert served(model)
    model.blocks[0].before_mlp.impl = "torch"
    assert not served(model)
    model.blocks[0].before_mlp.impl = "auto"
    kept = model.blocks[0].attention.out
    model.blocks[0].attention.out = torch.nn.Sequential(kept)
    assert not served(model)
