"""`attention_paged`: attention of the last positions of sequences whose keys and values are stored in the pages of a
cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from groundspeed.kernels.attention import able, api, pytorch
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.calls import is_plain, say_once
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor

IMPLEMENTATIONS = ("triton", "torch")
PAGE_SIZES = (16, 32, 64, 128, 256)
MAX_FP32_HEAD_DIM = 128
MAX_KEYS = 1 << 29
"""The most keys of a sequence: sums of a few of its positions fit 32 bits."""


def attention_paged(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    *,
    causal: bool = True,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    impl: str = "auto",
) -> Any:
    """Return `attention` of q [B, H, M, D], the last M positions of each sequence, to all keys of the sequence so far.
    These are stored in pages: k_pages and v_pages [P, G, page, D], with H a multiple of G and a page of 16, 32, 64, 128
    or 256 positions. Page pages[b, i] holds the positions from i·page on of sequence b, which has lengths[b] positions.
    `pages` and `lengths` are int32 or int64, on the device of q. With `return_lse`, also return the log-sum-exp of each
    row's scores, FP32 [B, H, M].

    Under a causal mask, query i sees positions 0 … i + lengths[b] − M, as in `attention`. If M is larger than a length,
    the first queries see nothing, and their rows are 0 with an LSE of −∞; so sequences of different lengths can be
    padded at the start. Windows, soft-caps and sinks are as in `attention`.

    Nothing waits for the host, and no launch depends on the contents of `pages` and `lengths`, so a call can be
    captured in a CUDA graph and replayed after they have changed. Entries of `pages` for positions past the length may
    hold anything, and so may these positions. Our kernel treats a negative length as 0, and clamps a length beyond the
    entries of its sequence to what they hold. It trusts the other entries, and may read outside the pages if one of
    them is not a page. (PyTorch's path has to read both tensors, and raises.)

    `impl="auto"` uses our portable kernel, for any M, otherwise PyTorch's path, one sequence at a time, with a one-time
    warning. Naming an implementation (`"triton"`, `"torch"`) forces it, or raises if it cannot serve. Ours takes what
    `attention` takes, but FP32 only up to a head dimension of 128, and only rows whose elements are adjacent."""
    form = PLAIN[bool(causal)] if window_size == (-1, -1) and not softcap and sinks is None else None
    if form is None:
        api.check_form(q, window_size, softcap, sinks)
        form = Form.of(causal, window_size, softcap, sinks)
    tensors = q, k_pages, v_pages, pages, lengths
    served = _recall.find((form, impl), tensors if sinks is None else (*tensors, sinks))
    if served is None:
        return _serve(*tensors, sinks, form, scale, return_lse, impl)
    forward, usual = served
    out, lse = forward(*tensors, usual if scale is None else float(scale), sinks)
    return (out, lse) if return_lse else out


_recall = Recall()
"""As in api.py."""


def _serve(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    sinks: Tensor | None,
    form: Form,
    scale: float | None,
    return_lse: bool,
    impl: str,
) -> Any:
    """Serve a call unlike any before."""
    _check(q, k_pages, v_pages)
    check_table(pages, lengths, q)
    if impl not in ("auto", *IMPLEMENTATIONS):
        raise ValueError(f"impl={impl!r} is unknown to attention_paged; choose from auto, {', '.join(IMPLEMENTATIONS)}")
    number = q.shape[3] ** -0.5 if scale is None else float(scale)
    reason = None if impl == "torch" else _why_not_ours(q, k_pages, v_pages, pages, sinks)
    if reason and impl != "auto":
        raise NotImplementedError(f"impl={impl!r} cannot serve this call: {reason}; impl='torch' or 'auto' can")
    if reason:
        say_once("attention_paged", reason)
    tensors = q, k_pages, v_pages, pages, lengths
    if reason or impl == "torch":
        return _by_pytorch(*tensors, form, number, sinks, return_lse)
    if is_plain(*tensors, *([] if sinks is None else [sinks])):
        out, lse = _launch(*tensors, sinks, form, number, impl)
    else:
        out, lse = torch.ops.groundspeed.attention_paged_forward(
            *tensors, sinks, form.left, form.right, form.softcap, number
        )
    return (out, lse) if return_lse else out


def _why_not_ours(q: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, sinks: Tensor | None) -> str | None:
    reason = able.why_not_ours(q, k_pages, v_pages, sinks)
    if reason:
        return reason
    if q.dtype == torch.float32 and q.shape[3] > MAX_FP32_HEAD_DIM:
        return f"our kernel supports fp32 up to a head dimension of {MAX_FP32_HEAD_DIM}, not {q.shape[3]}"
    if not all(map(is_side_by_side, (q, k_pages, v_pages))):
        return "our kernel needs rows with adjacent elements"
    if pages.shape[1] * k_pages.shape[2] > MAX_KEYS:
        return f"our kernel supports sequences of up to {MAX_KEYS} positions"
    return None


def is_side_by_side(tensor: Tensor) -> bool:
    """Return whether the elements of a row are adjacent in memory."""
    return bool(tensor.stride(-1) == 1 or tensor.shape[-1] == 1 or tensor.numel() == 0)


def _check(q: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    if q.dim() != 4:
        raise ValueError(f"q must be [batch, heads, queries, dim], not {list(q.shape)}")
    check_pages(k_pages, v_pages)
    if q.shape[3] != k_pages.shape[3] or k_pages.shape[1] == 0 or q.shape[1] % k_pages.shape[1]:
        shapes = f"{list(q.shape)} and {list(k_pages.shape)}"
        raise ValueError(
            f"q and pages must share dim, and the query heads must be a multiple of the key heads: {shapes}"
        )
    api.check_kind(q, k_pages, v_pages)


def check_pages(k_pages: Tensor, v_pages: Tensor) -> None:
    shapes = f"{list(k_pages.shape)} and {list(v_pages.shape)}"
    if k_pages.dim() != 4 or k_pages.shape != v_pages.shape or k_pages.shape[3] == 0:
        raise ValueError(f"k_pages and v_pages must both be [pages, heads, positions, dim], not {shapes}")
    if k_pages.shape[2] not in PAGE_SIZES:
        raise ValueError(
            f"a page must have {', '.join(map(str, PAGE_SIZES))} positions, not {k_pages.shape[2]}: {shapes}"
        )


def check_table(pages: Tensor, lengths: Tensor, like: Tensor) -> None:
    """Raise if `pages` or `lengths` do not fit the batch and the device of `like`."""
    B, device = like.shape[0], like.device
    for name, tensor, dims in (("pages", pages, 2), ("lengths", lengths, 1)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}: use torch.tensor")
        whole = tensor.dtype in (torch.int32, torch.int64)
        if tensor.dim() != dims or len(tensor) != B or not whole or tensor.device != device:
            wanted = (
                f"one row for each of the {B} sequences" if dims == 2 else f"one number for each of the {B} sequences"
            )
            raise ValueError(
                f"{name} must have {wanted}, in int32 or int64, on {device}, "
                f"not {list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
            )
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"the elements of {name} must be adjacent: use {name}.contiguous()")


def _by_pytorch(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    form: Form,
    scale: float,
    sinks: Tensor | None,
    return_lse: bool,
) -> Any:
    """Return the result of PyTorch's path, which gathers the pages of one sequence after the other."""
    page, outs, lses = k_pages.shape[2], [q[:0]], [q.new_empty((0, *q.shape[1:3]), dtype=torch.float32)]
    for b, keys in enumerate(lengths.tolist()):
        if not 0 <= keys <= pages.shape[1] * page:
            room = f"{pages.shape[1]} pages of {page} positions"
            raise ValueError(f"sequence {b} has a length of {keys}, but room for {room}: pages needs more entries")
        taken = pages[b, : -(-keys // page)].long()
        if len(taken) and not 0 <= int(taken.min()) <= int(taken.max()) < len(k_pages):
            raise ValueError(f"sequence {b} lies in pages {taken.tolist()}, but there are {len(k_pages)} pages")
        k, v = (x[taken].transpose(0, 1).flatten(1, 2)[None, :, :keys] for x in (k_pages, v_pages))
        found = pytorch.attention(q[b : b + 1], k, v, form, scale, sinks, return_lse)
        out, lse = found if return_lse else (found, None)
        outs.append(out)
        lses.append(lse)
    return (torch.cat(outs), torch.cat(lses)) if return_lse else torch.cat(outs)


def _forward(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    sinks: Tensor | None,
    left: int,
    right: int,
    softcap: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    form = Form(left, right, softcap, sinks is not None)
    return _launch(q, k_pages, v_pages, pages, lengths, sinks, form, scale, "auto")


def _launch(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    pages: Tensor,
    lengths: Tensor,
    sinks: Tensor | None,
    form: Form,
    scale: float,
    impl: str,
) -> tuple[Tensor, Tensor]:
    asked, tensors = (form, impl), (q, k_pages, v_pages, pages, lengths)
    known = tensors if sinks is None else (*tensors, sinks)
    served = _recall.find(asked, known)
    if served:
        forward = served[0]
    else:
        from groundspeed.kernels.attention import paged

        forward = paged.prepared(q, k_pages, v_pages, pages, form)
    found: tuple[Tensor, Tensor] = forward(*tensors, scale, sinks)
    if served is None:
        _recall.keep(asked, known, (forward, q.shape[3] ** -0.5))  # only after it has served a call
    return found


def _fake(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


# A PyTorch operator, so that torch.compile keeps the kernel in its graph.
_library = torch.library.Library("groundspeed", "FRAGMENT")
_tensors = "Tensor q, Tensor k_pages, Tensor v_pages, Tensor pages, Tensor lengths, Tensor? sinks"
_library.define(
    f"attention_paged_forward({_tensors}, int left, int right, float softcap, float scale) -> (Tensor, Tensor)"
)
_library.impl("attention_paged_forward", _forward, "CUDA")
torch.library.register_fake("groundspeed::attention_paged_forward", _fake, lib=_library)
