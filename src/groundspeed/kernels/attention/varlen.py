"""`attention_varlen`: attention of sequences of different lengths, packed one after the other without padding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels.attention import able, api, pytorch
from groundspeed.kernels.attention.able import HOPPER_SCALE
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.calls import is_aligned, is_plain, need_tensors, say_once
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

IMPLEMENTATIONS = ("hopper", "triton", "torch")
FROM_LENGTHS = "use torch.tensor([0, *lengths], device=q.device).cumsum(0)"


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    impl: str = "auto",
) -> Any:
    """Return `attention` of each sequence separately, for packed q [total, H, D], k [total, G, D] and v [total, G, V].
    Sequence b has the rows from cu_seqlens[b] to cu_seqlens[b + 1] (int32 or int64, on the device of q). With
    `return_lse`, also return the log-sum-exp of each row's scores, FP32 [H, total].

    cu_seqlens begin at 0, never decrease, and end at the number of tokens. On a CPU this is checked. On a GPU it is up
    to the caller, since checking would wait for the device: our kernels trust cu_seqlens, and may read and write
    outside the tensors if they decrease or exceed the number of tokens. (PyTorch's path has to read them, and raises.)
    On a GPU, tokens may also lie before the first sequence or after the last one, as padding does; the results for such
    tokens are not written.

    Without `max_seqlen_q`, the number of queries of the longest sequence is read from the device, which takes a while.
    `max_seqlen_k` is not needed; it is accepted so that calls to other libraries can be carried over. `impl="auto"`
    uses our Hopper kernel if there is enough work for it, otherwise our portable kernel, otherwise PyTorch, one
    sequence at a time, with a one-time warning. Each takes the dtypes and head dimensions that it takes in
    `attention`."""
    form = PLAIN[bool(causal)] if window_size == (-1, -1) and not softcap and sinks is None else None
    if form is None:
        api.check_form(q, window_size, softcap, sinks)
        form = Form.of(causal, window_size, softcap, sinks)
    asked = form, impl, max_seqlen_q, scale is None or scale > HOPPER_SCALE
    tensors = q, k, v, cu_seqlens_q, cu_seqlens_k
    served = None
    if max_seqlen_q is not None:
        served = _recall.find(asked, tensors if sinks is None else (*tensors, sinks))
    if served is None:
        return _serve(*tensors, sinks, max_seqlen_q, form, scale, return_lse, impl)
    forward, usual = served
    out, lse = forward(*tensors, usual if scale is None else float(scale), sinks)
    return (out, lse) if return_lse else out


_recall = Recall()
"""As in api.py. The layers of a model attend to the same sequences one after the other."""


def _serve(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    sinks: Tensor | None,
    longest: int | None,
    form: Form,
    scale: float | None,
    return_lse: bool,
    impl: str,
) -> Any:
    """Serve a call unlike any before."""
    _check(q, k, v, cu_seqlens_q, cu_seqlens_k)
    if impl not in ("auto", *IMPLEMENTATIONS):
        raise ValueError(
            f"impl={impl!r} is unknown to attention_varlen; choose from auto, {', '.join(IMPLEMENTATIONS)}"
        )
    number = q.shape[2] ** -0.5 if scale is None else float(scale)
    reason = None if impl == "torch" else able.why_not_ours(q[None], k[None], v[None], sinks)
    if impl == "hopper" and reason is None:
        reason = _why_not_hopper(q, k, v, form, number)
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    if reason:
        say_once("attention", reason)
    if reason or impl == "torch":
        out, lse = _by_pytorch(q, k, v, cu_seqlens_q, cu_seqlens_k, form, number, sinks, return_lse)
        return (out, lse) if return_lse else out
    if longest is None:
        longest = int(cu_seqlens_q.diff().max()) if len(cu_seqlens_q) > 1 else 0
    if is_plain(q, k, v, *([] if sinks is None else [sinks])):
        out, lse = _launch(q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, form, longest, number, impl)
    else:
        out, lse = torch.ops.groundspeed.attention_varlen_forward(
            q, k, v, cu_seqlens_q, cu_seqlens_k, sinks, longest, form.left, form.right, form.softcap, number, impl
        )
    return (out, lse) if return_lse else out


def _why_not_hopper(q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float) -> str | None:
    if k.shape[0] == 0:
        return "there are no keys"
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return able.why_not_hopper(q, k, v, form, scale)


def _check(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor) -> None:
    need_tensors(q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    shapes = ", ".join(str(list(tensor.shape)) for tensor in (q, k, v))
    if q.dim() != 3 or k.dim() != 3 or v.dim() != 3:
        raise ValueError(f"packed q, k and v must be [total, heads, dim], not {shapes}")
    if k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2] or 0 in (q.shape[2], v.shape[2]):
        raise ValueError(f"k and v must have the same shape except for dim, and q and k must share dim: {shapes}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the query heads must be a multiple of the key heads: {shapes}")
    api.check_kind(q, k, v)
    for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if not isinstance(cu, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(cu).__name__}: use torch.tensor")
        whole = cu.dtype in (torch.int32, torch.int64)
        if cu.dim() != 1 or len(cu) == 0 or not whole or not cu.is_contiguous() or cu.device != q.device:
            raise ValueError(
                f"{name} must be one-dimensional and contiguous, in int32 or int64, on {q.device}, with one number "
                f"more than there are sequences, not {list(cu.shape)} of {cu.dtype} on {cu.device}: {FROM_LENGTHS}"
            )
    if len(cu_q) != len(cu_k):
        raise ValueError(f"cu_seqlens_q has {len(cu_q) - 1} sequences, but cu_seqlens_k has {len(cu_k) - 1}")


def _begins(name: str, cu: list[int], tokens: int, *, padded: bool) -> list[int]:
    """Return `cu`, or raise ValueError if it is not valid. `padded`: tokens may lie outside all sequences."""
    wrong = next((f"goes from {a} back to {b}" for a, b in pairwise(cu) if b < a), None)
    if cu[0] < 0 or (cu[0] > 0 and not padded):
        wrong = f"begins at {cu[0]}"
    elif wrong is None and (cu[-1] > tokens or (cu[-1] < tokens and not padded)):
        wrong = f"ends at {cu[-1]}"
    if wrong:
        raise ValueError(
            f"{name} must begin at 0, never decrease and end at the number of tokens, {tokens}, "
            f"but it {wrong}: {FROM_LENGTHS}"
        )
    return cu


def _by_pytorch(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, form: Form, scale: float, sinks: Any, return_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the output, and the LSE or None, computed by PyTorch one sequence at a time."""
    padded = q.device.type != "cpu"  # as our kernels allow on a GPU
    begins_q = _begins("cu_seqlens_q", cu_q.tolist(), q.shape[0], padded=padded)
    begins_k = _begins("cu_seqlens_k", cu_k.tolist(), k.shape[0], padded=padded)
    outs = [q.new_zeros((begins_q[0], q.shape[1], v.shape[2]))]
    lses: list[Any] = [q.new_zeros((q.shape[1], begins_q[0]), dtype=torch.float32) if return_lse else None]
    for b in range(len(begins_q) - 1):
        rows, keys = slice(begins_q[b], begins_q[b + 1]), slice(begins_k[b], begins_k[b + 1])
        one_q, one_k, one_v = (x[part].transpose(0, 1)[None] for x, part in ((q, rows), (k, keys), (v, keys)))
        found = pytorch.attention(one_q, one_k, one_v, form, scale, sinks, return_lse)
        out, lse = found if return_lse else (found, None)
        outs.append(out[0].transpose(0, 1))
        lses.append(None if lse is None else lse[0])
    outs.append(q.new_zeros((q.shape[0] - begins_q[-1], q.shape[1], v.shape[2])))
    if return_lse:
        lses.append(q.new_zeros((q.shape[1], q.shape[0] - begins_q[-1]), dtype=torch.float32))
    return torch.cat(outs), torch.cat(lses, dim=1) if return_lse else None


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    sinks: Tensor | None,
    longest: int,
    left: int,
    right: int,
    softcap: float,
    scale: float,
    impl: str,
) -> tuple[Tensor, Tensor]:
    form = Form(left, right, softcap, sinks is not None)
    return _launch(q, k, v, cu_q, cu_k, sinks, form, longest, scale, impl)


