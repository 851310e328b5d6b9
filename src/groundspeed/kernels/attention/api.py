"""`attention`, the function a model calls: checks its arguments and chooses an implementation.

Layout as in PyTorch's scaled_dot_product_attention: q [B, H, M, D], k and v [B, G, N, D]. H must be a multiple of G. A
causal mask is aligned bottom-right: with more keys than queries the last query sees the last key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch.autograd import forward_ad
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from torch import Tensor

IMPLEMENTATIONS = ("hopper", "triton", "torch")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 256
MIN_CAPABILITY = (8, 0)
HOPPER = (9, 0)
HOPPER_ROWS, HOPPER_KEYS, HOPPER_PROCESSORS = 128, 256, 132
"""Of a tile; at least, for a tile to be worth its beginning; of an H100 or H200."""


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., scale: float | None = ..., return_lse: Literal[False] = ..., impl: str = ...) -> Tensor: ...  # fmt: skip  # noqa: E501
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = ..., scale: float | None = ..., return_lse: Literal[True], impl: str = ...) -> tuple[Tensor, Tensor]: ...  # fmt: skip  # noqa: E501
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    impl: str = "auto",
) -> Any:
    """softmax(q·kᵀ·scale)·v; with `return_lse` also the log-sum-exp of each row's scores, FP32.

    `impl="auto"` takes our kernel for Hopper where the GPU is one and there is work enough for it, else our portable
    ones, else PyTorch's path, and says so once. A named implementation (`"hopper"`, `"triton"`, `"torch"`) serves or
    raises."""
    known = (*_key(q, k, v, causal, impl), scale is None or scale > 0) if _is_plain(q, k, v) else None
    forward = _known.get(known)
    if forward is None:
        _check(q, k, v)
    scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    if forward is None:
        chosen, reason = _choose(q, k, v, scale, impl)
        if reason:
            _say_once(reason)
        if chosen == "torch":
            return _torch(q, k, v, causal, scale, return_lse)
        if known is None:
            out, lse = torch.ops.groundspeed.attention_forward(q, k, v, causal, scale, chosen)
            return (out, lse) if return_lse else out
        forward = _prepared(q, k, v, causal, scale, chosen)
        _remember(known, forward)
    out, lse = forward(q, k, v, scale)
    return (out, lse) if return_lse else out


_known: dict[Any, Callable[..., Any]] = {}
"""By all that a launch assumes of its tensors: how it is launched."""
MOST_KNOWN = 4096


def _key(q: Tensor, k: Tensor, v: Tensor, causal: bool, impl: str) -> tuple[Any, ...]:
    shapes = q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride()
    kinds = q.dtype, k.dtype, v.dtype, q.device, k.device, v.device
    return *shapes, *kinds, q.data_ptr() % 16, k.data_ptr() % 16, v.data_ptr() % 16, causal, impl


def _is_plain(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether nobody needs to see an operator of PyTorch's: no gradients, no compiler, no mode or transform, no tensors
    of somebody's own."""
    if torch.compiler.is_compiling() or not type(q) is type(k) is type(v) is torch.Tensor or _is_derived(q, k, v):
        return False
    if not q.layout == k.layout == v.layout == torch.strided or q.is_neg() or k.is_neg() or v.is_neg():
        return False
    modes = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or torch._C._is_tracing()
    return not modes and torch._C._functorch.peek_interpreter_stack() is None


