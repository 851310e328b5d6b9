"""C9 on a CPU: a linear layer with norm, activation and residual in parts, with gradients, under a compiler; what
cannot be served is named; and a transformer takes the kernels for a few tokens only where nobody looks on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

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

pytestmark = [
    pytest.mark.filterwarnings("ignore:groundspeed:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning"),
]
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


@pytest.mark.parametrize("impl", ["auto", "torch"])
def test_a_gate_of_its_own(impl: str) -> None:
    x, weight, gate = torch.randn(2, 3, 40), torch.randn(24, 40), torch.randn(24, 40)
    out = gs.linear(x, weight, gate=gate, activation="swiglu", impl=impl)
    torch.testing.assert_close(out, gs.linear(x, torch.cat([gate, weight]), activation="swiglu", impl=impl))
    torch.testing.assert_close(
        out.double(), reference.linear(x, weight, gate=gate, activation="swiglu"), rtol=1e-4, atol=1e-4
    )


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
    (lambda: gs.linear(X, W[:, :39]), r"x must be \[..., K\] and weight \[N, K\], not \[5, 40\] and \[24, 39\]"),
    (lambda: gs.linear(X, W.half()), "weight must match x, which is torch.float32 on cpu, not torch.float16"),
    (lambda: gs.linear(X, W, torch.zeros(23)), r"bias must be \[24\], torch.float32 on cpu, not \[23\]"),
    (lambda: gs.linear(X, W, residual=X), r"residual must be \[5, 24\], torch.float32 on cpu, not \[5, 40\]"),
    (
        lambda: gs.linear(X, W[:23], activation="swiglu"),
        r"for swiglu, weight must be \[2·N, K\], the gate first, not \[23,",
    ),
    (
        lambda: gs.linear(X, W, activation="silu"),
        "activation='silu' is unknown; choose from swiglu, gelu, gelu_tanh, relu2, or",
    ),
    (lambda: gs.linear(X, W, gate=W), "gate= needs activation='swiglu' and no bias"),
    (
        lambda: gs.linear(X, W, gate=W[:23], activation="swiglu"),
        r"gate must be \[24, 40\], torch.float32 on cpu, not \[23",
    ),
    (lambda: gs.linear(X, W, impl="cuda"), "impl='cuda' is unknown; choose from auto, triton, torch"),
    (lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(39))), r"^norm.weight must be \[40\] in torch.float32 on cpu"),
    (lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(40), torch.ones(39), centered=True)), r"bias must be \[40\]"),
    (lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(40), torch.ones(40))), "a norm that is not centered has no bias"),
    (lambda: gs.linear(X, W, norm=gs.Norm(None)), "weight must be one number for each column, not None"),  # type: ignore[arg-type]
    (lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(40), eps=-100.0)), "eps must be 0 or a positive number, not -100"),
    (
        lambda: gs.linear(X, W, norm=gs.Norm(torch.ones(40, dtype=torch.int64))),
        "norm.weight must be .* in torch.float32 on cpu",
    ),
]


@pytest.mark.parametrize("can", [False, True], ids=["in parts", "in one kernel"])
@pytest.mark.parametrize(("call", "told"), WRONG)
def test_what_does_not_fit_is_said(
    call: Callable[[], Any], told: str, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever would serve."""
    if can:
        monkeypatch.setattr(api, "why_not_ours", lambda *told, **asked: None)
    with pytest.raises(ValueError, match=told):
        call()


def test_what_is_no_norm_and_what_cannot_serve() -> None:
    with pytest.raises(TypeError, match=r"norm must be a groundspeed.Norm\(weight, bias, eps, centered\), not Tensor"):
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
        ({"rows": 1025}, "up to 1024 rows, not 1025"),
        ({"rows": 17, "normed": True}, "applies norms to up to 16 rows, not 17"),
        ({"dtype": torch.float32}, "supports fp16 and bf16, not torch.float32"),
        ({"turned": True}, "needs a single stride between rows"),
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


