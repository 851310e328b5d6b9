"""`attention`, the function that a model calls: it checks its arguments and chooses an implementation.

The layout is that of PyTorch's scaled_dot_product_attention: q [B, H, M, D], k [B, G, N, D], v [B, G, N, V], with H a
multiple of G. A causal mask is aligned bottom-right: with more keys than queries, the last query sees the last key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import torch

from groundspeed.kernels.attention import able, pytorch
from groundspeed.kernels.attention.able import HOPPER_SCALE
from groundspeed.kernels.attention.form import PLAIN, Form, heads_last, turned
from groundspeed.kernels.calls import is_plain, need_tensors, say_once
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

IMPLEMENTATIONS = ("hopper", "triton", "torch")


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ..., sinks: Tensor | None = ..., scale: float | None = ..., return_lse: Literal[False] = ..., impl: str = ...) -> Tensor: ...  # fmt: skip  # noqa: E501
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., window_size: tuple[int, int] = ..., softcap: float = ..., sinks: Tensor | None = ..., scale: float | None = ..., return_lse: Literal[True], impl: str = ...) -> tuple[Tensor, Tensor]: ...  # fmt: skip  # noqa: E501
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    impl: str = "auto",
    **other: Any,
) -> Any:
    """Return softmax(q·kᵀ·scale)·v for q [B, H, M, D], k [B, G, N, D] and v [B, G, N, V] of one dtype and device, with
    H a multiple of G; with `return_lse` also the log-sum-exp of each row's scores, FP32 [B, H, M]. `scale` is 1/√D by
    default. If q is stored as [B, M, H, D], the result of our kernels is too.

    `causal`: query i sees keys 0 … i + N − M, so that the last one sees all, as in FlashAttention. (With `is_causal` of
    PyTorch's scaled_dot_product_attention it sees keys 0 … i.)

    `window_size=(left, right)`: a query sees that many keys before and after its own position, −1 for all. `softcap=c`
    turns a score s into c·tanh(s/c). `sinks` [H] holds one more score for each query head, which takes part in the
    softmax but has no value.

    `impl="auto"` uses our Hopper kernel on a Hopper GPU if there is enough work for it, otherwise our portable kernels,
    otherwise PyTorch's path, with a one-time warning. Naming an implementation (`"hopper"`, `"triton"`, `"torch"`)
    forces it, or raises if it cannot serve. Ours take FP16, BF16 and FP32, head dimensions up to 256 and no gradients,
    on NVIDIA GPUs since Ampere. PyTorch's path takes any device and head dimension, gradients, and also FP64, in which
    soft-caps and sinks are computed in FP32."""
    if other:
        _refuse(other)
    form = PLAIN[bool(causal)] if window_size == (-1, -1) and not softcap and sinks is None else None
    if form is None:
        check_form(q, window_size, softcap, sinks)
        form = Form.of(causal, window_size, softcap, sinks)
    asked = form, impl, return_lse, scale is None or scale > HOPPER_SCALE
    served = _recall.find(asked, (q, k, v) if sinks is None else (q, k, v, sinks))
    if served is None:
        return _serve(q, k, v, sinks, form, scale, return_lse, impl)
    forward, usual = served
    number = usual if scale is None else float(scale)
    out, lse = forward(q, k, v, number) if sinks is None else forward(q, k, v, number, sinks)
    return (out, lse) if return_lse else out


_OF_PYTORCH = {
    "is_causal": "use causal=, which aligns the mask to the end if there are more keys than queries",
    "attn_mask": "causal= and window_size= are the masks; with any other, call PyTorch's scaled_dot_product_attention",
    "dropout_p": "there is no dropout; leave it out",
    "enable_gqa": "leave it out, because fewer heads of keys than of queries need no flag",
}
"""What to do about arguments of PyTorch's scaled_dot_product_attention that are not ours."""


def _refuse(other: Mapping[str, Any]) -> NoReturn:
    if known := [f"{name} ({_OF_PYTORCH[name]})" for name in other if name in _OF_PYTORCH]:
        raise TypeError(f"attention() does not take {', '.join(known)}")
    raise TypeError(f"attention() got an unexpected keyword argument {next(iter(other))!r}")


_recall = Recall()
"""How earlier calls were served: a function that launches, and the default scale, by what the call asked for and by
everything that the launch assumes about its tensors."""


def _serve(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    form: Form,
    scale: float | None,
    return_lse: bool,
    impl: str,
) -> Any:
    """Serve a call unlike any before."""
    _check(q, k, v)
    scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    chosen, reason = _choose(q, k, v, sinks, form, scale, impl)
    if reason:
        say_once("attention", reason)
    if chosen == "torch":
        return pytorch.attention(q, k, v, form, scale, sinks, return_lse)
    if is_plain(q, k, v, *([] if sinks is None else [sinks])):
        out, lse = _launch(q, k, v, sinks, form, scale, impl, return_lse)
    else:
        out, lse = torch.ops.groundspeed.attention_forward(
            q, k, v, sinks, form.left, form.right, form.softcap, scale, chosen
        )
    return (out, lse) if return_lse else out


def _choose(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, form: Form, scale: float, impl: str
) -> tuple[str, str | None]:
    """Return the implementation that serves a call, and the reason if it is PyTorch's without having been requested.
    With `auto`, the choice among our kernels is made later, from the tensors of the launch."""
    if impl not in ("auto", *IMPLEMENTATIONS):
        raise ValueError(f"impl={impl!r} is unknown; choose from auto, {', '.join(IMPLEMENTATIONS)}")
    if impl == "torch":
        return impl, None
    reason = able.why_not_ours(q, k, v, sinks)
    if impl == "hopper" and reason is None:
        reason = able.why_not_hopper(q, k, v, form, scale)
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    return ("torch", reason) if reason else (impl, None)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    need_tensors(q=q, k=k, v=v)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ValueError(f"q, k and v must be [batch, heads, sequence, dim], not {_shapes(q, k, v)}")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"k and v must have the same shape except for dim, and k the batch and dim of q: {_shapes(q, k, v)}"
        )
    if q.shape[3] == 0 or v.shape[3] == 0:
        raise ValueError(f"the head dimension must be at least 1: {_shapes(q, k, v)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the query heads must be a multiple of the key heads: {_shapes(q, k, v)}")
    check_kind(q, k, v)