def _is_derived(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a call needs gradients, or is inside of forward-mode differentiation."""
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return True
    return forward_ad._current_level >= 0


def _remember(key: Any, forward: Callable[..., Any]) -> None:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[key] = forward


def _choose(q: Tensor, k: Tensor, v: Tensor, scale: float, impl: str) -> tuple[str, str | None]:
    """The implementation that serves a call, and why it is PyTorch's where that was not asked for. `auto`: which of
    ours is decided by the tensors that it is launched with."""
    if impl not in ("auto", *IMPLEMENTATIONS):
        raise ValueError(f"impl={impl!r} is unknown: auto, {', '.join(IMPLEMENTATIONS)}")
    if impl == "torch":
        return impl, None
    reason = _why_not_ours(q, k, v)
    if impl == "hopper" and reason is None:
        reason = _why_not_hopper(q, k, v, scale)
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    return ("torch", reason) if reason else (impl, None)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ValueError(f"q, k and v are [batch, heads, sequence, dim], not {_shapes(q, k, v)}")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"k and v must be alike, and share batch and dim with q: {_shapes(q, k, v)}")
    if q.shape[3] == 0:
        raise ValueError(f"the head dimension is at least 1: {_shapes(q, k, v)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the query heads must be a multiple of the key heads: {_shapes(q, k, v)}")
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError("q, k and v must share dtype and device")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors)


def _why_not_ours(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """Why our kernels cannot serve a call, or None."""
    if q.device.type != "cuda":
        return f"our kernels run on NVIDIA GPUs, and these tensors are on {q.device.type}"
    if q.dtype not in DTYPES:
        return f"our kernels take fp16, bf16 and fp32, not {q.dtype}"
    if not 1 <= q.shape[3] <= MAX_HEAD_DIM:
        return f"our kernels take head dimensions up to {MAX_HEAD_DIM}, not {q.shape[3]}"
    if _is_derived(q, k, v):
        return "our kernels have no backward yet, and this call needs gradients"
    if _capability(q.device) < MIN_CAPABILITY:
        return "our kernels need compute capability 8.0 or newer"
    return None


def _why_not_hopper(q: Tensor, k: Tensor, v: Tensor, scale: float) -> str | None:
    """Why the one for Hopper cannot serve a call that our portable one can, or None."""
    if _capability(q.device) != HOPPER:
        return "it needs a GPU of compute capability 9.0"
    if q.dtype == torch.float32:
        return "it takes fp16 and bf16"
    if not scale > 0:
        return "it needs a scale above 0"
    if k.shape[2] == 0:
        return "there are no keys"
    for tensor in (q, k, v):
        if not _is_boxed(tensor):
            return "TMA reads where rows lie apart by multiples of 16 bytes and their elements side by side"
    return None


def _fills_hopper(q: Tensor, k: Tensor) -> bool:
    """Whether there is work enough for the one for Hopper: its tiles are large, and each has a multiprocessor to
    itself."""
    B, H, M, _ = q.shape
    return 2 * B * H * ((M + HOPPER_ROWS - 1) // HOPPER_ROWS) >= HOPPER_PROCESSORS and k.shape[2] >= HOPPER_KEYS


def _is_boxed(tensor: Tensor) -> bool:
    """Whether TMA can read it where it lies."""
    strides = [stride for stride, size in zip(tensor.stride()[:3], tensor.shape[:3], strict=True) if size > 1]
    in_eights = all(stride > 0 and stride % 8 == 0 for stride in strides)
    return in_eights and tensor.stride(3) == 1 and tensor.shape[3] % 8 == 0 and _is_aligned(tensor)


def _is_aligned(*tensors: Tensor) -> bool:
    """To 16 bytes; whoever compiles does not know yet."""
    return torch.compiler.is_compiling() or not any(tensor.data_ptr() % 16 for tensor in tensors)


def _capability(device: torch.device) -> tuple[int, int]:
    asked = torch.cuda.get_device_capability if torch.compiler.is_compiling() else _kept_capability
    return asked(device)  # Dynamo sees no caches


@cache
def _kept_capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


_said: set[str] = set()


def _say_once(reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        warnings.warn(f"groundspeed.attention takes PyTorch's path: {reason}", UserWarning, stacklevel=4)


def _torch(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, return_lse: bool) -> Any:
    M, N = q.shape[2], k.shape[2]
    grouped = q.shape[1] != k.shape[1]
    mask = None
    if causal and M != N:  # PyTorch's own causal mask is aligned top-left
        mask = torch.ones(M, N, dtype=torch.bool, device=q.device).tril(N - M)
    out = scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and mask is None, scale=scale, enable_gqa=grouped
    )
    if mask is not None and M > N:
        out = out.masked_fill(~mask.any(dim=1)[:, None], 0.0)  # rows that see no key
    return (out, _log_sum_exp(q, k, causal, scale)) if return_lse else out


def _log_sum_exp(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    """A head at a time, so that memory stays O(M·N) of one head."""
    B, H, M, _ = q.shape
    N, group = k.shape[2], H // k.shape[1]
    hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(N - M + 1) if causal else None
    rows = []
    for b in range(B):
        for h in range(H):
            scores = q[b, h].float() @ k[b, h // group].float().T * scale
            if hidden is not None:
                scores = scores.masked_fill(hidden, float("-inf"))
            rows.append(scores.logsumexp(dim=-1))
    return torch.stack(rows).view(B, H, M) if rows else q.new_empty((B, H, M), dtype=torch.float32)


def _prepared(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, impl: str) -> Callable[..., Any]:
    if impl == "auto":
        impl = "hopper" if _fills_hopper(q, k) and _why_not_hopper(q, k, v, scale) is None else "triton"
    if impl == "hopper":
        if not _is_aligned(q, k, v):  # compiled for tensors that were, it may be called with others
            raise NotImplementedError("impl='hopper' cannot serve this call: a tensor is not aligned to 16 bytes")
        from groundspeed.kernels.attention.hopper import launch

        return launch.prepared(q, k, v, causal)
    from groundspeed.kernels.attention import decode, triton

    return (decode if decode.suits(q, k) else triton).prepared(q, k, v, causal)


def _forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, impl: str) -> tuple[Tensor, Tensor]:
    key = *_key(q, k, v, causal, impl), scale > 0
    if (forward := _known.get(key)) is None:
        forward = _prepared(q, k, v, causal, scale, impl)
        _remember(key, forward)
    out, lse = forward(q, k, v, scale)
    return out, lse


def _fake(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, impl: str) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


# An operator of PyTorch's, so that torch.compile keeps the kernel in the graph.
_library = torch.library.Library("groundspeed", "DEF")
_schema = "(Tensor q, Tensor k, Tensor v, bool causal, float scale, str impl) -> (Tensor, Tensor)"
_library.define(f"attention_forward{_schema}")
_library.impl("attention_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::attention_forward", _fake, lib=_library)