@pytest.mark.usefixtures("on_a_gpu")
def test_more_rows_take_it_if_the_matrix_is_small_and_kernels_start_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(rows: int, N: int, K: int) -> bool:
        return api.is_chosen(fake(rows, K), fake(N, K))

    monkeypatch.setattr(calls, "is_aligned", lambda tensor: True)
    small, large = (3072, 768), (16384, 4096)
    assert [chosen(rows, *small) for rows in (1, 16, 17, 128, 129)] == [True, True, True, True, False]
    assert [chosen(rows, *large) for rows in (16, 17)] == [True, False]
    for capability in ((8, 0), (12, 0)):
        monkeypatch.setattr(calls, "capability", lambda device, c=capability: c)
        assert [chosen(rows, *small) for rows in (16, 17)] == [True, False]


def test_of_more_rows_the_norm_is_a_kernel_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of long rows; forced, it is refused."""
    seen: list[Any] = []
    monkeypatch.setattr(api, "_recall", api.Recall())
    monkeypatch.setattr(api, "is_roomy", lambda device: True)
    monkeypatch.setattr(calls, "why_not_by_rows", lambda *tensors: None)
    monkeypatch.setattr(calls, "is_plain", lambda *tensors: True)
    monkeypatch.setattr(api, "_launch", lambda x, *told: seen.append(told[3]) or reference.linear(x, told[0]).half())
    plain = torch.nn.functional.rms_norm
    monkeypatch.setattr(api.parts, "normed", lambda x, norm: plain(x.float(), x.shape[-1:], eps=norm.eps).half())
    for rows, K, inside in ((16, 40, True), (16, 1024, True), (17, 40, False), (128, 40, False), (1, 1032, False)):
        weight, norm = torch.randn(24, K).half(), gs.Norm(torch.ones(K).half())
        x = torch.randn(rows, K).half()
        seen.clear()
        out = gs.linear(x, weight, norm=norm)
        assert [told is not None for told in seen] == [inside]
        expected = reference.linear(x, weight, norm=None if inside else norm)
        torch.testing.assert_close(out.double(), expected, rtol=0.02, atol=0.02)
    with pytest.raises(NotImplementedError, match="applies norms to up to 16 rows, not 17"):
        gs.linear(torch.randn(17, 1032).half(), weight, norm=norm, impl="triton")


def test_what_a_launch_is_chosen_for() -> None:
    """Up to 32 rows, all programs run at once where the matrix is not wider than that, with enough bytes of it on their
    way to an H200's multiprocessors, and no more shared memory than there is."""
    for rows, tiles, roomy, K in itertools.product((1, 16, 17, 32), (1, 2), (False, True), (768, 1024, 4096)):
        for columns in (768, 2048, 4096, 6144, 8192, 11008, 12288, 16384, 128256):
            chosen = kernel.Launch.choose(rows, columns, K, tiles, roomy=roomy)
            stage = 2 * chosen.block_k * (tiles * chosen.block_n + chosen.block_m)
            taken = (chosen.num_stages - 1) * stage
            assert taken <= (kernel.ROOMY if roomy else kernel.SHARED)
            programs, places = -(-columns // chosen.block_n), 132 * ((227 << 10) // taken)
            if roomy and rows <= 16 and tiles * columns <= 128 * 132:
                assert programs <= places
            if tiles * columns >= 16 * 132:
                assert programs >= 119
                at_once = (
                    min(programs, places) * taken * tiles * chosen.block_n // (132 * (stage // (2 * chosen.block_k)))
                )
                assert rows > 16 or K == 768 or at_once >= 24576, "bytes of the matrix of each multiprocessor"
    for rows, columns, tiles, roomy in itertools.product((33, 64), (768, 4096, 128256), (1, 2), (False, True)):
        chosen = kernel.Launch.choose(rows, columns, 8192, tiles, roomy=roomy)
        assert 2 * chosen.num_stages * chosen.block_k * (tiles * chosen.block_n + chosen.block_m) <= 98304


def test_the_launches_of_a_small_model_with_128_tokens() -> None:
    """In each product at least three of four multiprocessors have a program, or nearly."""
    sizes = ((1152, 768, 2), (768, 768, 1), (3072, 768, 1), (768, 3072, 1))
    launches = [kernel.Launch.choose(128, N, K, tiles, roomy=True) for N, K, tiles in sizes]
    assert [(x.block_m, x.block_n, x.block_k, x.num_stages, x.parts) for x in launches] == [
        (64, 16, 128, 4, 1),
        (64, 16, 128, 6, 1),
        (64, 64, 128, 5, 1),
        (64, 16, 128, 6, 1),
    ]
    assert [2 * -(-N // x.block_n) for (N, _, _), x in zip(sizes, launches, strict=True)] == [144, 96, 96, 96]


def test_a_call_that_is_like_one_before_is_served_as_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was prepared then; another activation, norm or shape is prepared anew."""
    prepared: list[Any] = []

    def prepare(x: Any, weight: Any, bias: Any, gate: Any, norm: Any, activation: Any, residual: Any, **_: Any) -> Any:
        prepared.append(activation)
        count = float(len(prepared))
        return lambda x, weight, bias, gate, norm, residual: torch.full((len(x), len(weight)), count)

    monkeypatch.setattr(api, "why_not_ours", lambda *told, **asked: None)
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    monkeypatch.setattr(kernel, "prepared", prepare)
    monkeypatch.setattr(api, "_recall", api.Recall())
    scale = torch.ones(40)
    for _ in range(2):
        assert gs.linear(X, W).flatten()[0] == 1
        assert gs.linear(X, W, activation="gelu").flatten()[0] == 2
        assert gs.linear(X, W, norm=gs.Norm(scale)).flatten()[0] == 3
        assert gs.linear(X, W, norm=gs.Norm(scale, eps=1e-3)).flatten()[0] == 3  # an argument of the launch
        assert gs.linear(X, W, norm=gs.Norm(scale, centered=True)).flatten()[0] == 4
        assert gs.linear(X[None], W).shape == (1, 5, 24)
        with pytest.raises(ValueError, match="eps must be 0 or a positive number, not -1"):
            gs.linear(X, W, norm=gs.Norm(scale, eps=-1))
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
        qkv_api.project_paged(torch.randn(2, 500, 40), torch.randn(32, 40), None, norm, None, pages, 2)
    assert prepared == [((6, 40), norm, 2), ((1000, 40), None, 2)]  # of many elements the norm comes before


CONFIG = TransformerConfig(1, 32, 4, key_heads=2, intermediate=48, vocabulary=50, max_positions=64)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """With parameters that are said to be on a GPU."""
    monkeypatch.setattr(calls, "capability", lambda device: (9, 0))
    monkeypatch.setattr(calls, "is_plain", lambda *tensors: True)
    monkeypatch.setattr(calls, "is_aligned", lambda tensor: True)
    monkeypatch.setattr(few_rows, "_recall", few_rows.Recall())
    return as_on_a_gpu(CONFIG)


def as_on_a_gpu(config: TransformerConfig) -> Transformer:
    with torch.device("meta"):
        made = Transformer(config, dtype=torch.float16)
    for module in made.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = fake(*parameter.shape)
    return made


def fake(*shape: int, dtype: torch.dtype = torch.float16, device: str = "cuda") -> Any:
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype, device=device)


def served(model: Transformer, x: Any = None, cache: Any = None) -> bool:
    with torch.no_grad():
        return few_rows.serve(model.blocks[0], fake(2, 3, 32) if x is None else x, cache)


def test_a_transformer_takes_them_for_a_few_tokens(model: Transformer) -> None:
    assert served(model)
    assert served(model, fake(1, 128, 32))  # of a small model
    assert few_rows._is_few(fake(17, 1, 32), cast("Any", object()))
    assert not few_rows._is_few(fake(1, 17, 32), cast("Any", object()))  # a prompt's attention needs no pages
    assert not few_rows._is_few(fake(1, 17, 4096), None)
    for x in (fake(2, 65, 32), fake(0, 3, 32), fake(2, 3, 32, dtype=torch.float32), fake(2, 3, 32, device="cpu")):
        assert not served(model, x)
    other = as_on_a_gpu(TransformerConfig(1, 32, 4, key_heads=2, intermediate=48, bias=True, vocabulary=50))
    assert served(other)  # of another number of tensors
    assert served(as_on_a_gpu(TransformerConfig(1, 32, 4, experts=4, intermediate=48, vocabulary=50)))
    assert served(model)


class Doubled(gs.nn.RMSNorm):
    def forward(self, *told: Any) -> Any:
        return 2 * super().forward(*told)


def hooked(part: torch.nn.Module) -> None:
    part.register_forward_hook(lambda *told: None)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a hook of the block": hooked,
    "a hook of the attention": lambda block: hooked(block.attention),
    "a hook before the network": lambda block: block.mlp.register_forward_pre_hook(lambda *told: None),
    "a hook of a layer": lambda block: hooked(block.mlp.up),
    "a hook of a norm": lambda block: hooked(block.before_mlp),
    "another forward": lambda block: setattr(block.attention.qkv, "forward", lambda x: x),
    "another layer": lambda block: setattr(block.attention, "out", torch.nn.Sequential(block.attention.out)),
    "another network": lambda block: setattr(block, "mlp", torch.nn.Sequential()),
    "another norm": lambda block: setattr(block, "before_mlp", torch.nn.RMSNorm(32)),
    "a norm made of ours": lambda block: setattr(block, "before_mlp", Doubled(32)),
    "a norm that is told what to take": lambda block: setattr(block.before_mlp, "impl", "torch"),
    "a weight elsewhere": lambda block: give(block.attention.qkv, fake(64, 32, device="cpu")),
    "a weight of another dtype": lambda block: give(block.attention.qkv, fake(64, 32, dtype=torch.float32)),
    "a weight of another size": lambda block: give(block.attention.qkv, fake(48, 32)),
    "a norm of another size": lambda block: give(block.before_attention, fake(31)),
}


def give(module: Any, weight: Any) -> None:
    module._parameters["weight"] = weight


@pytest.mark.parametrize("change", CHANGES)
def test_who_put_something_else_in_its_place_or_looks_on_gets_the_parts(model: Transformer, change: str) -> None:
    assert served(model)
    CHANGES[change](model.blocks[0])
    assert not served(model)


def test_hooks_of_all_modules_are_seen(model: Transformer) -> None:
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *told: None)
    try:
        assert not served(model)
    finally:
        hook.remove()
    assert served(model)


def test_a_cache_that_does_not_belong_to_the_model_is_left_to_who_says_so(model: Transformer) -> None:
    def cache(heads: int = 2, dim: int = 8, dtype: torch.dtype = torch.float16) -> Any:
        made = PagedCache(1, heads, dim, pages=2, sequences=2, longest=32, page_size=16, dtype=dtype)
        for pages in (made.k_pages, made.v_pages):
            pages[0] = fake(2, heads, 16, dim, dtype=dtype)
        made.lengths = fake(2, dtype=torch.int32)
        return made

    assert served(model, cache=cache())
    for other in (cache(heads=4), cache(dim=16), cache(dtype=torch.bfloat16)):
        assert not served(model, cache=other)
    assert not served(model, fake(3, 1, 32), cache())


def test_gradients_of_anything_are_left_to_the_parts(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    model.blocks[0].before_mlp._parameters["weight"] = fake(32).requires_grad_()
    assert not few_rows.serve(model.blocks[0], fake(2, 3, 32), None)
    assert served(model)
