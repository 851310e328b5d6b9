"""Attention of some queries to keys that are split over a chain of programs, each of which passes its partial result on
to the next.

q [B, H, M, D], k and v [B, G, N, D]; rows, strides, masks and results are as in decode.py. This kernel is for calls in
which many rows share a key head and there are few keys: there, a workspace of 5% of K and V has room for only one or
two splits, and most of the GPU would be idle. Here a tile of rows needs one slot of the workspace, whatever the number
of splits.

A tile holds some of the rows of all heads that share a key head, and has a chain of programs, one per split. All of
them process their keys at the same time. Then each waits for the one before it, adds the partial result that it left
(the unnormalised output, the maxima and the sums), and leaves the total for the next one; the last one writes the
result. The order is always the same, so the result is bit-identical every time. A program waits only for one with a
lower number. CUDA does not promise that programs start in the order of their numbers, but every GPU does, and there are
never more programs than multiprocessors; so what a program waits for is running or done by then. If other code
overwrites the flags, the GPU hangs.

A flag beside the workspace of each tile says whether a partial result is there: it is `token` + the number of programs
that have added theirs. No other value in that memory is mistaken for it, since each launcher draws its token at random
from 2⁶⁰, and the last program of a chain resets the flag to 0. So the flags need not be cleared before a launch; a tool
that looks for memory read before it was written (initcheck) reports them.

Trade-off: the partial results are read and written once for each split, serially. Keys are read once for each tile of
rows, from L2 except the first time."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.attention.decode import Forward
from groundspeed.kernels.attention.form import heads_last, turned
from groundspeed.kernels.attention.scores import LOG2_E
from groundspeed.kernels.attention.split import GPU, ended, gpu_of, precision, step
from groundspeed.kernels.launch import Launcher, maker

MIN_KEYS = 2048
"""The fewest keys that are worth splitting; fewer were not compared with the portable kernel."""
MAX_DIM = 128
"""The largest head dimension that was measured."""
SHARE = 0.05
"""The largest workspace, as a share of the bytes of K and V."""
HANDED_ON = 128
"""Passing a result on takes about as long as this many keys; measured on an H200 only."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    splits: int
    rows: int = 16
    """The most rows of a tile."""
    block_n: int = 64
    num_warps: int = 4
    num_stages: int = 3

    @classmethod
    def choose(cls, key_heads: int, keys: int, rows: int, row_bytes: int, gpu: GPU) -> Launch:
        """Return the launch for `rows` rows that share each key head: one program per multiprocessor, since more of
        them were slower, as were tiles of more rows (docs/log.md). With more splits than the root of what they have to
        process, passing on takes longer than it saves."""
        splits = gpu.multiprocessors // max(1, key_heads * triton.cdiv(rows, cls.rows))
        block_n = next(n for n in (64, 32, 16) if 3 * 2 * n * row_bytes <= gpu.shared_bytes // 2 or n == 16)
        return cls(max(1, min(splits, isqrt(keys // HANDED_ON))), block_n=block_n)


def suits(q: Any, k: Any, v: Any, gpu: GPU | None = None) -> bool:
    """Return whether there are so few tiles of rows that most of a GPU would be idle unless the keys are split, and so
    many keys that this is worth while. The workspace must be small beside K and V."""
    (_, H, M, D), (G, N) = q.shape, k.shape[1:3]
    if q.element_size() != 2 or D > MAX_DIM or k.shape != v.shape or max(MIN_KEYS, 8 * M) > N:
        return False
    small = workspace_bytes(H, M, D) <= SHARE * 2 * G * N * D * k.element_size()
    flat = all(t.shape[3] * t.stride(3) < 2**31 for t in (q, k, v))  # as in decode.py
    return small and flat and launch_of(q, k, gpu or gpu_of(q.device)).splits > 1


def launch_of(q: Any, k: Any, gpu: GPU) -> Launch:
    (B, H, M, D), (G, N) = q.shape, k.shape[1:3]
    row_bytes = max(16, triton.next_power_of_2(D)) * q.element_size()
    return Launch.choose(B * G, N, M * (H // G), row_bytes, gpu)


def workspace_bytes(heads: int, queries: int, head_dim: int) -> int:
    """Return the size of the outputs, maxima and sums that are passed on: one of each per row."""
    return heads * queries * (head_dim + 2) * 4


@triton.jit
def _await(flag_ptr, wanted):
    while tl.atomic_add(flag_ptr, 0, sem="acquire") != wanted:
        pass


@triton.jit(do_not_specialize=["B", "G", "GROUP", "M", "N", "SPLITS", "TILES", "token"])
def attention_relay_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    parts_ptr,
    marks_ptr,
    flags_ptr,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_vd,
    B,
    G,
    GROUP,
    M,
    N,
    D,
    SPLITS,
    TILES,
    token,
    scale,
    CAUSAL: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAD_D: tl.constexpr,
    HEADS_LAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    split = tl.program_id(0) % SPLITS
    tile = tl.program_id(0) // SPLITS
    head = tile // TILES
    batch = (head // G).to(tl.int64)
    head_k = (head % G).to(tl.int64)
    rows = (tile % TILES) * BLOCK_R + tl.arange(0, BLOCK_R)
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    k_base = k_ptr + batch * stride_kb + head_k * stride_kh
    v_base = v_ptr + batch * stride_vb + head_k * stride_vh
    there = rows < GROUP * M
    head_q = head_k * GROUP + rows // M
    query = rows % M

    q_rows = batch * stride_qb + head_q * stride_qh + query.to(tl.int64) * stride_qm
    mask = there[:, None] & (dims < D)[None, :]
    q = tl.load(q_ptr + q_rows[:, None] + dims[None, :] * stride_qd, mask=mask, other=0.0)
    seen = tl.full([BLOCK_R], N, tl.int32)
    full = N // BLOCK_N
    if CAUSAL:
        seen = query + N - M + 1
        full = tl.maximum(0, N - M + 1) // BLOCK_N
    masked = split + tl.maximum(0, tl.cdiv(full - split, SPLITS)) * SPLITS

    acc = tl.zeros([BLOCK_R, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_R], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_R], tl.float32)
    for block in tl.range(split, masked, SPLITS):
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, None, seen, 0, N, D, scale, None, False, False, False, PAD_D, PRECISION,
        )  # fmt: skip
    for block in tl.range(masked, tl.cdiv(N, BLOCK_N), SPLITS):
        acc, row_max, row_sum = step(
            acc, row_max, row_sum, q, k_base, v_base, block * BLOCK_N, cols, dims, stride_kn, stride_kd, stride_vn,
            stride_vd, None, seen, 0, N, D, scale, None, True, False, False, PAD_D, PRECISION,
        )  # fmt: skip

    row = (batch * G * GROUP + head_q) * M + query
    places = row[:, None] * D + dims[None, :]
    if split > 0:
        _await(flags_ptr + tile, token + split)
        before = tl.load(parts_ptr + places, mask=mask, other=0.0, cache_modifier=".cg")
        before_max = tl.load(marks_ptr + 2 * row, mask=there, other=float("-inf"), cache_modifier=".cg")
        before_sum = tl.load(marks_ptr + 2 * row + 1, mask=there, other=0.0, cache_modifier=".cg")
        tl.debug_barrier()  # all warps read the marks, and one of them overwrites them
        higher = tl.maximum(row_max, before_max)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        own, theirs = tl.exp2(row_max - shift), tl.exp2(before_max - shift)
        acc = acc * own[:, None] + before * theirs[:, None]
        row_sum = row_sum * own + before_sum * theirs
        row_max = higher
    if split + 1 < SPLITS:
        tl.store(parts_ptr + places, acc, mask=mask, cache_modifier=".cg")
        tl.store(marks_ptr + 2 * row, row_max, mask=there, cache_modifier=".cg")
        tl.store(marks_ptr + 2 * row + 1, row_sum, mask=there, cache_modifier=".cg")
        tl.debug_barrier()
        tl.atomic_xchg(flags_ptr + tile, token + split + 1, sem="release")
    else:
        tl.atomic_xchg(flags_ptr + tile, token - token, sem="relaxed")
        acc, lse = ended(acc, row_max, row_sum)
        tl.store(lse_ptr + row, lse, mask=there)
        if HEADS_LAST:
            places = ((batch * M + query) * G * GROUP + head_q)[:, None] * D + dims[None, :]
        tl.store(o_ptr + places, acc.to(o_ptr.dtype.element_ty), mask=mask)


def forward(q: Any, k: Any, v: Any, *, causal: bool, scale: float, launch: Launch | None = None) -> tuple[Any, Any]:
    """Return o and lse, newly allocated."""
    return prepared(q, k, v, causal, launch)(q, k, v, scale)


def prepared(q: Any, k: Any, v: Any, causal: bool, launch: Launch | None = None, gpu: GPU | None = None) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtype, device and alignment to 16 bytes as these. The
    result is stored as q is."""
    B, H, M, D = q.shape
    G, N = k.shape[1], k.shape[2]
    block_d = max(16, triton.next_power_of_2(D))
    launch = launch or launch_of(q, k, gpu or gpu_of(q.device))
    block_r = max(16, min(launch.rows, triton.next_power_of_2(M * (H // G))))
    tiles = triton.cdiv(M * (H // G), block_r)
    splits = max(1, min(launch.splits, triton.cdiv(N, launch.block_n)))
    constants = {
        "CAUSAL": causal and M > 1,
        "BLOCK_R": block_r,
        "BLOCK_N": launch.block_n,
        "BLOCK_D": block_d,
        "PAD_D": block_d != D,
        "HEADS_LAST": heads_last(q),
        "PRECISION": precision(q.dtype),
    }
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    attend = Launcher(attention_relay_kernel, (B * G * tiles * splits, 1, 1), constants, options, q.device)
    numbers = *q.stride(), *k.stride(), *v.stride(), B, G, H // G, M, N, D, splits, tiles
    token = (1 << 60) + secrets.randbits(60)
    of_rows = (B, H, M)
    space = ((B * H * M * D,), torch.float32), ((B * H * M * 2,), torch.float32), ((B * G * tiles,), torch.int64)
    last = heads_last(q)
    make = maker(q.device, (turned(q.shape) if last else q.shape, q.dtype), (of_rows, torch.float32), *space)

    def forward(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, Any]:
        o, lse, *space = make()
        if o.numel():
            attend(q, k, v, o, lse, *space, *numbers, token, scale * LOG2_E)
        return o.transpose(1, 2) if last else o, lse

    return forward