def check_kind(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        kinds = ", ".join(f"{x.dtype} on {x.device}" for x in (q, k, v))
        raise ValueError(f"q, k and v must share dtype and device, not {kinds}: use k.to(q) and v.to(q)")
    if q.dtype not in pytorch.DTYPES:
        raise ValueError(
            f"q, k and v must be in fp16, bf16, fp32 or fp64, not {q.dtype}: "
            "convert them, for example with q.bfloat16()"
        )


def check_form(q: Tensor, window_size: tuple[int, int], softcap: float, sinks: Tensor | None) -> None:
    pair = isinstance(window_size, (tuple, list)) and len(window_size) == 2
    if not pair or any(n < -1 for n in window_size):
        raise ValueError(f"window_size must be (left, right), each a number of keys or -1 for all, not {window_size}")
    if not 0 <= softcap < float("inf"):
        raise ValueError(f"softcap must be 0 for none or a positive number, not {softcap}")
    if sinks is not None and (sinks.shape != q.shape[1:2] or sinks.device != q.device or sinks.stride() != (1,)):
        raise ValueError(f"sinks must be one for each of the {q.shape[1]} query heads, contiguous and on {q.device}")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors)


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, form: Form, scale: float, impl: str, with_lse: bool
) -> Callable[..., Any]:
    from groundspeed.kernels.attention import decode, few, triton

    aligned = not any(tensor.data_ptr() % 16 for tensor in (q, k, v))  # torch.compile assumed that they are
    splits = few.kernel(q, k, v) if form in PLAIN.values() else None
    if impl == "auto":
        enough = aligned and not splits and able.fills_hopper(q, k)
        impl = "hopper" if enough and able.why_not_hopper(q, k, v, form, scale) is None else "triton"
    if impl == "hopper":
        if not aligned:
            raise NotImplementedError("impl='hopper' cannot serve this call: a tensor is not aligned to 16 bytes")
        from groundspeed.kernels.attention.hopper import launch

        return launch.prepared(q, k, v, form, with_lse=with_lse)
    if splits:
        served = splits.prepared(q, k, v, form == PLAIN[True])
        return _as_it_lies(served) if heads_last(q) and splits is decode else served
    return triton.prepared(q, k, v, form, with_lse=with_lse)


def _as_it_lies(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, with a result stored as q is. With few queries, the copy costs little."""

    def serve(*arguments: Any) -> tuple[Tensor, Tensor]:
        out, lse = forward(*arguments)
        return out.new_empty(turned(out.shape)).transpose(1, 2).copy_(out), lse

    return serve


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    left: int,
    right: int,
    softcap: float,
    scale: float,
    impl: str,
) -> tuple[Tensor, Tensor]:
    return _launch(q, k, v, sinks, Form(left, right, softcap, sinks is not None), scale, impl, True)


def _launch(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, form: Form, scale: float, impl: str, with_lse: bool
) -> Any:
    """Return the output, and the log-sum-exp only if it is requested or costs nothing."""
    asked, tensors = (form, impl, with_lse, scale > HOPPER_SCALE), (q, k, v) if sinks is None else (q, k, v, sinks)
    served = _recall.find(asked, tensors)
    forward = served[0] if served else _prepared(q, k, v, form, scale, impl, with_lse)
    found = forward(q, k, v, scale) if sinks is None else forward(q, k, v, scale, sinks)
    if served is None:
        _recall.keep(asked, tensors, (forward, q.shape[3] ** -0.5))  # only after it has served a call
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out, lse = (*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=torch.float32)
    return (q.new_empty(turned(out)).transpose(1, 2) if heads_last(q) else q.new_empty(out)), lse


# A PyTorch operator, so that torch.compile keeps the kernel in its graph.
_library = torch.library.Library("groundspeed", "DEF")
_takes = "Tensor q, Tensor k, Tensor v, Tensor? sinks, int left, int right, float softcap, float scale, str impl"
_tags: Any = (torch.Tag.needs_exact_strides,)  # the result is stored as q is
_library.define(f"attention_forward({_takes}) -> (Tensor, Tensor)", tags=_tags)
_library.impl("attention_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::attention_forward", _fake, lib=_library)
