"""gs.attention_varlen: sequences of different lengths, packed; each is served as if it were alone."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

import groundspeed as gs
from groundspeed.kernels.attention import triton, varlen
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import launch
from groundspeed.kernels.recall import Recall

pytestmark = pytest.mark.filterwarnings("ignore:groundspeed.attention falls")


def packed(lengths: list[tuple[int, int]], H: int = 4, G: int = 2, D: int = 16) -> tuple[Any, ...]:
    cu_q, cu_k = (torch.tensor([0, *(one[side] for one in lengths)]).cumsum(0).int() for side in (0, 1))
    q, k, v = torch.randn(int(cu_q[-1]), H, D), *(torch.randn(int(cu_k[-1]), G, D) for _ in range(2))
    return q, k, v, cu_q, cu_k


@pytest.mark.parametrize("form", [{}, {"causal": True}, {"window_size": (3, 1)}, {"causal": True, "softcap": 2.0}])
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 3.0, 0.0])], ids=["", "sinks"])
def test_each_sequence_by_itself(form: dict[str, Any], sinks: Any) -> None:
    q, k, v, cu_q, cu_k = packed([(5, 5), (1, 1), (0, 4), (9, 3), (3, 9)])
    out, lse = gs.attention_varlen(q, k, v, cu_q, cu_k, sinks=sinks, return_lse=True, **form)
    assert torch.equal(out, gs.attention_varlen(q, k, v, cu_q, cu_k, 9, 9, sinks=sinks, **form))
    for (a, b), (c, d) in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        one = (x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d]))
        expected, expected_lse = gs.attention(*one, sinks=sinks, return_lse=True, **form)
        assert torch.allclose(out[a:b], expected[0].transpose(0, 1), atol=1e-6)
        assert torch.allclose(lse[:, a:b], expected_lse[0], atol=1e-6)


def test_gradients_go_through_pytorchs_path() -> None:
    q, k, v, cu_q, cu_k = packed([(5, 5), (3, 3)])
    q.requires_grad_()
    gs.attention_varlen(q, k, v, cu_q, cu_k, causal=True).sum().backward()
    assert q.grad is not None


def test_who_cannot_serve_says_who_can() -> None:
    tensors = packed([(5, 5)])
    with pytest.raises(NotImplementedError, match="impl='torch' or 'auto' can"):
        gs.attention_varlen(*tensors, impl="triton")
    with pytest.raises(
        ValueError, match="impl='decode' is unknown to attention_varlen; choose from auto, hopper, triton, torch"
    ):
        gs.attention_varlen(*tensors, impl="decode")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, v, a, b: (q[None], k, v, a, b), r"\[total, heads, dim\]"),
        (lambda q, k, v, a, b: (q, k, v[:-1], a, b), "must have the same shape"),
        (lambda q, k, v, a, b: (q[:, :3], k, v, a, b), "multiple of the key heads"),
        (lambda q, k, v, a, b: (q.double(), k, v, a, b), "share dtype"),
        (lambda q, k, v, a, b: (q, k, v.to("meta"), a, b), "share dtype and device.* on meta"),
        (lambda q, k, v, a, b: (q.int(), k.int(), v.int(), a, b), r"not torch.int32: convert them"),
        (
            lambda q, k, v, a, b: (q, k, v, a.float(), b),
            "cu_seqlens_q must be .*int32 or int64.*not .3. of torch.float32",
        ),
        (lambda q, k, v, a, b: (q, k, v, a, b[None]), "cu_seqlens_k must be one-dimensional"),
        (lambda q, k, v, a, b: (q, k, v, a[:0], b), "one number more than"),
        (lambda q, k, v, a, b: (q, k, v, a.repeat_interleave(2)[::2], b), "contiguous"),
        (lambda q, k, v, a, b: (q, k, v, a, b[:-1]), "cu_seqlens_q has 2 sequences, but cu_seqlens_k has 1"),
    ],
)
def test_what_is_no_packed_attention_says_so(change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gs.attention_varlen(*change(*packed([(5, 5), (2, 2)])))


def test_a_list_of_begins_is_no_tensor() -> None:
    q, k, v, _, _ = packed([(5, 5)])
    with pytest.raises(TypeError, match="cu_seqlens_q must be a tensor, not list"):
        gs.attention_varlen(q, k, v, [0, 5], [0, 5])  # type: ignore[arg-type]


WRONG = [
    ([0, 60, 40, 100], "goes from 60 back to 40"),
    ([10, 40, 60, 100], "begins at 10"),
    ([-10, 40, 60, 100], "begins at -10"),
    ([0, 20, 30, 40], "ends at 40"),
    ([0, 20, 40, 120], "ends at 120"),
]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("begins", "said"), WRONG)
def test_sequences_that_are_not_those_of_the_tokens_say_so(begins: list[int], said: str, dtype: Any) -> None:
    x, right, wrong = torch.randn(100, 4, 16), *(torch.tensor(n, dtype=dtype) for n in ([0, 40, 40, 100], begins))
    for longest in (None, 60):
        assert gs.attention_varlen(x, x, x, right, right, longest).shape == x.shape
        with pytest.raises(ValueError, match=f"cu_seqlens_q must begin at 0.* of tokens, 100, .*{said}: .*cumsum"):
            gs.attention_varlen(x, x, x, wrong, right, longest)
        with pytest.raises(ValueError, match=f"cu_seqlens_k must begin at 0.*{said}"):
            gs.attention_varlen(x, x, x, right, wrong, longest, impl="torch")


def test_no_sequences_of_no_tokens() -> None:
    x, none = torch.randn(0, 4, 16), torch.zeros(1, dtype=torch.int32)
    assert gs.attention_varlen(x, x, x, none, none).shape == x.shape
    with pytest.raises(ValueError, match="ends at 0"):
        gs.attention_varlen(torch.randn(3, 4, 16), x, x, none, none)


@pytest.mark.parametrize(("begins", "said"), WRONG)
def test_pytorch_on_a_gpu_takes_padding_and_nothing_outside(begins: list[int], said: str) -> None:
    """As our kernels have it there, which leave out the tokens before the first sequence and behind the last one."""
    if said in ("begins at 10", "ends at 40"):
        assert varlen._begins("cu_seqlens_q", begins, 100, padded=True) == begins
    else:
        with pytest.raises(ValueError, match=said):
            varlen._begins("cu_seqlens_q", begins, 100, padded=True)


def test_a_compiler_may_be_in_between() -> None:
    q, k, v, cu_q, cu_k = packed([(5, 5), (3, 3)])
    compiled = torch.compile(gs.attention_varlen, backend="eager")
    assert torch.equal(
        compiled(q, k, v, cu_q, cu_k, causal=True), gs.attention_varlen(q, k, v, cu_q, cu_k, causal=True)
    )
    with pytest.raises(ValueError, match="cu_seqlens_k must begin at 0"):
        compiled(q, k, v, cu_q, cu_k + 1, causal=True)


def test_a_compiler_keeps_our_kernel_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels are not there on a CPU, so it is only traced."""
    monkeypatch.setattr(varlen.able, "why_not_ours", lambda *_: None)
    traced: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        traced.extend(node.target for node in graph.graph.nodes)
        return lambda *_: (torch.zeros(()),)

    model = torch.compile(lambda *given: gs.attention_varlen(*given, 5) + 1, fullgraph=True, backend=backend)
    model(*packed([(5, 5), (3, 3)]))
    assert any("attention_varlen_forward" in str(target) for target in traced)