def _launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    sinks: Tensor | None,
    form: Form,
    longest: int,
    scale: float,
    impl: str,
) -> tuple[Tensor, Tensor]:
    asked = form, impl, longest, scale > HOPPER_SCALE
    tensors = (q, k, v, cu_q, cu_k) if sinks is None else (q, k, v, cu_q, cu_k, sinks)
    served = _recall.find(asked, tensors)
    forward = served[0] if served else _prepared(q, k, v, len(cu_q) - 1, longest, form, scale, impl)
    found: tuple[Tensor, Tensor] = forward(q, k, v, cu_q, cu_k, scale, sinks)
    if served is None:
        _recall.keep(asked, tensors, (forward, q.shape[2] ** -0.5))  # only after it has served a call
    return found


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, count: int, longest: int, form: Form, scale: float, impl: str
) -> Callable[..., tuple[Tensor, Tensor]]:
    from groundspeed.kernels.attention import triton
    from groundspeed.kernels.attention.hopper import launch

    if impl == "hopper" and not all(map(is_aligned, (q, k, v))):  # torch.compile saw no addresses
        raise NotImplementedError("impl='hopper' cannot serve this call: a tensor is not aligned to 16 bytes")
    if impl == "auto" and able.fills_hopper_packed(q, longest) and _why_not_hopper(q, k, v, form, scale) is None:
        impl = "hopper"
    prepared = launch.packed_prepared if impl == "hopper" else triton.packed_prepared
    return prepared(q, k, v, count, longest, form)


def _fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


# A PyTorch operator, so that torch.compile keeps the kernel in its graph.
_library = torch.library.Library("groundspeed", "FRAGMENT")
_tensors = "Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, Tensor? sinks"
_numbers = "int longest, int left, int right, float softcap, float scale, str impl"
_library.define(f"attention_varlen_forward({_tensors}, {_numbers}) -> (Tensor, Tensor)")
_library.impl("attention_varlen_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::attention_varlen_forward", _fake, lib=_library)
