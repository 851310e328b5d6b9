"""`append_paged`: appends new keys and values to the pages of their sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from groundspeed.kernels.attention import api
from groundspeed.kernels.attention.paged_api import check_pages, check_table, is_side_by_side
from groundspeed.kernels.calls import MIN_CAPABILITY, capability, is_derived, is_plain
from groundspeed.kernels.recall import Recall

if TYPE_CHECKING:
    from torch import Tensor


def append_paged(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, lengths: Tensor) -> None:
    """Write k and v [B, G, M, D] in place to the positions lengths[b] − M … lengths[b] − 1 of each sequence b. The
    lengths already include the new positions. `pages` and `lengths` are as in `attention_paged`. k, v and the pages
    share dtype and device, and may have any strides except that the elements of a row are adjacent.

    Only the device knows where these positions lie, and nothing waits for it. So it is not an error if a position has
    no place; nothing is written for it then. That holds for a position before 0 (if there are more tokens than the
    length, the first ones, as for sequences that are padded at the start), for one past the entries of its sequence in
    `pages`, and for one whose entry is not one of the pages, such as −1. Two sequences whose entries name the same page
    overwrite each other.

    On NVIDIA GPUs since Ampere this is one launch of our kernel, which can be captured in a CUDA graph; elsewhere it is
    PyTorch's indexing. The written keys and values carry no gradients, and a call that needs gradients is rejected."""
    tensors = k, v, k_pages, v_pages, pages, lengths
    append = _recall.find("append", tensors)
    if append is not None:
        append(*tensors)
        return
    _check(*tensors)
    serve = _append if is_plain(*tensors) else torch.ops.groundspeed.append_paged
    serve(*tensors)


_recall = Recall()


def _check(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, lengths: Tensor) -> None:
    check_pages(k_pages, v_pages)
    (_, G, _, D), shapes = k_pages.shape, f"{list(k.shape)}, {list(v.shape)} and {list(k_pages.shape)}"
    if k.dim() != 4 or k.shape != v.shape or k.shape[1] != G or k.shape[3] != D or G == 0:
        raise ValueError(f"k and v must both be [batch, heads, tokens, dim], with heads and dim of the pages: {shapes}")
    api.check_kind(k, k_pages, v_pages)
    api.check_kind(v, k_pages, v_pages)
    check_table(pages, lengths, k)
    if not all(map(is_side_by_side, (k, v, k_pages, v_pages))):
        raise ValueError("k, v and the pages must have adjacent elements within each row: use .contiguous()")
    if is_derived(k, v, k_pages, v_pages):
        raise NotImplementedError("append_paged does not support gradients: call it under torch.no_grad()")


def _append(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, lengths: Tensor) -> None:
    tensors = k, v, k_pages, v_pages, pages, lengths
    if not _on_ours(k.device):
        _by_pytorch(*tensors)
        return
    append: Callable[..., None] | None = _recall.find("append", tensors)
    if append is not None:
        append(*tensors)
        return
    from groundspeed.kernels.attention.append import prepared

    append = prepared(k, v, k_pages, v_pages, pages)
    append(*tensors)
    _recall.keep("append", tensors, append)  # only after it has served a call


def _on_ours(device: torch.device) -> bool:
    """Return whether our kernel runs on this device."""
    return device.type == "cuda" and capability(device) >= MIN_CAPABILITY


def _by_pytorch(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, lengths: Tensor) -> None:
    M, (P, _, page, _), most = k.shape[2], k_pages.shape, pages.shape[1]
    positions = lengths.long()[:, None] - M + torch.arange(M, device=k.device)
    batch, token = ((positions >= 0) & (positions < most * page)).nonzero(as_tuple=True)
    taken = pages[batch, positions[batch, token] // page].long()
    there = (taken >= 0) & (taken < P)
    batch, token, taken = batch[there], token[there], taken[there]
    row = positions[batch, token] % page
    k_pages[taken, :, row] = k[batch, :, token]
    v_pages[taken, :, row] = v[batch, :, token]


def _fake(k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, pages: Tensor, lengths: Tensor) -> None:
    """Do nothing: the operator has no results."""


# A PyTorch operator, so that torch.compile keeps it in its graph and knows what it writes to.
_library = torch.library.Library("groundspeed", "FRAGMENT")
_tensors = "Tensor k, Tensor v, Tensor(a!) k_pages, Tensor(b!) v_pages, Tensor pages, Tensor lengths"
_library.define(f"append_paged({_tensors}) -> ()")
_library.impl("append_paged", _append, "CPU")
_library.impl("append_paged", _append, "CUDA")
torch.library.register_fake("groundspeed::append_paged", _fake, lib=_library)
