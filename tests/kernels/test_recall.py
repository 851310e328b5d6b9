"""A call is served as one before where all is the same that a launch assumes; else it is looked at anew."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

from groundspeed.kernels import recall
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.recall import Recall

ASKED = PLAIN[True], "auto", True


@pytest.fixture
def memory() -> torch.Tensor:
    return torch.randn(2 * 9 * 16 + 8, dtype=torch.float16)


@pytest.fixture
def q(memory: torch.Tensor) -> torch.Tensor:
    return memory[:-8].view(1, 2, 9, 16)


@pytest.fixture(params=[False, True], ids=["apart", "one and the same"])
def kept(q: torch.Tensor, request: pytest.FixtureRequest) -> Recall:
    """Kept for three tensors, or for one as all three."""
    return known(q, q, q) if request.param else known(q, q.clone(), q.clone())


def known(*tensors: torch.Tensor) -> Recall:
    kept = Recall()
    kept.keep(ASKED, tensors, "as before")
    return kept


def test_tensors_of_the_same_kind(q: torch.Tensor, kept: Recall) -> None:
    assert kept.find(ASKED, (torch.rand_like(q), torch.rand_like(q), torch.rand_like(q))) == "as before"
    assert known(q, q, q).find(ASKED, (q, q, q)) == "as before"


def test_others(q: torch.Tensor, memory: torch.Tensor, kept: Recall) -> None:
    k, v = q.clone(), q.clone()
    others: list[torch.Tensor] = [
        memory[1:-7].view(1, 2, 9, 16),
        q.transpose(1, 2).contiguous().transpose(1, 2),
        q.bfloat16(),
        q[:, :, :8],
        q[:, :1],
        q.to("meta"),
        q.clone().requires_grad_(),
        torch.nn.Parameter(q, requires_grad=False),
        torch.randn(1, 2, 9, 16, dtype=torch.complex64).conj().imag,
        q.to_sparse(),
    ]
    for other in others:
        assert [kept.find(ASKED, three) for three in ((other, k, v), (q, other, v), (q, k, other))] == [None] * 3
    for asked in ((PLAIN[False], "auto", True), (PLAIN[True], "triton", True), (PLAIN[True], "auto", False)):
        assert kept.find(asked, (q, k, v)) is None
    assert kept.find((Form.of(True, (128, 0)), "auto", True), (q, k, v)) is None


def test_the_same_places_of_other_tensors_are_not_the_same(q: torch.Tensor, memory: torch.Tensor) -> None:
    off = memory[1:-7].view(1, 2, 9, 16)
    kept = known(off, q, q)
    assert kept.find(ASKED, (off, q, q)) == "as before"
    assert [kept.find(ASKED, three) for three in ((q, off, q), (q, q, q), (off, off, q))] == [None] * 3


def test_one_tensor_alone(q: torch.Tensor) -> None:
    kept, short = Recall(), q[:, :, :4].contiguous()
    kept.keep(ASKED, (q,), "long")
    kept.keep(ASKED, (short,), "short")
    found = [kept.find(ASKED, tensors) for tensors in ((q,), (short,), (q[:, :1],), (short.clone(),))]
    assert found == ["long", "short", None, "short"]


def test_several_of_one_shape(q: torch.Tensor) -> None:
    kept, short = Recall(), q[:, :, :4].contiguous()
    kept.keep(ASKED, (q, q, q), "long")
    kept.keep(ASKED, (q, short, short), "short")
    assert [kept.find(ASKED, (q, q, q)), kept.find(ASKED, (q, short, short))] == ["long", "short"]
    sinks = torch.zeros(2)
    kept.keep(("sinks", "auto"), (q, q, q, sinks), "with sinks")
    assert kept.find(("sinks", "auto"), (q, q, q, sinks.clone())) == "with sinks"
    assert kept.find(("sinks", "auto"), (q, q, q, sinks.half())) is None


def test_who_needs_to_see_an_operator(q: torch.Tensor, kept: Recall) -> None:
    """Gradients, modes, transforms, tracers: whoever kept it had none of these."""
    k, v, learnt = q.clone(), q.clone(), q.clone().requires_grad_()
    found: list[Any] = []

    def find(*tensors: torch.Tensor) -> None:
        found.append(kept.find(ASKED, tensors or (q, k, v)))

    with FakeTensorMode():
        find()
    with torch.autograd.forward_ad.dual_level():
        find()
    with TorchFunctionMode():
        find()
    torch.func.vmap(lambda x: find(x, k, v) or x)(q[None])
    torch.func.vmap(lambda x: find() or x)(q[None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and used
        torch.jit.trace(lambda x: find(x, k, v) or x + 1, q, check_trace=False)
    find(q, learnt, v)
    assert found == [None] * len(found)


def test_what_is_learnt_is_recalled_only_without_gradients(q: torch.Tensor, kept: Recall) -> None:
    k, v, learnt = q.clone(), q.clone(), q.clone().requires_grad_()
    kept.keep(ASKED, (q, learnt, v), "with gradients")
    assert kept.find(ASKED, (q, learnt, v)) is None
    with torch.no_grad():
        assert kept.find(ASKED, (q, k, v)) is None
        kept.keep(ASKED, (q, learnt, v), "does not support gradients")
        assert kept.find(ASKED, (q, learnt, v)) == "does not support gradients"
    assert kept.find(ASKED, (q, learnt, v)) is None


def test_what_somebody_watches_is_not_kept(q: torch.Tensor) -> None:
    kept = Recall()
    with TorchFunctionMode():
        kept.keep(ASKED, (q, q), "watched")
    assert kept._count == 0


def test_sizes_that_are_symbols(q: torch.Tensor, kept: Recall) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
    fake = mode.from_tensor(torch.randn(5, 6, 7, 8), static_shapes=False)
    assert kept.find(ASKED, (fake, fake, fake)) is None


def test_a_default_device_is_nobody_who_looks_on(q: torch.Tensor) -> None:
    kept = known(q, q, q)
    with torch.device("cpu"), torch.device("meta"):
        assert kept.find(ASKED, (q, q, q)) == "as before"
        with torch.overrides.BaseTorchFunctionMode():
            assert kept.find(ASKED, (q, q, q)) is None


def test_many_lengths_of_keys_are_no_list_to_go_through(q: torch.Tensor) -> None:
    """As a model writes word by word, there is one more key in every step."""
    kept = Recall()
    keys = torch.randn(1, 2, 600, 16, dtype=torch.float16)
    for length in range(1, 600):
        one = keys[:, :, :length]
        kept.keep(ASKED, (q, one, one), length)
    (kind,) = kept._kinds.values()
    assert max(map(len, kind.by_shapes.values())) == 1
    assert kept.find(ASKED, (q, keys[:, :, :77], keys[:, :, :77])) == 77


def test_what_a_compiler_sees_is_nothing_kept(q: torch.Tensor) -> None:
    kept = known(q, q, q)
    compiled = torch.compile(lambda x: x + (kept.find(ASKED, (x, x, x)) is not None), fullgraph=True, backend="eager")
    assert torch.equal(compiled(q), q)


def test_in_inference_mode_what_was_kept_there(q: torch.Tensor) -> None:
    with torch.inference_mode():
        made = torch.randn(1, 2, 9, 16, dtype=torch.float16)
        kept = known(made, made, made)
        assert kept.find(ASKED, (made.clone(), made, made)) == "as before"
    assert kept.find(ASKED, (q, q, q)) is None


def test_not_without_end(q: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "MOST", 3)
    kept = Recall()
    for i in range(7):
        kept.keep(i, (q, q), i)
    assert [kept.find(i, (q, q)) for i in range(7)] == [None] * 6 + [6]


def test_without_pytorchs_guards_nothing_is_recalled(q: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "TensorGuards", None)
    assert known(q, q).find(ASKED, (q, q)) is None
