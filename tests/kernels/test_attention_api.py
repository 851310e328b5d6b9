"""gs.attention on a CPU: PyTorch's path, said once; a named implementation serves or raises."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import groundspeed as gs
from groundspeed.kernels.attention import api, reference


def test_auto_takes_pytorchs_path_on_a_cpu_and_says_so_once() -> None:
    api._said.clear()
    q, k, v = (torch.randn(1, 2, 9, 16) for _ in range(3))
    with pytest.warns(UserWarning, match="takes PyTorch's path: our kernels run on NVIDIA GPUs"):
        out = gs.attention(q, k, v, causal=True)
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


def test_gradients_go_through_pytorchs_path() -> None:
    q, k, v = (torch.randn(1, 2, 9, 16, requires_grad=True) for _ in range(3))
    gs.attention(q, k, v, impl="torch").sum().backward()
    assert q.grad is not None


def test_who_needs_to_see_an_operator_gets_one() -> None:
    """Gradients, modes, transforms, tensors of somebody's own: a call that nobody watches goes past PyTorch's."""
    q = torch.randn(2, 2, 9, 16)
    assert api._is_plain(q, q, q)
    learnt = q.clone().requires_grad_()
    assert not api._is_plain(q, learnt, q)
    with torch.no_grad():
        assert api._is_plain(q, learnt, q)
    assert not api._is_plain(q, torch.nn.Parameter(q), q)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
        assert not api._is_plain(fake, fake, fake)
        assert not api._is_plain(q, q, q)
    complex_ = torch.randn(2, 2, 9, 16, dtype=torch.complex64)
    assert not api._is_plain(q, complex_.conj().imag, q)
    with torch.autograd.forward_ad.dual_level():
        assert not api._is_plain(q, q, q)
    seen: list[bool] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and used
        torch.jit.trace(lambda x: seen.append(api._is_plain(x, x, x)) or x + 1, q, check_trace=False)
    assert not any(seen)
    seen.clear()
    torch.func.vmap(lambda x: seen.append(api._is_plain(x, x, x)) or x)(q)
    assert seen == [False]


@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 9, 0)])
def test_what_is_no_attention_says_so(shape: tuple[int, ...]) -> None:
    q = torch.zeros(shape)
    with pytest.raises(ValueError, match=r"batch, heads, sequence, dim|at least 1"):
        gs.attention(q, q, q)


def test_a_launch_is_known_by_all_that_it_assumes() -> None:
    memory = torch.randn(2 * 9 * 16 + 8, dtype=torch.float16)
    q = memory[:-8].view(1, 2, 9, 16)
    same = api._key(q.clone(), q, q, True, "auto")
    assert same == api._key(q, q, q, True, "auto")
    others = [
        api._key(memory[1:-7].view(1, 2, 9, 16), q, q, True, "auto"),
        api._key(q.transpose(1, 2).contiguous().transpose(1, 2), q, q, True, "auto"),
        api._key(q.bfloat16(), q, q, True, "auto"),
        api._key(q[:, :, :8], q, q, True, "auto"),
        api._key(q, q[:, :1], q, True, "auto"),
        api._key(q.to("meta"), q, q, True, "auto"),
        api._key(q, q, q, False, "auto"),
        api._key(q, q, q, True, "triton"),
    ]
    assert same not in others
    assert len(set(others)) == len(others)
