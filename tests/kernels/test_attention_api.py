"""gs.attention on a CPU: PyTorch's path, said once; a named implementation serves or raises."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import groundspeed as gs
from groundspeed.kernels import calls
from groundspeed.kernels.attention import able, api, decode, few, reference, relay, triton
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import launch
from groundspeed.kernels.attention.split import GPU


def test_auto_takes_pytorchs_path_on_a_cpu_and_says_so_once() -> None:
    calls._said.clear()
    q, k, v = (torch.randn(1, 2, 9, 16) for _ in range(3))
    with pytest.warns(UserWarning, match="falls back to PyTorch: our kernels run on NVIDIA GPUs") as seen:
        out = gs.attention(q, k, v, causal=True)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.attention(q, k, v, causal=True)
    expected = reference.attention(q, k, v, causal=True).view(out.shape)
    assert (out.double() - expected).abs().max() < reference.TOLERANCE["fp32"].max_abs


def test_a_named_implementation_that_cannot_serve_names_what_can() -> None:
    q = torch.randn(1, 2, 9, 16)
    with pytest.raises(NotImplementedError, match="tensors are on cpu; impl='torch' or 'auto' can"):
        gs.attention(q, q, q, impl="triton")
    with pytest.raises(NotImplementedError, match="tensors are on cpu; impl='torch' or 'auto' can"):
        gs.attention(q, q, q, impl="hopper")
    with pytest.raises(ValueError, match="auto, hopper, triton, torch"):
        gs.attention(q, q, q, impl="cuda")


@pytest.mark.parametrize(("M", "N"), [(5, 9), (9, 5), (7, 7)])
def test_causal_is_aligned_bottom_right_and_empty_rows_are_zero(M: int, N: int) -> None:
    q = torch.randn(2, 4, M, 16)
    k, v = (torch.randn(2, 2, N, 16) for _ in range(2))
    out, lse = gs.attention(q, k, v, causal=True, return_lse=True, impl="torch")
    scores = q.double() @ k.repeat_interleave(2, 1).double().mT * 16**-0.5
    hidden = torch.arange(N)[None, :] > torch.arange(M)[:, None] + N - M
    scores = scores.masked_fill(hidden, float("-inf"))
    expected = torch.nan_to_num(scores.softmax(-1)) @ v.repeat_interleave(2, 1).double()
    assert (out.double() - expected).abs().max() < 1e-5
    assert torch.equal(lse == float("-inf"), scores.logsumexp(-1) == float("-inf"))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 4), (2, 3, 4)), ((1, 2, 4, 8), (1, 2, 4, 16)), ((1, 3, 4, 8), (1, 2, 4, 8)), ((2, 2, 4, 8), (1, 2, 4, 8))],
)
def test_shapes_that_do_not_fit_are_named(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"\["):
        gs.attention(torch.randn(shapes[0]), torch.randn(shapes[1]), torch.randn(shapes[1]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("impl", ["auto", "torch", "triton"])
def test_dtypes_that_nobody_serves_are_named(dtype: torch.dtype, impl: str) -> None:
    q = torch.zeros(1, 2, 9, 16).to(dtype)
    with pytest.raises(ValueError, match=f"fp16, bf16, fp32 or fp64, not {dtype}: convert them"):
        gs.attention(q, q, q, impl=impl)


def test_tensors_of_different_kinds_say_which() -> None:
    q = torch.randn(1, 2, 9, 16)
    mixed = "torch.float32 on cpu, torch.float16 on cpu, torch.bfloat16 on cpu: use k.to.q. and v.to.q."
    with pytest.raises(ValueError, match=f"share dtype and device, not {mixed}"):
        gs.attention(q, q.half(), q.bfloat16())
    with pytest.raises(ValueError, match=r"share dtype and device, not .*torch.float32 on meta"):
        gs.attention(q, q, q.to("meta"))


@pytest.mark.filterwarnings("ignore:groundspeed.attention falls")
@pytest.mark.parametrize(("dtype", "D"), [(torch.float64, 64), (torch.float32, 512)], ids=str)
def test_pytorchs_path_serves_what_ours_do_not(dtype: torch.dtype, D: int) -> None:
    q, k, v = (torch.randn(1, 2, 9, D, dtype=dtype) for _ in range(3))
    out = gs.attention(q, k, v, causal=True)
    expected = reference.attention(q, k, v, causal=True).view(out.shape)
    assert out.dtype == dtype
    assert (out.double() - expected).abs().max() < reference.TOLERANCE["fp32"].max_abs


def test_gradients_go_through_pytorchs_path() -> None:
    q, k, v = (torch.randn(1, 2, 9, 16, requires_grad=True) for _ in range(3))
    gs.attention(q, k, v, impl="torch").sum().backward()
    assert q.grad is not None


def test_who_needs_to_see_an_operator_gets_one() -> None:
    """Gradients, modes, transforms, tensors of somebody's own: a call that nobody watches goes past PyTorch's."""
    q = torch.randn(2, 2, 9, 16)
    assert calls.is_plain(q, q, q)
    learnt = q.clone().requires_grad_()
    assert not calls.is_plain(q, learnt, q)
    with torch.no_grad():
        assert calls.is_plain(q, learnt, q)
    assert not calls.is_plain(q, torch.nn.Parameter(q), q)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
        assert not calls.is_plain(fake, fake, fake)
        assert not calls.is_plain(q, q, q)
    complex_ = torch.randn(2, 2, 9, 16, dtype=torch.complex64)
    assert not calls.is_plain(q, complex_.conj().imag, q)
    with torch.autograd.forward_ad.dual_level():
        assert not calls.is_plain(q, q, q)
    seen: list[bool] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and used
        torch.jit.trace(lambda x: seen.append(calls.is_plain(x, x, x)) or x + 1, q, check_trace=False)
    assert not any(seen)
    seen.clear()
    torch.func.vmap(lambda x: seen.append(calls.is_plain(x, x, x)) or x)(q)
    assert seen == [False]
    assert calls.is_plain(q, q, q, q[0, :, 0, 0])
    assert not calls.is_plain(q, q, q, learnt[0, :, 0, 0])


@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 9, 0)])
def test_what_is_no_attention_says_so(shape: tuple[int, ...]) -> None:
    q = torch.zeros(shape)
    with pytest.raises(ValueError, match=r"batch, heads, sequence, dim|at least 1"):
        gs.attention(q, q, q)


FORMS: list[dict[str, Any]] = [
    {"causal": True, "window_size": (3, -1)},
    {"window_size": (3, 2)},
    {"window_size": (-1, 4)},
    {"window_size": (0, 0)},
    {"causal": True, "softcap": 1.5},
    {"softcap": 0.5, "window_size": (5, 0)},
    {"sinks": torch.tensor([0.3, -2.0, 4.0, 0.0])},
    {"causal": True, "sinks": torch.tensor([0.3, float("-inf"), 4.0, 0.0]), "window_size": (2, 0), "softcap": 3.0},
]


@pytest.mark.filterwarnings("ignore:groundspeed.attention falls")
@pytest.mark.parametrize("lengths", [(9, 9), (4, 13), (13, 4), (1, 9)])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_windows_soft_caps_and_sinks(form: dict[str, Any], lengths: tuple[int, int]) -> None:
    M, N = lengths
    q, k, v = torch.randn(2, 4, M, 16), torch.randn(2, 2, N, 16), torch.randn(2, 2, N, 16)
    out, lse = gs.attention(q, k, v, return_lse=True, **form)
    expected = reference.attention(q, k, v, **{"causal": False, **form}).view(out.shape)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lse, spelt_out(q, k, **form), rtol=1e-4, atol=1e-5)


def spelt_out(
    q: Any,
    k: Any,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Any = None,
) -> Any:
    """The log-sum-exp, score by score."""
    (B, H, M, D), N = q.shape, k.shape[2]
    lse = torch.full((B, H, M), float("-inf"))
    for b, h, m, n in itertools.product(range(B), range(H), range(M), range(N)):
        distance = n - (m + N - M)
        if (window_size[0] >= 0 and -distance > window_size[0]) or (window_size[1] >= 0 and distance > window_size[1]):
            continue
        if causal and distance > 0:
            continue
        score = q[b, h, m] @ k[b, h // (H // k.shape[1]), n] * D**-0.5
        score = softcap * torch.tanh(score / softcap) if softcap else score
        lse[b, h, m] = torch.logaddexp(lse[b, h, m], score)
    return lse if sinks is None else torch.logaddexp(lse, sinks[:, None].expand(B, H, M))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"is_causal": True},
            r"^attention\(\) does not take is_causal \(use causal=, which aligns the mask to the end",
        ),
        ({"attn_mask": None}, "attn_mask .causal= and window_size= are the masks"),
        ({"dropout_p": 0.0, "causal": True}, "dropout_p .there is no dropout; leave it out"),
        ({"is_causal": True, "enable_gqa": True}, "is_causal .+, enable_gqa .leave it out"),
        ({"casual": True}, r"^attention\(\) got an unexpected keyword argument 'casual'$"),
    ],
)
def test_arguments_of_pytorchs_function_name_the_way_out(given: dict[str, Any], said: str) -> None:
    """Models are changed over by replacing the name of the function."""
    q = torch.randn(1, 2, 9, 16)
    with pytest.raises(TypeError, match=said):
        gs.attention(q, q, q, **given)


@pytest.mark.filterwarnings("ignore:groundspeed.attention falls")
@pytest.mark.parametrize(
    "form", [{"causal": True}, {"window_size": (30, 0), "softcap": 10.0}, {"sinks": torch.ones(4)}]
)
def test_a_compiler_sees_through_every_form(form: dict[str, Any]) -> None:
    q = torch.randn(1, 4, 64, 32)
    compiled = torch.compile(gs.attention, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, q, q, **form), gs.attention(q, q, q, **form))


def test_forms_have_gradients_by_pytorch() -> None:
    q, k, v = (torch.randn(1, 2, 9, 16, requires_grad=True) for _ in range(3))
    sinks = torch.zeros(2, requires_grad=True)
    gs.attention(q, k, v, causal=True, window_size=(3, 0), softcap=2.0, sinks=sinks, impl="torch").sum().backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v, sinks))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"window_size": (-2, 0)}, "window_size must be"),
        ({"window_size": (1, 2, 3)}, "window_size must be"),
        ({"window_size": 5}, "window_size must be .left, right."),
        ({"window_size": None}, "window_size must be"),
        ({"softcap": -1.0}, "softcap must be"),
        ({"softcap": float("nan")}, "softcap must be"),
        ({"sinks": torch.zeros(3)}, "one for each of the 2 query heads"),
        ({"sinks": torch.zeros(4)[::2]}, "contiguous"),
    ],
    ids=str,
)
def test_forms_that_are_none_say_so(wrong: dict[str, Any], said: str) -> None:
    q = torch.randn(1, 2, 9, 16)
    with pytest.raises(ValueError, match=said):
        gs.attention(q, q, q, **wrong)


@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D", "taken"),
    [
        (4, 16, 16, 512, 512, 64, "hopper"),
        (1, 4, 4, 512, 512, 64, "triton"),  # too few tiles
        (1, 16, 16, 512, 512, 64, "hopper"),
        (1, 16, 16, 256, 256, 64, "triton"),  # fewer keys need more of them
        (32, 8, 8, 128, 128, 64, "hopper"),
        (1, 16, 16, 512, 512, 256, "hopper"),
        (1, 12, 12, 512, 512, 256, "triton"),
        (64, 8, 8, 64, 64, 64, "triton"),  # too few keys
        (8, 32, 8, 1, 8192, 128, "decode"),
        (64, 64, 8, 4, 8192, 128, "decode"),
        (64, 8, 8, 16, 300, 64, "triton"),
        (1, 128, 1, 1, 5000, 128, "relay"),  # too many rows for so few keys to be split each with its own workspace
        (1, 32, 4, 16, 4096, 128, "relay"),
        (1, 32, 4, 16, 8192, 128, "relay"),  # decode has three splits of many rows
        (1, 32, 8, 16, 4096, 128, "relay"),
        (1, 32, 4, 8, 4096, 128, "relay"),
        (1, 32, 4, 4, 4096, 128, "decode"),
        (1, 32, 4, 16, 16384, 128, "decode"),
        (1, 32, 16, 16, 8192, 128, "decode"),
        (1, 32, 4, 16, 2500, 128, "triton"),  # the workspace would be more than 5% of the keys
        (4, 32, 4, 16, 4096, 128, "triton"),  # enough tiles
        (1, 32, 4, 16, 4096, 192, "triton"),  # not measured
        (4, 16, 16, 512, 512, 60, "triton"),  # TMA reads multiples of 16 bytes
        (4, 16, 16, 512, 512, 96, "hopper"),
    ],
)
def test_which_kernel_serves(
    B: int, H: int, G: int, M: int, N: int, D: int, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(able, "capability", lambda device: (9, 0))
    for module in (few, relay):
        monkeypatch.setattr(module, "gpu_of", lambda device: GPU.of((9, 0), multiprocessors=132))
    for name, module in (("hopper", launch), ("decode", decode), ("relay", relay), ("triton", triton)):
        monkeypatch.setattr(module, "prepared", lambda *_, name=name, **__: name)
    q, k, v = (torch.empty(B, heads, n, D, dtype=torch.bfloat16) for heads, n in ((H, M), (G, N), (G, N)))
    assert api._prepared(q, k, v, PLAIN[True], 1.0, "auto", False) == taken
    named = taken if taken in ("decode", "relay") else "triton"
    assert api._prepared(q, k, v, PLAIN[True], 1.0, "triton", False) == named
    for other in (Form.of(True, (100, 0)), Form.of(False, softcap=1.0), Form(sinks=True)):
        assert api._prepared(q, k, v, other, 1.0, "auto", False) == ("hopper" if taken == "hopper" else "triton")
    assert api._prepared(q, k, v, Form.of(False, softcap=200.0), 1.0, "auto", False) == "triton"
    if taken == "hopper":
        assert api._prepared(q, k, v, PLAIN[True], -1.0, "auto", False) == "triton"
        odd = torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape)
        assert api._prepared(odd, k, v, PLAIN[True], 1.0, "auto", False) == "triton"
        with pytest.raises(NotImplementedError, match="aligned"):
            api._prepared(odd, k, v, PLAIN[True], 1.0, "hopper", False)


H200 = GPU.of((9, 0), multiprocessors=132)


def sides(
    H: int, G: int, M: int, N: int, D: int, dtype: torch.dtype = torch.bfloat16, V: int | None = None
) -> list[torch.Tensor]:
    shapes = (1, H, M, D), (1, G, N, D), (1, G, N, V or D)
    return [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]


@pytest.mark.parametrize(
    ("told", "suits"),
    [
        (sides(32, 4, 16, 4096, 128), True),
        (sides(32, 4, 16, 4096, 128, V=64), False),  # which it would read beyond their end
        (sides(32, 4, 16, 4096, 128, torch.float32), False),
        (sides(32, 8, 4, 2047, 128), False),  # too few keys
        (sides(32, 8, 4, 2048, 128), True),
        (sides(4, 4, 300, 2300, 128), False),  # not a few queries
        (sides(32, 4, 16, 2599, 128), False),  # over 5% with maxima and sums, under it without
        (sides(32, 4, 16, 2600, 128), True),
    ],
)
def test_what_suits_relay(told: list[torch.Tensor], suits: bool) -> None:
    assert relay.suits(*told, H200) == suits
    share = relay.workspace_bytes(told[0].shape[1], *told[0].shape[2:]) / sum(x.nbytes for x in told[1:])
    assert not suits or share <= 0.05


def test_relay_is_for_tensors_whose_offsets_in_a_row_have_32_bits() -> None:
    q, k, v = sides(32, 4, 16, 4096, 128)
    far = torch.empty_strided(q.shape, (1, 1, 1, 1 << 24), dtype=q.dtype, device="meta")
    assert relay.suits(q, k, v, H200)
    assert not relay.suits(far, k, v, H200)


@pytest.mark.parametrize(
    ("told", "serves"),
    [
        (sides(63, 1, 1, 16384, 128), decode),  # fewer rows were not compared
        (sides(64, 8, 8, 16384, 128), decode),
        (sides(32, 4, 16, 12288, 128), decode),  # by its blocks alone relay is faster, but not with what it hands on
        (sides(32, 4, 16, 8192, 128), relay),
    ],
)
def test_what_serves_where_both_could(told: list[torch.Tensor], serves: Any) -> None:
    assert relay.suits(*told, H200)
    assert decode.suits(*told)
    assert few.kernel(*told, H200) is serves


def test_no_two_launchers_of_relay_take_each_others_flags_for_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(relay, "Launcher", lambda *_: lambda *arguments: told.append(arguments))
    tensors = [torch.empty(x.shape, dtype=x.dtype) for x in sides(8, 1, 4, 2048, 64)]
    for _ in range(2):
        relay.prepared(*tensors, True, gpu=H200)(*tensors, 1.0)
    first, second = (arguments[-2] for arguments in told)
    assert first != second
    assert min(first, second) >= 1 << 60


@pytest.mark.parametrize("module", [decode, relay])
def test_the_result_for_a_few_queries_is_stored_as_they_are(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[B, M, H, D] in memory, as models have them."""
    monkeypatch.setattr(module, "Launcher", lambda *_: lambda *arguments: None)
    monkeypatch.setattr(few, "kernel", lambda *_: module)
    tensors = [torch.empty(1, x.shape[2], x.shape[1], x.shape[3]).half() for x in sides(8, 1, 4, 2048, 64)]
    q, k, v = (x.transpose(1, 2) for x in tensors)
    if module is decode:
        monkeypatch.setattr("groundspeed.kernels.attention.split.Launcher", lambda *_: lambda *arguments: None)
    out, _ = api._prepared(q, k, v, PLAIN[True], 1.0, "triton", False)(q, k, v, 1.0)
    assert (out.shape, out.stride()) == (q.shape, q.stride())


