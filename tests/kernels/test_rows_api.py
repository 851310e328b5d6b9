"""B1 on a CPU: norms, rotary embedding and activations by PyTorch's path, said once; with gradients; what cannot be
served is named, and a call that is like one before is served as that was."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import groundspeed as gs
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

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
API = {"rms_norm": norm_api, "layer_norm": norm_api, "rotary": rotary_api, "activate": activation_api}


def tables(B: int = 1, S: int = 5, half: int = 4) -> tuple[Any, Any]:
    angle = torch.rand(B, S, half) * 6
    return angle.cos(), angle.sin()


def told(op: str, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """Tensors of an op."""
    if op == "rotary":
        return torch.randn(2, 3, 5, 10).to(dtype), torch.randn(2, 1, 5, 10).to(dtype), *tables()
    if op == "activate":
        return (torch.randn(3, 4, 48).to(dtype),)
    return torch.randn(3, 4, 48).to(dtype), torch.randn(48)


def assert_right(out: Any, expected: Any, tolerance: dict[str, Any], dtype: str) -> None:
    allowed = tolerance["fp32" if dtype == "fp64" else dtype]
    assert out.dtype == DTYPES[dtype]
    error = (out.double() - expected.view(out.shape)).abs()
    assert error.max() <= allowed.max_abs
    assert error.square().mean().sqrt() <= allowed.rms_rel * expected.square().mean().sqrt()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of", ["the same", "fp32"])
def test_norms_agree_with_the_oracle(dtype: str, of: str) -> None:
    torch.manual_seed(0)
    x, residual = (torch.randn(3, 7, 130).to(DTYPES[dtype]) for _ in range(2))
    weight, bias = (torch.randn(130).to(DTYPES[dtype if of == "the same" else of]) for _ in range(2))
    y, total = gs.rms_norm(x, weight, residual=residual, impl="torch")
    assert torch.equal(total, x + residual)
    assert_right(y, norm_reference.rms_norm(total, weight, eps=1e-6), norm_reference.TOLERANCE, dtype)
    y, total = gs.layer_norm(x, weight, bias, residual=residual, impl="torch")
    assert_right(y, norm_reference.layer_norm(total, weight, bias, eps=1e-5), norm_reference.TOLERANCE, dtype)
    y, rows = gs.layer_norm(x, weight, bias.to(x.dtype), eps=0.5, impl="torch"), torch.tensor([20, 3])
    some = norm_reference.layer_norm(x, weight, bias.to(x.dtype), eps=0.5, rows=rows)
    assert_right(y.view(21, 130)[rows], some, norm_reference.TOLERANCE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("R", "batches"), [(10, 1), (4, 2)])
def test_rotary_agrees_with_the_oracle_and_with_complex_numbers(dtype: str, R: int, batches: int) -> None:
    torch.manual_seed(1)
    q, k = (torch.randn(2, 5, heads, 10).to(DTYPES[dtype]).transpose(1, 2) for heads in (3, 1))
    cos, sin = tables(batches, half=R // 2)
    expected = rotary_reference.rotary(q, k, cos, sin)
    for made, right, x in zip(gs.rotary(q, k, cos, sin, impl="torch"), expected, (q, k), strict=True):
        assert_right(made, right.reshape(made.shape), rotary_reference.TOLERANCE, dtype)
        numbers = torch.complex(x[..., : R // 2].double(), x[..., R // 2 : R].double())
        turned = numbers * torch.complex(cos, sin)[:, None]
        torch.testing.assert_close(right, torch.cat([turned.real, turned.imag, x[..., R:].double()], dim=-1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_the_oracle(name: str, dtype: str) -> None:
    x, gate = (torch.randn(3, 7, 64).to(DTYPES[dtype]) for _ in range(2))
    expected = activation_reference.activate(x, name)
    assert expected.shape[-1] == (32 if name == "swiglu" else 64)
    assert_right(gs.activate(x, name, impl="torch"), expected, activation_reference.TOLERANCE, dtype)
    if name == "swiglu":
        by_hand = gate.double() / (1 + (-gate.double()).exp()) * x.double()
        out = gs.activate(x, gate=gate, impl="torch")
        assert_right(out, by_hand, activation_reference.TOLERANCE, dtype)
        assert torch.equal(gs.activate(torch.cat([gate, x], dim=-1), impl="torch"), out)


@pytest.mark.parametrize("op", API)
def test_auto_takes_pytorchs_path_on_a_cpu_and_says_so_once(op: str) -> None:
    calls._said.clear()
    function, tensors = getattr(gs, op), told(op)
    with pytest.warns(
        UserWarning, match=f"groundspeed.{op} falls back to PyTorch: our kernels run on NVIDIA GPUs"
    ) as seen:
        function(*tensors)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(*tensors)
        gs.activate(torch.ones(1, 2))  # what holds for all functions, one says
    with pytest.raises(NotImplementedError, match="tensors are on cpu; impl='torch' or 'auto' can"):
        function(*tensors, impl="triton")
    with pytest.raises(ValueError, match="impl='cuda' is unknown; choose from auto, triton, torch"):
        function(*tensors, impl="cuda")


X, W = torch.randn(5, 24), torch.randn(24)
Q, K = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
COS, SIN = tables()
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: gs.rms_norm(torch.tensor(1.0), W), r"rows x \[..., N\] of at least one element, not \[\]"),
    (lambda: gs.layer_norm(torch.randn(3, 0), torch.randn(0)), r"at least one element, not \[3, 0\]"),
    (lambda: gs.rms_norm(X.int(), W), "fp16, bf16, fp32 or fp64, not torch.int32: convert it"),
    (lambda: gs.rms_norm(X, torch.randn(23)), r"^weight must be \[24\] in torch.float32 on cpu.*not \[23\]"),
    (lambda: gs.rms_norm(X, W.half()), "not .*torch.float16 on cpu"),
    (lambda: gs.rms_norm(X.half(), W.bfloat16()), "weight must be .* in torch.float16 or torch.float32 on"),
    (lambda: gs.rms_norm(X, W.to("meta")), "on cpu.*on meta"),
    (lambda: gs.layer_norm(X, W, torch.randn(1, 24)), r"bias must be \[24\]"),
    (lambda: gs.layer_norm(X, W, residual=X[:1]), r"residual must match x, which is \[5, 24\].*not \[1, 24\]"),
    (lambda: gs.layer_norm(X, W, residual=X.half()), "torch.float16 on cpu: use residual.to.x."),
    (lambda: gs.rms_norm(X, W, eps=-1e-6), "eps must be 0 or a positive number, not -1e-06"),
    (lambda: gs.rms_norm(X, None), "weight must be one number for each column, not None"),
    (lambda: gs.rms_norm(X, W, eps=None), "eps must be 0 or a positive number, not None"),
    (lambda: gs.rms_norm(X, W, eps=float("nan")), "eps must be 0 or a positive number, not nan"),
    (lambda: gs.rotary(Q[0], K, COS, SIN), r"\[batch, heads, sequence, dim\]"),
    (lambda: gs.rotary(Q, K[:, :, :4], COS, SIN), "must have the same shape except for heads"),
    (lambda: gs.rotary(Q, K[:, :0], COS, SIN), "at least one head each"),
    (lambda: gs.rotary(Q, K, COS, SIN[:, :4]), r"both be \[1 or 2, 5, R/2\]"),
    (lambda: gs.rotary(Q, K, COS.expand(3, 5, 4), SIN.expand(3, 5, 4)), r"\[1 or 2, 5, R/2\]"),
    (lambda: gs.rotary(Q[..., :6], K[..., :6], COS, SIN), "R must be from 2 to the head dimension, 6"),
    (lambda: gs.rotary(Q, K, COS[..., :0], SIN[..., :0]), "R must be from 2"),
    (lambda: gs.rotary(Q, K.half(), COS, SIN), "not torch.float32 and torch.float16: use k.to.q."),
    (lambda: gs.rotary(Q, K, COS.half(), SIN.half()), "cos and sin must both be in fp32 or in torch.float32"),
    (lambda: gs.rotary(Q, K, COS, SIN.to("meta")), "share their device, not cpu, cpu, cpu, meta"),
    (lambda: gs.activate(X, "tanh"), "activation='tanh' is unknown; choose from swiglu, gelu, gelu_tanh, relu2"),
    (lambda: gs.activate(X, "gelu", gate=X), "gelu takes no gate"),
    (lambda: gs.activate(X, gate=X[:, :12]), r"gate must match x, which is \[5, 24\].*not \[5, 12\]"),
    (lambda: gs.activate(X, gate=X.half()), "use gate.to.x."),
    (lambda: gs.activate(X[:, :23]), r"swiglu without a gate takes x \[..., 2·N\], not \[5, 23\]"),
    (lambda: gs.activate(X.bool(), "relu2"), "not torch.bool: convert it"),
    (lambda: gs.activate(torch.tensor(1.0), "relu2"), "not a single number"),
]


@pytest.mark.parametrize(("call", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_what_does_not_fit_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


TURN = tables(S=4)
SERVED: dict[str, Callable[..., Any]] = {
    "rms_norm": lambda x: gs.rms_norm(x, torch.ones(48, dtype=x.dtype), impl="torch"),
    "layer_norm": lambda x: gs.layer_norm(x, torch.ones(48, dtype=x.dtype), residual=x, impl="torch")[0],
    "rotary": lambda x: gs.rotary(x.view(1, 3, 4, 48), x.view(1, 3, 4, 48), *TURN, impl="torch")[1],
    "activate": lambda x: gs.activate(x, impl="torch"),
    "gelu": lambda x: gs.activate(x, "gelu", impl="torch"),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, where it differentiates forward
@pytest.mark.parametrize("op", SERVED)
def test_gradients_transforms_and_inference(op: str) -> None:
    x, served = torch.randn(3, 4, 48, dtype=torch.float64), SERVED[op]
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            found = served(x)
        assert torch.equal(found, served(x))

    def summed(x: Any) -> Any:
        return served(x).square().sum()

    learnt = x.clone().requires_grad_()
    summed(learnt).backward()
    torch.testing.assert_close(torch.func.grad(summed)(x), learnt.grad)
    step = torch.randn_like(x)
    _, change = torch.func.jvp(summed, (x,), (step,))
    torch.testing.assert_close(change, (learnt.grad * step).sum())
    torch.testing.assert_close(torch.func.vmap(summed)(x[None]), summed(x)[None])


@pytest.mark.filterwarnings("ignore:groundspeed")
@pytest.mark.parametrize("op", API)
def test_a_compiler_sees_through_pytorchs_path(op: str) -> None:
    tensors, function = told(op), getattr(gs, op)
    for dynamic in (False, True):
        compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=dynamic)
        torch.testing.assert_close(compiled(*tensors), function(*tensors), rtol=0, atol=0)
    if op.endswith("norm"):
        compiled = torch.compile(lambda *t: function(*t, residual=t[0], eps=0.1), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(*tensors), function(*tensors, residual=tensors[0], eps=0.1))


@pytest.mark.parametrize("op", API)
def test_a_compiler_sees_one_operator(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a GPU would be given, since there is none here; results lie as torch.empty_like has them."""
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    seen: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    with FakeTensorMode(), torch.no_grad():
        x = torch.empty(2, 40, 3, 64, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
        weight, cos = torch.empty(64, device="cuda"), torch.empty(1, 40, 16, device="cuda")
        given = {"rotary": (x, x, cos, cos), "activate": (x, "gelu")}.get(op, (x, weight))
        made = torch.compile(getattr(gs, op), fullgraph=True, backend=backend, dynamic=True)(*given)
        for out in made if isinstance(made, tuple) else (made,):
            assert (out.shape, out.stride(), out.dtype, out.device.type) == (x.shape, x.stride(), x.dtype, "cuda")
        halved = gs.activate(x, impl="triton")
        assert (halved.shape, halved.stride()) == ((2, 3, 40, 32), (3840, 32, 96, 1))
        y, total = gs.layer_norm(x, weight, weight, residual=x, impl="triton")
        assert y.stride() == total.stride() == x.stride()
    assert [name for name in seen if "groundspeed" in name] == [
        {"rotary": "groundspeed.rotary_forward", "activate": "groundspeed.activation_forward"}.get(
            op, "groundspeed.norm_forward"
        )
    ]


@pytest.mark.filterwarnings("ignore:groundspeed")
def test_what_our_kernels_do_not_take_goes_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))

    def why(op: str, *tensors: Any, **asked: Any) -> str:
        with pytest.raises(NotImplementedError) as caught:
            getattr(gs, op)(*tensors, impl="triton", **asked)
        return str(caught.value)

    with FakeTensorMode():
        x, weight = torch.empty(3, 5, 64, device="cuda"), torch.empty(64, device="cuda")
        assert "no backward pass yet" in why("rms_norm", x, weight.clone().requires_grad_())
        assert "adjacent elements" in why("rms_norm", x, torch.empty_strided((64,), (2,), device="cuda"))
        assert "adjacent elements" in why("activate", x.mT, "gelu")
        assert "not torch.float64" in why("activate", x.double())
        strides = 1 << 20, 1 << 17, 1 << 14, 1 << 11, 1 << 8, 1
        scattered, some = (torch.empty_strided((2, 2, 2, 2, 2, 64)[-n:], strides[-n:], device="cuda") for n in (6, 4))
        assert "more than four dimensions" in why("layer_norm", scattered, weight)
        assert "more than four dimensions" in why("activate", scattered)
        assert gs.rms_norm(some, weight, impl="triton").shape == (2, 2, 2, 64)
        assert gs.rms_norm(torch.empty(2, 3, 2, 3, 2, 64, device="cuda"), weight, impl="triton").dim() == 6
        assert f"up to {1 << 30} rows" in why(
            "rms_norm", torch.empty((1 << 30) + 1, 1, device="cuda"), torch.empty(1, device="cuda")
        )
        assert "elements, not 16777217" in why("rms_norm", *(torch.empty((1 << 24) + 1, device="cuda"),) * 2)
        q, cos = torch.empty(1, 2, 3, 1026, device="cuda"), torch.empty(1, 3, 4, device="cuda")
        assert "head dimensions up to 1024, not 1026" in why("rotary", q, q, cos, cos)
    monkeypatch.setattr(calls, "capability", lambda device: (7, 5))
    with FakeTensorMode():
        assert "compute capability 8.0" in why("rms_norm", torch.empty(3, 64, device="cuda"), weight)


