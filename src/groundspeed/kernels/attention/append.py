"""Appending new keys and values to their pages in one launch: k and v [B, G, M, D] go to the positions from lengths[b]
− M on of each sequence b.

A program copies one token of some heads, both keys and values. The destination is computed on the device from lengths
[B] and pages [B, most]: entry i of a row of `pages` says which of the pages [P, G, page, D] holds the positions from
i·page on. Strides are arbitrary, except that the last one is 1; offsets have 64 bits. Nothing is written for a position
before 0 or past the last entry of its sequence, or if its entry is not one of the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from groundspeed.kernels.launch import Launcher

AT_ONCE = 2048
"""The most elements of keys, and of values, that one program copies."""


@triton.jit(do_not_specialize=["G", "M", "MOST", "P"])
def append_paged_kernel(
    k_ptr,
    v_ptr,
    k_pages_ptr,
    v_pages_ptr,
    pages_ptr,
    lengths_ptr,
    stride_kb,
    stride_kh,
    stride_km,
    stride_vb,
    stride_vh,
    stride_vm,
    stride_kp,
    stride_kph,
    stride_kpn,
    stride_vp,
    stride_vph,
    stride_vpn,
    stride_tb,
    G,
    M,
    D,
    MOST,
    P,
    PAGE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    batch = (tl.program_id(0) // M).to(tl.int64)
    token = (tl.program_id(0) % M).to(tl.int64)
    position = tl.load(lengths_ptr + batch).to(tl.int64) - M + token
    has_entry = (position >= 0) & (position < MOST)
    page = tl.load(pages_ptr + batch * stride_tb + position // PAGE, mask=has_entry, other=-1).to(tl.int64)
    heads = (tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)).to(tl.int64)[:, None]
    dims = tl.arange(0, BLOCK_D)[None, :]
    mask = ((page >= 0) & (page < P)) & (heads < G) & (dims < D)
    k = tl.load(k_ptr + batch * stride_kb + heads * stride_kh + token * stride_km + dims, mask=mask)
    v = tl.load(v_ptr + batch * stride_vb + heads * stride_vh + token * stride_vm + dims, mask=mask)
    row = position % PAGE
    tl.store(k_pages_ptr + page * stride_kp + heads * stride_kph + row * stride_kpn + dims, k, mask=mask)
    tl.store(v_pages_ptr + page * stride_vp + heads * stride_vph + row * stride_vpn + dims, v, mask=mask)


def prepared(k: Any, v: Any, k_pages: Any, v_pages: Any, pages: Any) -> Callable[..., None]:
    """Return a function that takes such tensors, and lengths, and writes k and v to the pages. The tensors must have
    the same shapes, strides, dtypes, device and alignment to 16 bytes in every call."""
    (B, G, M, D), (P, _, page, _) = k.shape, k_pages.shape
    block_d = triton.next_power_of_2(D)
    block_g = min(triton.next_power_of_2(G), max(1, AT_ONCE // block_d))
    constants = {"PAGE": page, "BLOCK_G": block_g, "BLOCK_D": block_d}
    grid = B * M, triton.cdiv(G, block_g), 1
    launcher = Launcher(append_paged_kernel, grid, constants, {"num_warps": 4}, k.device)
    strides = [stride for tensor in (k, v, k_pages, v_pages) for stride in tensor.stride()[:3]]
    numbers = *strides, pages.stride(0), G, M, D, pages.shape[1] * page, P

    def append(k: Any, v: Any, k_pages: Any, v_pages: Any, pages: Any, lengths: Any) -> None:
        if B * M:
            launcher(k, v, k_pages, v_pages, pages, lengths, *numbers)

    return append
