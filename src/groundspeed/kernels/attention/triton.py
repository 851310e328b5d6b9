"""Attention forward in portable Triton: o = softmax(q·kᵀ·scale)·v with an online softmax, in O(S) memory.

q [B, H, M, D], k [B, G, N, D] and v [B, G, N, V], with H a multiple of G (GQA: a group of H/G query heads shares one
key head), in any strides. o [B, H, M, V] and, on request, lse [B, H, M] (natural logarithm, FP32) are contiguous,
except that o is stored as [B, M, H, V] if q is stored as [B, M, H, D]. Masks are aligned bottom-right: under a causal
mask, query i sees keys up to i + N − M. A row that sees no key gives zeros and an lse of −inf. Windows, soft-caps and
sinks are as in form.py; a sink is part of the lse.

There is one program per tile of BLOCK_M queries of one head. Key blocks that no mask touches go through a loop without
masks; the few at the left edge of a window come before them, those at the diagonal and at the end after them. Products
run in the dtype of the inputs and accumulate in FP32. FP32 inputs are split into three TF32 products, which keeps FP32
accuracy on the tensor cores.

Limits: D and V from 1 to 256, each padded to a power of two internally (80 costs as much as 128). Trade-off: plain
pointers and tl.dot run on sm_80 and newer without change, even for misaligned and strided views. But on Hopper each
wgmma is waited for, whereas a kernel written for Hopper overlaps the two products with the softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from groundspeed.kernels.attention.form import Form, heads_last, turned
from groundspeed.kernels.attention.scores import capped, units
from groundspeed.kernels.launch import Launcher, maker

Forward = Callable[..., tuple[Any, Any]]
"""Takes q, k, v, scale and, if the form has them, sinks; returns o, and lse or None."""


@dataclass(frozen=True)
class Launch:
    """All tunable parameters of a launch."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}

    @classmethod
    def choose(
        cls, queries: int, head_dim: int, dtype: torch.dtype, capability: tuple[int, int], *, packed: bool = False
    ) -> Launch:
        """Return the launch that was fastest on an H200 with tools/tune_attention.py, for S = 512 to 8192, full and
        causal (docs/log.md). For other GPUs it is the nearest one that fits their shared memory and compiles without
        spills; none was measured there. GPUs of compute capability 8.6, 8.9 and 12 have less than 100 KB of shared
        memory."""
        padded = max(16, triton.next_power_of_2(head_dim))
        rows = max(16, triton.next_power_of_2(queries))
        hopper = capability[0] in (9, 10)
        small = capability in ((8, 6), (8, 9)) or capability[0] >= 12
        if dtype == torch.float32:
            # Three TF32 products hold three times the operands, so registers limit the tile. The fastest tile on Hopper
            # spills a little.
            if padded <= 64:
                return cls(min(128, rows), 64 if hopper else 32, 8 if rows >= 128 else 4, 2)
            if padded == 128:
                return cls(min(32, rows), 32, 4, 2)
            return cls(min(32 if hopper else 16, rows), 32, 4, 1)
        if padded <= 128:
            # 64 rows in one warpgroup, so that several programs share an SM and one computes while another waits for
            # its product: 1 to 15% faster than 128 rows in two warpgroups, at every length.
            short = packed and padded == 128 and capability[0] >= 12  # bounds of sequences take registers
            return cls(min(64, rows), 32 if short else 64, 4, 3)
        if hopper and rows >= 128:
            return cls(128, 32 if packed else 64, 8, 2)
        return cls(64, 32 if small else 64, 8, 2) if rows >= 64 else cls(min(32, rows), 32, 4, 2)