@pytest.mark.parametrize("op", API)
def test_a_call_that_is_like_one_before_is_served_as_that_was(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it asks for another implementation, or its tensors lie otherwise; the eps is that of the call."""
    made, served = [], []

    def prepared(*told: Any, **asked: Any) -> Any:
        made.append(told)
        return lambda *given: served.append(given) or "ours"

    for module in (norm, rotary, activation):
        monkeypatch.setattr(module, "prepared", prepared)
    monkeypatch.setattr(calls, "why_not_by_rows", lambda *tensors: None)
    monkeypatch.setattr(calls, "capability", lambda device: (8, 0))
    monkeypatch.setattr(API[op], "_recall", type(API[op]._recall)())
    function, tensors = getattr(gs, op), told(op)
    with torch.no_grad():
        assert [function(*tensors), function(*(x.clone() for x in tensors))] == ["ours", "ours"]
        assert len(made) == 1
        assert not isinstance(function(*tensors, impl="torch"), str)
        with pytest.raises(ValueError, match="impl='cuda' is unknown"):
            function(*tensors, impl="cuda")
        x = tensors[0].transpose(0, 1).contiguous().transpose(0, 1)
        assert function(x, *tensors[1:]) == function(x, *tensors[1:]) == "ours"
        assert len(made) == 2
        if op.endswith("norm"):
            served.clear()
            assert [function(*tensors, eps=eps) for eps in (0, 0.25)] == ["ours"] * 2
            assert [given[-1] for given in served] == [0.0, 0.25]
            assert all(type(given[-1]) is float for given in served)
            function(*tensors, residual=tensors[0])
            assert len(made) == 3
            with pytest.raises(ValueError, match="eps must be 0"):
                function(*tensors, eps=-1.0)
        if op == "activate":
            function(*tensors, gate=tensors[0])
            function(*tensors, "relu2")
            assert len(made) == 4


@pytest.mark.parametrize("op", [op for op in API if op != "rotary"])
def test_since_hopper_kernels_start_early(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def prepared(*told: Any, chained: bool, **_: Any) -> Any:
        asked.append(chained)
        return lambda *given: "ours"

    monkeypatch.setattr(calls, "why_not_by_rows", lambda *tensors: None)
    for module in (norm, activation):
        monkeypatch.setattr(module, "prepared", prepared)
    for capability in ((8, 0), (8, 9), (9, 0), (10, 0)):
        monkeypatch.setattr(calls, "capability", lambda device, found=capability: found)
        monkeypatch.setattr(API[op], "_recall", type(API[op]._recall)())
        getattr(gs, op)(*told(op))
    assert asked == [False, False, True, True]


@pytest.mark.parametrize("N", [*range(1, 70), 128, 1000, 4096, 4097, 5120, 16384, 16385, 65536, 1 << 20])
def test_launches_fit_their_rows(N: int) -> None:
    chosen = norm.Launch.choose(N)
    lanes = 32 * chosen.num_warps
    assert (chosen.block_n >= N) == (N <= 16384)
    assert 8 <= chosen.rows * chosen.block_n // lanes <= 32
    turned = rotary.Launch.choose(min(N, 1024) + N % 2, max(1, min(N, 1024) // 2))
    assert turned.rows >= 1
    assert turned.num_warps in (1, 2, 4)
    block = activation.Launch.choose(N)
    assert block.rows * block.block_n == 2048


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_modules_load_what_pytorchs_saved(dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 5, 32).to(dtype), torch.randn(2, 5, 32).to(dtype)
    for theirs, ours in (
        (torch.nn.RMSNorm(32, eps=1e-3), gs.nn.RMSNorm(32, eps=1e-3, impl="torch")),
        (torch.nn.LayerNorm(32), gs.nn.LayerNorm(32, impl="torch")),
        (torch.nn.LayerNorm(32, bias=False), gs.nn.LayerNorm(32, bias=False, impl="torch")),
    ):
        for weight in theirs.parameters():
            torch.nn.init.normal_(weight)
        assert {name: kept.shape for name, kept in ours.state_dict().items()} == {
            name: kept.shape for name, kept in theirs.state_dict().items()
        }
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())
        theirs, ours = theirs.to(dtype), ours.to(dtype)
        torch.testing.assert_close(ours(x), theirs(x))
        y, total = ours(x, residual)
        assert torch.equal(total, x + residual)
        torch.testing.assert_close(y, theirs(total))
        y.sum().backward()
        assert all(weight.grad is not None for weight in ours.parameters())
        ours.reset_parameters()
        assert bool((ours.weight == 1).all())
    assert repr(ours) == "LayerNorm(32, eps=1e-05, bias=False)"
    assert repr(gs.nn.RMSNorm(8, device="meta")) == "RMSNorm(8, eps=1e-06)"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gs.rms_norm([1.0], W), "x must be a tensor, not list"),  # type: ignore[call-overload]
        (lambda: gs.activate("x"), "x must be a tensor, not str"),  # type: ignore[arg-type]
        (lambda: gs.rotary(Q, K, COS, 1.0), "sin must be a tensor, not float"),  # type: ignore[arg-type]
        (lambda: gs.attention("q", K, K), "q must be a tensor, not str"),  # type: ignore[call-overload]
        (lambda: gs.linear(X, torch.nn.Linear(24, 8)), "weight must be a tensor, not Linear"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_tensor_is_told(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()
