"""A1: gs.attention on the device, against FP64, over the shapes, layouts and types it takes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from exact import DTYPES, assert_right, random

import groundspeed as gs
from attention_oracle import oracle
from groundspeed.kernels.attention import decode, relay, split
from groundspeed.kernels.attention.reference import TOLERANCE


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [1, 16, 40, 64, 80, 96, 128, 160, 192, 256])
def test_every_head_dimension(D: int, dtype: str, causal: bool) -> None:
    q, k, v = (random(2, 3, 333, D, dtype=dtype) for _ in range(3))
    assert_right(q, k, v, causal, dtype)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N"),
    [(1, 1, 1, 1, 1), (1, 8, 1, 1, 1000), (3, 8, 2, 17, 4097), (1, 4, 4, 1000, 63), (2, 6, 3, 64, 64),
     (1, 2, 1, 129, 128),
     (1, 2, 2, 2048, 2048), (70000, 1, 1, 3, 5)],
)  # fmt: skip
def test_grouped_heads_and_unequal_lengths(B: int, H: int, G: int, M: int, N: int, dtype: str, causal: bool) -> None:
    q = random(B, H, M, 64, dtype=dtype)
    k, v = (random(B, G, N, 64, dtype=dtype) for _ in range(2))
    assert_right(q, k, v, causal, dtype)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("view", ["BSHD", "sliced", "misaligned", "strided last", "packed qkv", "expanded"])
def test_views_are_read_where_they_lie(view: str, dtype: str) -> None:
    def make() -> Any:
        if view == "BSHD":
            return random(2, 200, 3, 64, dtype=dtype).transpose(1, 2)
        if view == "sliced":
            return random(2, 6, 400, 64, dtype=dtype)[:, ::2, ::2]
        if view == "misaligned":
            return random(2 * 3 * 200 * 64 + 1, dtype=dtype)[1:].view(2, 3, 200, 64)
        if view == "expanded":
            return random(2, 1, 200, 64, dtype=dtype).expand(2, 3, 200, 64)
        return random(2, 3, 200, 128, dtype=dtype)[..., ::2]

    q, k, v = (
        random(2, 200, 3, 3, 64, dtype=dtype).permute(2, 0, 3, 1, 4)
        if view == "packed qkv"
        else (make(), make(), make())
    )
    assert_right(q, k, v, True, dtype)
    out = gs.attention(q, k, v, causal=True)
    assert (out.transpose(1, 2) if view in ("BSHD", "packed qkv") else out).is_contiguous()


def test_a_few_queries_lie_as_they_came() -> None:
    q, k = random(2, 4, 8, 64, dtype="bf16").transpose(1, 2), random(2, 8, 4096, 64, dtype="bf16")
    out = gs.attention(q, k, k, causal=True)
    assert out.transpose(1, 2).is_contiguous()
    assert torch.equal(out, gs.attention(q.contiguous(), k, k, causal=True))


def test_custom_scales() -> None:
    q, k, v = (random(1, 2, 100, 64, dtype="fp16") for _ in range(3))
    for scale in (0.0, 0.01, -0.2, 0.7):
        assert_right(q, k, v, False, "fp16", scale)


def test_an_empty_batch_is_empty() -> None:
    empty = random(0, 4, 10, 64, dtype="fp16")
    assert gs.attention(empty, empty, empty, impl="triton").shape == empty.shape


def test_more_than_2_to_the_31_elements() -> None:
    """B·H·S·D = 2.2·10⁹, and a view whose rows lie 2³¹ elements apart in all."""
    q = torch.randn(1, 9, 2_000_000, 128, device="cuda", dtype=torch.float16)
    k = v = torch.randn(1, 1, 64, 128, device="cuda", dtype=torch.float16)
    out = gs.attention(q, k, v, impl="triton")
    tail = q[:, -1:, -100:]
    assert (out[:, -1:, -100:].double() - oracle(tail, k, v, False, 128**-0.5)[0]).abs().max() < TOLERANCE[
        "fp16"
    ].max_abs
    del out, q
    wide = torch.randn(70_000, 32_768, device="cuda", dtype=torch.float16)[None, None, :, :64]
    rows = torch.randn(1, 1, 16, 64, device="cuda", dtype=torch.float16)
    assert_right(rows, wide, wide, False, "fp16")
    del wide
    heads = torch.randn(40, 1, 1 << 26, device="cuda", dtype=torch.float16)[:, :, : 4096 * 64].view(40, 1, 4096, 64)
    for k in (heads, heads.transpose(0, 1)):  # batch entries, and heads, 2²⁶ elements apart
        q = torch.randn(k.shape[0], 4 * k.shape[1], 4, 64, device="cuda", dtype=torch.float16)
        for module in (decode, relay):
            assert_right(q, k, k, True, "fp16", forward=module.forward)


def test_dimensions_that_lie_far_apart() -> None:
    """[D, M] in memory: 16 dimensions, 2²⁷ elements from one to the next."""
    rows = (1 << 27) + 64
    q = torch.randn(16, rows, device="cuda", dtype=torch.float16).t()[None, None]
    k = v = torch.randn(1, 1, 64, 16, device="cuda", dtype=torch.float16)
    out = gs.attention(q, k, v, impl="triton")
    tail = q[:, :, -100:].contiguous()
    expected = oracle(tail, k, v, False, 16**-0.5)[0]
    assert (out[:, :, -100:].double() - expected).abs().max() < TOLERANCE["fp16"].max_abs


@pytest.mark.parametrize(("D", "V"), [(192, 128), (64, 256), (40, 72)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_another_dimension(dtype: str, D: int, V: int) -> None:
    q, k, v = (
        random(2, heads, n, columns, dtype=dtype) for heads, n, columns in ((4, 300, D), (2, 500, D), (2, 500, V))
    )
    for causal in (False, True):
        assert_right(q, k, v, causal, dtype)


@pytest.mark.parametrize("return_lse", [False, True])
def test_memory_is_what_is_asked_for(return_lse: bool) -> None:
    q, k, v = (random(1, 4, 16384, 64, dtype="bf16") for _ in range(3))
    gs.attention(q, k, v, impl="triton", return_lse=return_lse)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    given: Any = gs.attention(q, k, v, impl="triton", return_lse=return_lse)
    asked = sum(tensor.nbytes for tensor in given) if return_lse else given.nbytes
    assert torch.cuda.max_memory_allocated() - before <= asked + 4096


def test_the_same_call_gives_the_same_bits() -> None:
    q, k, v = (random(2, 4, 777, 64, dtype="bf16") for _ in range(3))
    first = gs.attention(q, k, v, causal=True, impl="triton")
    for _ in range(200):
        assert torch.equal(gs.attention(q, k, v, causal=True, impl="triton"), first)
    assert torch.equal(gs.attention(q, k, v, causal=True, impl="triton", return_lse=True)[0], first)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_torch_compile_keeps_it_in_the_graph() -> None:
    q, k, v = (random(2, 4, 128, 64, dtype="bf16") for _ in range(3))

    def model(q: Any, k: Any, v: Any) -> Any:
        return gs.attention(q * 2, k, v, causal=True, impl="triton") + 1

    compiled = torch.compile(model, fullgraph=True)
    assert torch.allclose(compiled(q, k, v), model(q, k, v), atol=1e-2)


def test_a_call_that_needs_gradients_is_served_by_pytorch_and_says_so() -> None:
    q, k, v = (random(1, 2, 64, 64, dtype="fp16").requires_grad_() for _ in range(3))
    with pytest.raises(NotImplementedError, match="gradients"):
        gs.attention(q, k, v, impl="triton")
    with pytest.warns(UserWarning, match="needs gradients"):
        out = gs.attention(q, k, v)
    out.sum().backward()
    assert q.grad is not None


def test_nan_stays_where_it_belongs() -> None:
    q, k, v = (random(1, 1, 300, 64, dtype="bf16") for _ in range(3))
    q[0, 0, 7] = float("nan")
    out, lse = gs.attention(q, k, v, impl="triton", return_lse=True)
    assert out[0, 0, 7].isnan().all()
    assert lse[0, 0, 7].isnan()
    assert not lse[0, 0, :7].isnan().any()
    assert not out[0, 0, :7].isnan().any()
    assert not out[0, 0, 8:].isnan().any()


def test_what_is_launched_again_is_what_it_was_compiled_for() -> None:
    """The same shapes and strides, aligned or not, wider or narrower, in turn."""
    memory = random(2 * 3 * 200 * 64 + 8, dtype="bf16")
    for _ in range(3):
        for offset in (0, 1, 8):
            q = memory[offset : offset + 2 * 3 * 200 * 64].view(2, 3, 200, 64)
            for causal in (False, True):
                assert_right(q, q, q, causal, "bf16")
        assert_right(*(random(2, 3, 200, 128, dtype="fp16")[..., :64] for _ in range(3)), True, "fp16")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_device_of_the_tensors_counts_and_not_the_current_one() -> None:
    q = torch.randn(1, 2, 100, 64, device="cuda:1", dtype=torch.bfloat16)
    for _ in range(2):
        out = gs.attention(q, q, q, impl="triton")
        expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert torch.allclose(out, expected, atol=5e-2)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D"),
    [(1, 1, 1, 1, 1, 64), (1, 32, 8, 1, 16384, 128), (8, 8, 1, 1, 1000, 64), (2, 8, 8, 16, 4097, 128),
     (1, 8, 2, 4, 131072, 128), (1, 4, 1, 2, 5, 256), (3, 6, 2, 3, 777, 80), (1, 32, 4, 16, 4096, 128),
     (1, 30, 2, 9, 3001, 80), (1, 128, 1, 1, 5000, 128)],
)  # fmt: skip
def test_a_few_queries(B: int, H: int, G: int, M: int, N: int, D: int, dtype: str, causal: bool) -> None:
    q = random(B, H, M, D, dtype=dtype)
    k, v = (random(B, G, N, D, dtype=dtype) for _ in range(2))

    for _ in range(3):
        if split.max_rows(D, q.dtype) >= M * H // G:
            assert_right(q, k, v, causal, dtype, forward=decode.forward)
        assert_right(q, k, v, causal, dtype)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("splits", [1, 2, 5, 40])
@pytest.mark.parametrize(
    ("B", "H", "G", "M", "N", "D"),
    [(1, 32, 4, 16, 4096, 128), (1, 8, 1, 16, 1000, 64), (3, 6, 2, 11, 777, 80), (64, 16, 2, 4, 700, 128),
     (1, 4, 1, 2, 5, 256)],
)  # fmt: skip
def test_what_splits_hand_on(
    B: int, H: int, G: int, M: int, N: int, D: int, splits: int, dtype: str, causal: bool
) -> None:
    """The last two wait for programs that begin after others have ended: there are more than run at once."""
    q = random(B, H, M, D, dtype=dtype)
    k, v = (random(B, G, N, D, dtype=dtype) for _ in range(2))
    for rows in (16, 64):
        served = relay.prepared(q, k, v, causal, relay.Launch(splits, rows))

        def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, served: Any = served) -> Any:
            return served(q, k, v, scale)

        for _ in range(3):
            assert_right(q, k, v, causal, dtype, forward=forward)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("splits", [1, 6])
def test_what_splits_hand_on_of_queries_with_heads_last(splits: int, causal: bool) -> None:
    q = random(2, 16, 32, 128, dtype="bf16").transpose(1, 2)
    k, v = (random(2, 4, 4096, 128, dtype="bf16") for _ in range(2))
    served = relay.prepared(q, k, v, causal, relay.Launch(splits))
    assert_right(q, k, v, causal, "bf16", forward=lambda q, k, v, causal, scale: served(q, k, v, scale))
    out, _ = served(q, k, v, 0.1)
    assert out.transpose(1, 2).is_contiguous()
    plain = q.contiguous()
    assert torch.equal(out, relay.prepared(plain, k, v, causal, relay.Launch(splits))(plain, k, v, 0.1)[0])


def test_what_splits_hand_on_is_the_same_in_each_call_on_two_streams_and_in_a_graph() -> None:
    q = random(1, 32, 16, 128, dtype="bf16")
    k, v = (random(1, 4, 4096, 128, dtype="bf16") for _ in range(2))
    forward = relay.prepared(q, k, v, True, relay.Launch(6, 32))
    expected = forward(q, k, v, 0.1)
    streams = [torch.cuda.Stream() for _ in range(2)]
    found = []
    torch.cuda.synchronize()
    for i in range(1000):
        with torch.cuda.stream(streams[i % 2]):
            found.append(forward(q, k, v, 0.1))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [forward(q, k, v, 0.1) for _ in range(3)]
    for _ in range(100):
        graph.replay()
    torch.cuda.synchronize()
    for out, lse in (*found, *kept):
        assert torch.equal(out, expected[0])
        assert torch.equal(lse, expected[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(500, 500), (64, 1000), (300, 100), (1, 777)], ids=str)
@pytest.mark.parametrize(
    "form",
    [{"window_size": (100, 0)}, {"window_size": (37, 80)}, {"window_size": (-1, 5)}, {"softcap": 20.0}, {"sinks": True},
     {"window_size": (64, -1), "softcap": 1.5, "sinks": True}],
    ids=str,
)  # fmt: skip
def test_windows_soft_caps_and_sinks(form: dict[str, Any], lengths: tuple[int, int], dtype: str) -> None:
    M, N = lengths
    q = random(2, 4, M, 64, dtype=dtype)
    k, v = (random(2, 2, N, 64, dtype=dtype) for _ in range(2))
    form = {**form, "sinks": random(4, dtype=dtype)} if form.get("sinks") else form
    for causal in (False, True):
        assert_right(q, k, v, causal, dtype, **form)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, in its own code
def test_torch_compile_keeps_forms_in_the_graph() -> None:
    q, k, v = (random(2, 4, 128, 64, dtype="bf16") for _ in range(3))
    sinks = random(4, dtype="bf16")

    def model(q: Any, k: Any, v: Any) -> Any:
        return gs.attention(q * 2, k, v, window_size=(30, 0), softcap=10.0, sinks=sinks) + 1

    assert torch.allclose(torch.compile(model, fullgraph=True)(q, k, v), model(q, k, v), atol=1e-2)


@pytest.mark.parametrize(("impl", "dtype"), [("hopper", "bf16"), ("hopper", "fp16"), *(("triton", d) for d in DTYPES)])
@pytest.mark.parametrize("D", [64, 80, 128, 256])
@pytest.mark.parametrize("form", [{}, {"causal": True}, {"causal": True, "window_size": (100, 0)}, {"softcap": 20.0}])
def test_packed_sequences(form: dict[str, Any], D: int, impl: str, dtype: str) -> None:
    if impl == "hopper" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("it cannot serve this")
    lengths = [(500, 500), (1, 700), (0, 5), (33, 33), (300, 100), (64, 0), (2048, 2048)]
    for some in (lengths, lengths[::-1]):  # again, as it was launched before, on other sequences
        cu_q, cu_k = (torch.tensor([0, *(n[side] for n in some)], device="cuda").cumsum(0).int() for side in (0, 1))
        q = random(int(cu_q[-1]), 4, D, dtype=dtype)
        k, v = (random(int(cu_k[-1]), 2, D, dtype=dtype) for _ in range(2))
        out, lse = gs.attention_varlen(q, k, v, cu_q, cu_k, impl=impl, return_lse=True, **form)
        begins = list(zip(cu_q.tolist(), cu_k.tolist(), strict=True))
        for (a, c), (b, d) in itertools.pairwise(begins):
            if a == b:
                continue
            one = [x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d])]
            given = out[a:b].transpose(0, 1)[None], lse[None, :, a:b]
            asked = {key: value for key, value in form.items() if key != "causal"}
            assert_right(*one, form.get("causal", False), dtype, forward=lambda *_, g=given, **__: g, **asked)


@pytest.mark.parametrize("impl", ["hopper", "triton"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [64, 128])
def test_what_is_not_finite_in_one_sequence_is_no_other_ones(D: int, causal: bool, impl: str) -> None:
    if impl == "hopper" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("it cannot serve this")
    lengths = torch.tensor([1, 130, 77, 1000, 64, 333, 5] * 20)
    cu = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int().cuda()
    q, k, v = (random(int(cu[-1]) + 50, 4, D, dtype="bf16") for _ in range(3))
    clean = gs.attention_varlen(q, k, v, cu, cu, 1000, causal=causal, impl=impl)
    spoilt = torch.arange(len(lengths)) % 3 == 1
    rows = spoilt.repeat_interleave(lengths).cuda()
    k[: len(rows)][rows], v[: len(rows)][rows] = float("nan"), float("inf")
    k[len(rows) :], v[len(rows) :] = float("nan"), float("nan")
    out = gs.attention_varlen(q, k, v, cu, cu, 1000, causal=causal, impl=impl)
    assert torch.equal(out[: len(rows)][~rows], clean[: len(rows)][~rows])
    assert out[: len(rows)][rows].isnan().any()