@triton.jit
def _rows(
    base, index, dims, stride_row, stride_dim, limit, D, MASKED: tl.constexpr, PAD_D: tl.constexpr, WIDE: tl.constexpr
):
    """Load rows `index` of a matrix. Addresses are recomputed each time: pointers carried through the loop take two
    registers each and spill, which makes the kernel 1.2 to 18 times slower, depending on the tile (docs/log.md)."""
    row = index.to(tl.int64) if WIDE else index
    dim = dims.to(tl.int64) if WIDE else dims
    pointers = base + row[:, None] * stride_row + dim[None, :] * stride_dim
    if MASKED:
        return tl.load(pointers, mask=(index < limit)[:, None] & (dims < D)[None, :], other=0.0)
    if PAD_D:
        return tl.load(pointers, mask=(dims < D)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def _online_softmax(acc, row_max, row_sum, scores, v, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """Add one block of scores (in units of log2) to the running maximum, sum and output."""
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    p = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(row_max - shift)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
    return acc, new_max, row_sum


@triton.jit
def _scores(q, k, scale, cap, CAP: tl.constexpr, PRECISION: tl.constexpr):
    """Return the scores in units of log2."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if CAP:
        scores = capped(scores, cap)
    return scores


@triton.jit
def _masked_blocks(
    acc,
    row_max,
    row_sum,
    q,
    k_base,
    v_base,
    begin,
    end,
    rows,
    cols,
    dims,
    dims_v,
    stride_kn,
    stride_kd,
    stride_vn,
    stride_vd,
    shift,
    left,
    right,
    N,
    D,
    V,
    scale,
    cap,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_V: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Process blocks of keys that some rows see only in part."""
    for start in tl.range(begin, end, BLOCK_N):
        keys = start + cols
        k = _rows(k_base, keys, dims, stride_kn, stride_kd, N, D, True, PAD_D, WIDE)
        v = _rows(v_base, keys, dims_v, stride_vn, stride_vd, N, V, True, PAD_V, WIDE)
        scores = _scores(q, k, scale, cap, CAP, PRECISION)
        visible = (keys < N)[None, :]
        if RIGHT:
            visible = visible & (keys[None, :] <= rows[:, None] + shift + right)
        if LEFT:
            visible = visible & (keys[None, :] >= rows[:, None] + shift - left)
        scores = tl.where(visible, scores, float("-inf"))
        acc, row_max, row_sum = _online_softmax(acc, row_max, row_sum, scores, v, True, PRECISION)
    return acc, row_max, row_sum


@triton.jit(do_not_specialize=["left", "right", "total"])
def attention_forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    sinks_ptr,
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
    H,
    GROUP,
    M,
    N,
    D,
    V,
    left,
    right,
    scale,
    cap,
    cu_q_ptr,
    cu_k_ptr,
    total,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    CAP: tl.constexpr,
    SINKS: tl.constexpr,
    PACKED: tl.constexpr,
    HEADS_LAST: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    PAD_D: tl.constexpr,
    PAD_V: tl.constexpr,
    WIDE: tl.constexpr,
    EIGHTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    if EIGHTS:  # changes no number, but tells the compiler that 16 bytes can be loaded at once
        stride_qb, stride_qh, stride_qm = stride_qb // 8 * 8, stride_qh // 8 * 8, stride_qm // 8 * 8
        stride_kb, stride_kh, stride_kn = stride_kb // 8 * 8, stride_kh // 8 * 8, stride_kn // 8 * 8
        stride_vb, stride_vh, stride_vn = stride_vb // 8 * 8, stride_vh // 8 * 8, stride_vn // 8 * 8
        D = D // 8 * 8
        if V is not None:
            V = V // 8 * 8
    tiles = tl.cdiv(M, BLOCK_M)
    tile = tl.program_id(0) % tiles
    head = tl.program_id(0) // tiles
    if RIGHT:
        tile = tiles - 1 - tile  # the longest first, so that the short ones fill the tail
    batch = (head // H).to(tl.int64)
    head_q = (head % H).to(tl.int64)
    head_k = head_q // GROUP
    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    dims_v = dims
    if V is None:  # same as the keys: separate variables would take registers
        V = D
    else:
        dims_v = tl.arange(0, BLOCK_V)

    q_base = q_ptr + batch * stride_qb + head_q * stride_qh
    k_base = k_ptr + batch * stride_kb + head_k * stride_kh
    v_base = v_ptr + batch * stride_vb + head_k * stride_vh
    if PACKED:  # M is the length of the longest sequence until here
        begin_q, begin_k = tl.load(cu_q_ptr + batch).to(tl.int64), tl.load(cu_k_ptr + batch).to(tl.int64)
        M = (tl.load(cu_q_ptr + batch + 1) - begin_q).to(tl.int32)
        N = (tl.load(cu_k_ptr + batch + 1) - begin_k).to(tl.int32)
        if first >= M:
            return
        q_base += begin_q * stride_qm
        k_base += begin_k * stride_kn
        v_base += begin_k * stride_vn
    q = _rows(q_base, rows, dims, stride_qm, stride_qd, M, D, True, PAD_D, WIDE)

    shift = N - M
    begin = 0
    clear = 0
    end = N
    full = N
    if RIGHT:
        end = tl.minimum(N, tl.maximum(0, first + BLOCK_M + shift + right))
        full = tl.minimum(N, tl.maximum(0, first + shift + right + 1))
    full = full // BLOCK_N * BLOCK_N
    if LEFT:
        begin = tl.maximum(0, first + shift - left) // BLOCK_N * BLOCK_N
        clear = tl.maximum(0, first + BLOCK_M - 1 + shift - left)
        clear = tl.minimum((clear + BLOCK_N - 1) // BLOCK_N * BLOCK_N, tl.cdiv(end, BLOCK_N) * BLOCK_N)
        full = tl.maximum(full, clear)

    acc = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    if SINKS:
        row_max = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + head_q).to(tl.float32) * 1.4426950408889634
        row_sum += 1.0
    if LEFT:
        acc, row_max, row_sum = _masked_blocks(
            acc, row_max, row_sum, q, k_base, v_base, begin, clear, rows, cols, dims, dims_v, stride_kn, stride_kd,
            stride_vn, stride_vd, shift, left, right, N, D, V, scale, cap, LEFT, RIGHT, CAP, BLOCK_N, PAD_D, PAD_V,
            WIDE, PRECISION,
        )  # fmt: skip
    for start in tl.range(clear, full, BLOCK_N):
        keys = start + cols
        k = _rows(k_base, keys, dims, stride_kn, stride_kd, N, D, False, PAD_D, WIDE)
        v = _rows(v_base, keys, dims_v, stride_vn, stride_vd, N, V, False, PAD_V, WIDE)
        scores = _scores(q, k, scale, cap, CAP, PRECISION)
        acc, row_max, row_sum = _online_softmax(acc, row_max, row_sum, scores, v, False, PRECISION)
    acc, row_max, row_sum = _masked_blocks(
        acc, row_max, row_sum, q, k_base, v_base, full, end, rows, cols, dims, dims_v, stride_kn, stride_kd, stride_vn,
        stride_vd, shift, left, right, N, D, V, scale, cap, LEFT, RIGHT, CAP, BLOCK_N, PAD_D, PAD_V, WIDE, PRECISION,
    )  # fmt: skip

    seen = row_sum != 0.0  # true for NaN
    acc = acc / tl.where(seen, row_sum, 1.0)[:, None]
    # The grid has one dimension, so program_id(1) is 0. The compiler does not know that, so it does not keep what it
    # computed from `rows` in registers through the loops: 20 registers fewer, and at D = 64 four programs per
    # multiprocessor instead of three.
    rows = first + tl.program_id(1) + tl.arange(0, BLOCK_M)
    row = head.to(tl.int64) * M + rows
    lse_row = row
    if HEADS_LAST:
        row = (batch * M + rows) * H + head_q
    if PACKED:
        begin = tl.load(cu_q_ptr + batch).to(tl.int64)  # loaded again: registers are scarce in the loops
        lse_row = head_q * total + begin + rows
        row = (begin + rows) * H + head_q
    if lse_ptr is not None:
        lse = tl.where(seen, (row_max + tl.log2(tl.where(seen, row_sum, 1.0))) * 0.6931471805599453, float("-inf"))
        tl.store(lse_ptr + lse_row, lse, mask=rows < M)
    tl.store(
        o_ptr + row[:, None] * V + dims_v[None, :],
        acc.to(o_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (dims_v < V)[None, :],
    )


def is_wide(*tensors: Any) -> bool:
    """Return whether offsets within a head need 64 bits."""
    return any(t.shape[2] * t.stride(2) + t.shape[3] * t.stride(3) >= 2**31 for t in tensors)


def in_eights(*tensors: Any) -> bool:
    """Return whether all rows begin at multiples of eight elements but the compiler cannot see it: it detects only
    multiples of sixteen."""
    strides = [stride for tensor in tensors for stride in tensor.stride()[:3]]
    columns = [tensor.shape[3] for tensor in tensors]
    return any(n % 16 == 8 for n in columns) and all(n % 8 == 0 for n in (*columns, *strides))


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (8, 0)  # in the interpreter


def forward(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Any = None,
    launch: Launch | None = None,
    with_lse: bool = True,
) -> tuple[Any, Any]:
    """Return o, and lse or None, newly allocated."""
    form = Form.of(causal, window_size, softcap, sinks)
    return prepared(q, k, v, form, launch, with_lse=with_lse)(q, k, v, scale, sinks)


def prepared(q: Any, k: Any, v: Any, form: Form, launch: Launch | None = None, *, with_lse: bool = True) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtype, device and alignment to 16 bytes as these."""
    (B, H, M, D), (_, G, N, V) = q.shape, v.shape
    launch = launch or Launch.choose(M, max(D, V), q.dtype, _capability(q.device))
    constants, options = _constants(q, k, v, form, launch, packed=False), launch.options
    grid = triton.cdiv(M, launch.block_m) * B * H, 1, 1
    launcher = Launcher(attention_forward_kernel, grid, constants, options, q.device)
    left, right = (min(side, M + N) for side in (form.left, form.right))  # larger windows may not fit 32 bits
    numbers = *q.stride(), *k.stride(), *v.stride(), H, H // G, M, N, D, V if V != D else None, left, right
    cap, unit = units(form)
    last, out = constants["HEADS_LAST"], (B, H, M, V)
    sizes = (turned(out) if last else out, q.dtype), *([(q.shape[:3], torch.float32)] if with_lse else [])
    make = maker(q.device, *sizes)

    def forward(q: Any, k: Any, v: Any, scale: float, sinks: Any = None) -> tuple[Any, Any]:
        o, lse = make() if with_lse else (*make(), None)
        if grid[0]:
            launcher(q, k, v, o, lse, sinks, *numbers, scale * unit, cap, None, None, None)
        return (o.transpose(1, 2) if last else o), lse

    return forward


def _constants(q: Any, k: Any, v: Any, form: Form, launch: Launch, *, packed: bool) -> dict[str, Any]:
    D, V = q.shape[3], v.shape[3]
    block_d, block_v = (max(16, triton.next_power_of_2(n)) for n in (D, V))
    return {
        "LEFT": form.left >= 0,
        "RIGHT": form.right >= 0,
        "CAP": form.softcap > 0,
        "SINKS": form.sinks,
        "PACKED": packed,
        "HEADS_LAST": not packed and heads_last(q),
        "BLOCK_M": launch.block_m,
        "BLOCK_N": launch.block_n,
        "BLOCK_D": block_d,
        "BLOCK_V": block_v,
        "PAD_D": block_d != D,
        "PAD_V": block_v != V,
        "WIDE": is_wide(q, k, v),
        "EIGHTS": in_eights(q, k, v),
        "PRECISION": "tf32x3" if q.dtype == torch.float32 else "ieee",
    }


def packed_forward(
    q: Any,
    k: Any,
    v: Any,
    cu_q: Any,
    cu_k: Any,
    longest: int,
    *,
    form: Form,
    scale: float,
    sinks: Any = None,
    launch: Launch | None = None,
) -> tuple[Any, Any]:
    """Return o [total, H, V] and lse [H, total], newly allocated, for q [total, H, D], k [total, G, D] and v
    [total, G, V], in which sequence b has the rows from cu[b] to cu[b + 1]. `longest` is the number of queries of the
    longest sequence."""
    return packed_prepared(q, k, v, len(cu_q) - 1, longest, form, launch)(q, k, v, cu_q, cu_k, scale, sinks)


def packed_prepared(
    q: Any, k: Any, v: Any, count: int, longest: int, form: Form, launch: Launch | None = None
) -> Forward:
    """Return `packed_forward` for tensors like these, in the sense of `prepared`, and `count` sequences."""
    (total, H, D), (_, G, V) = q.shape, v.shape
    make = maker(q.device, ((total, H, V), q.dtype), ((H, total), torch.float32))
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    launch = launch or Launch.choose(longest, max(D, V), q.dtype, _capability(q.device), packed=True)
    grid = triton.cdiv(longest, launch.block_m) * count * H, 1, 1
    constants = _constants(q, k, v, form, launch, packed=True)
    launcher = Launcher(attention_forward_kernel, grid, constants, launch.options, q.device)
    left, right = (min(side, 2**30) for side in (form.left, form.right))
    cap, unit = units(form)
    strides = (0, *q.stride()[1:], 0, *k.stride()[1:], 0, *v.stride()[1:])
    numbers = *strides, H, H // G, longest, k.shape[2], D, V if V != D else None, left, right

    def forward(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, scale: float, sinks: Any = None) -> tuple[Any, Any]:
        o, lse = make()
        if grid[0] and total:
            launcher(q, k, v, o, lse, sinks, *numbers, scale * unit, cap, cu_q, cu_k, total)
        return o, lse

    return forward