@pytest.mark.parametrize(("impl", "module"), [("auto", triton), ("triton", triton), ("hopper", launch)])
def test_the_kernel_is_told_the_form(impl: str, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "packed_prepared", lambda *given: partial(called, *given[3:]))
    monkeypatch.setattr(varlen, "_recall", Recall())

    def called(*given: Any) -> tuple[Any, Any]:
        asked.append((*given[:3], *given[-2:]))
        return None, None

    q, k, v, cu_q, cu_k = packed([(5, 5), (3, 3)])
    for _ in range(2):  # and once more as it was kept
        varlen._forward(q, k, v, cu_q, cu_k, None, 5, 7, 0, 2.0, 0.25, impl)
    assert asked == [(2, 5, Form(7, 0, 2.0, False), 0.25, None)] * 2


def test_a_call_like_one_before_is_launched_as_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the longest sequence, the form or a tensor is another."""
    prepared: list[Any] = []
    monkeypatch.setattr(triton, "packed_prepared", lambda *given: prepared.append(given) or (lambda *_: (given, None)))
    monkeypatch.setattr(varlen.able, "why_not_ours", lambda *_: None)
    monkeypatch.setattr(varlen, "_recall", Recall())
    q, k, v, cu_q, cu_k = packed([(5, 5), (3, 3)])
    other, wider = cu_q.long(), torch.zeros(q.shape[0], q.shape[1], 2 * q.shape[2])[..., : q.shape[2]]
    first = gs.attention_varlen(q, k, v, cu_q, cu_k, 5)
    assert gs.attention_varlen(q.clone(), k, v, cu_q, cu_k, 5, scale=0.5) is first
    assert len(prepared) == 1
    changed: list[tuple[Any, dict[str, Any]]] = [
        ((q, k, v, cu_q, cu_k, 6), {}),
        ((q, k, v, cu_q, cu_k, 5), {"causal": True}),
        ((q, k, v, cu_q, cu_k, 5), {"sinks": torch.zeros(q.shape[1])}),
        ((q, k, v, other, other, 5), {}),
        ((wider, k, v, cu_q, cu_k, 5), {}),
        ((q[:-1], k, v, cu_q, cu_k, 5), {}),
        ((q, k, v, cu_q, cu_k, 5), {"scale": 0.0}),
    ]
    for number, (given, named) in enumerate(changed, 2):
        gs.attention_varlen(*given, **named)
        assert len(prepared) == number
    with pytest.raises(ValueError, match="on cpu"):
        gs.attention_varlen(q, k, v, cu_q[:, None], cu_k, 5)


@pytest.mark.parametrize(
    ("lengths", "heads", "dtype", "taken"),
    [
        ([1024, 1024], 32, torch.bfloat16, launch),
        ([1024, 1023], 32, torch.bfloat16, triton),  # too few
        ([512] * 8, 32, torch.float16, triton),  # too short
        ([1024, 1024], 32, torch.float32, triton),
    ],
)
def test_which_kernel_serves_packed(
    lengths: list[int], heads: int, dtype: Any, taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen.able, "capability", lambda device: (9, 0))
    for module in (launch, triton):
        monkeypatch.setattr(module, "packed_prepared", lambda *_, module=module: module)
    q, k, v, _, _ = packed([(n, n) for n in lengths], H=heads, D=64)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    assert varlen._prepared(q, k, v, len(lengths), max(lengths), PLAIN[True], 0.25, "auto") is taken


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"form": Form(softcap=1e6)}, "soft-cap"),
        ({"dtype": torch.float32}, "fp16 and bf16"),
        ({"keys": 0}, "there are no keys"),
        ({"D": 256, "form": Form(softcap=2.0)}, None),
        ({}, None),
    ],
)
def test_what_hopper_takes_packed(change: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen.able, "capability", lambda device: (9, 0))
    dtype, D = change.get("dtype", torch.bfloat16), change.get("D", 64)
    q, k = torch.empty(9, 4, D, dtype=dtype), torch.empty(change.get("keys", 9), 2, D, dtype=dtype)
    reason = varlen._why_not_hopper(q, k, k, change.get("form", Form()), 0.1)
    assert (said is None and reason is None) or said in str(reason)