def test_values_of_another_dimension_go_where_they_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(able, "capability", lambda device: (9, 0))
    q, k, v = (torch.empty(4, 16, 512, n, dtype=torch.bfloat16) for n in (256, 256, 128))
    assert able.why_not_hopper(q, k, v, PLAIN[True], 0.1) is None
    assert "value dimensions up to that of the keys" in str(able.why_not_hopper(v, v, k, PLAIN[True], 0.1))
    one = q[:, :, :1]
    assert (decode.suits(one, k, k), decode.suits(one, k, v)) == (True, False)
    for name, module in (("hopper", launch), ("triton", triton)):
        monkeypatch.setattr(module, "prepared", lambda *_, name=name, **__: name)
    assert api._prepared(q, k, v, PLAIN[True], 0.1, "auto", False) == "hopper"
    assert api._prepared(v, v, k, PLAIN[True], 0.1, "auto", False) == "triton"


@pytest.mark.parametrize("form", [{}, {"causal": True}, {"window_size": (5, 0), "softcap": 2.0}], ids=str)
def test_values_of_another_dimension_on_a_cpu(form: dict[str, Any]) -> None:
    q, k, v = (torch.randn(2, heads, n, D) for heads, n, D in ((4, 9, 24), (2, 13, 24), (2, 13, 40)))
    out = gs.attention(q, k, v, impl="torch", **form)
    expected = reference.attention(q, k, v, **{"causal": False, **form})
    assert out.shape == (2, 4, 9, 40)
    assert torch.allclose(out.reshape(-1, 40).double(), expected, atol=1e-5)
    with pytest.raises(ValueError, match="same shape except for dim"):
        gs.attention(q, k, v[:, :, 1:])


def test_a_compiler_knows_how_the_result_lies() -> None:
    """As [B, M, H, D] where q does; of one query both are the same."""
    x = torch.empty(2, 100, 3, 4, 64, device="meta")
    q, k, v = x.permute(2, 0, 3, 1, 4)
    asked = None, -1, -1, 0.0, 1.0, "triton"
    for given, strides in (
        (q, (25600, 64, 256, 1)),
        (q.contiguous(), (25600, 6400, 64, 1)),
        (q[:, :, :1], (256, 64, 64, 1)),
    ):
        out, lse = api._fake(given, k, v, *asked)
        assert (out.shape, out.stride()) == (given.shape, strides)
        assert lse.is_contiguous()
