"""The launch of the Hopper kernel from the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton

from groundspeed.kernels.attention.form import Form, heads_last, turned
from groundspeed.kernels.attention.hopper import balance, listing
from groundspeed.kernels.attention.hopper.choice import BLOCK_M, OVER_TWO_HEADS, Launch
from groundspeed.kernels.attention.hopper.kernel import attention_forward_hopper
from groundspeed.kernels.attention.hopper.loaders import FAR
from groundspeed.kernels.launch import Box, Launcher, maker, multiprocessors

ALL, ROUND = 0x7FFF0000, 1 << 34
"""ALL is nearly the largest size of a TMA dimension. ROUND is a stride; FAR times ROUND is 2⁶⁴, so such an offset wraps
around the address space to 0."""
LOG2_E = 1.4426950408889634
ALIGNED = 64
"""A stride that is valid for TMA, used for dimensions of size one."""
WITHOUT_LSE = 1024
"""The LSE is left out, unless requested, up to this many keys, which gains 1 to 3%. With more keys that gained nothing,
or lost 1%."""
Forward = Callable[..., tuple[Any, Any]]
"""Takes q, k, v, scale and, if the form has them, sinks; returns o, and lse or None."""


def _box(tensor: Any, rows: int, columns: int) -> Box:
    """Return the box of a tensor [B, H, M, D]. Batch and head become one dimension if the strides allow it. A dimension
    of size one may have any stride in PyTorch, but TMA requires multiples of 16 bytes."""
    B, H, M, D = tensor.shape
    over_batch, over_head, over_row, _ = tensor.stride()
    shape, strides = [B, H, M, D], [over_batch, over_head, over_row]
    if B == 1 or H == 1 or over_batch == H * over_head:
        shape, strides = [B * H, M, D], [over_head if H > 1 else over_batch, over_row]
    strides = [stride if size > 1 else ALIGNED for stride, size in zip(strides, shape[:-1], strict=True)]
    block = (1,) * (len(shape) - 2) + (rows, columns)
    return Box.made(shape, [*strides, 1], block, tensor.dtype)


def _ragged(tensor: Any, rows: int, columns: int) -> Box:
    """Return the box of a packed tensor [total, heads, dim] whose loads and stores can stop before any row, although
    TMA stops only at the end of a dimension and has no negative strides. Row y of a sequence that ends before row e has
    the coordinates FAR, e, head, FAR − e + y. The last of them reaches the end of its dimension, FAR, exactly at row e.
    The first two cancel its excess: FAR·(ROUND − stride) + e·stride + (FAR − e + y)·stride = FAR·ROUND + y·stride, and
    FAR·ROUND wraps around to 0."""
    total, H, D = tensor.shape
    over_row, over_head, _ = tensor.stride()
    over_row = over_row if total > 1 else ALIGNED
    block = (1, 1, 1, rows, columns)
    shape = [ALL, ALL, H, FAR.value, D]
    strides = [ROUND - over_row, over_row, over_head if H > 1 else ALIGNED, over_row, 1]
    return Box.made(shape, strides, block, tensor.dtype)


class Call(NamedTuple):
    """All of a launch except its tensors and its scale."""

    boxes: tuple[Box, ...]
    """The boxes of q, k, v and o; if the head dimension has a second part, also those of q and k for it; and if the
    values have one, also those of v and o."""
    numbers: tuple[int | float | None, ...]
    unit: float
    """The factor that the scale is multiplied by."""
    constants: dict[str, Any]
    programs: int

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, o: Any, form: Form, launch: Launch) -> Call:
        B, H, M, D = q.shape
        G, N = k.shape[1], k.shape[2]
        tiles, at_once = triton.cdiv(M, launch.rows), launch.residents * multiprocessors(q.device)
        constants = launch.constants(M, N, D, form, B * H, value_dim=v.shape[3])
        items = B * H * tiles
        if constants["PAIRED"]:
            items = items // 2 if constants["PAIRED"] == OVER_TWO_HEADS else B * H * triton.cdiv(tiles, 2)
        sides = (q, BLOCK_M), (k, launch.block_n), (v, launch.block_n), (o, BLOCK_M)
        boxes = tuple(_box(tensor, rows, columns) for (tensor, rows), columns in _each(sides, constants))
        programs = min(items, at_once) if launch.persistent else items
        shift = balance.shift(M, N, form, launch, B * H, programs) if constants["SHIFTED"] else (None, None)
        numbers = M, N, H, H // G, tiles, items, *_bounds(form, M + N), *shift
        return cls(boxes, numbers, _unit(form), constants, programs)

    @classmethod
    def of_packed(cls, q: Any, k: Any, v: Any, o: Any, count: int, form: Form, launch: Launch, longest: int) -> Call:
        """Return the call for packed tensors [total, heads, dim] of `count` sequences, the longest of which has
        `longest` queries."""
        if not launch.persistent:
            raise ValueError(f"{launch}: packed sequences need a persistent launch")
        total, H, D = q.shape
        constants = launch.constants(longest, k.shape[0], D, form, value_dim=v.shape[2], packed=True)
        plain = [(x.transpose(0, 1)[None], rows) for x, rows in ((q, BLOCK_M), (k, launch.block_n))]
        sides = (*plain, (v, launch.block_n), (o, BLOCK_M))
        boxes = tuple(
            (_box if tensor.dim() == 4 else _ragged)(tensor, rows, columns)
            for (tensor, rows), columns in _each(sides, constants)
        )
        items = H * listing.most(total, count, launch.rows)
        programs = min(items, launch.residents * multiprocessors(q.device))
        numbers = total, k.shape[0], H, H // k.shape[1], 0, 0, *_bounds(form, total + k.shape[0]), None, None
        return cls(boxes, numbers, _unit(form), constants, programs)


def _each(sides: Sequence[Any], constants: Mapping[str, Any]) -> list[tuple[Any, int]]:
    """Return each of q, k, v and o with the columns of its box; then, if there is a second part, again with its
    columns."""
    columns = [constants[name] for name in ("HEAD_DIM", "VALUE_DIM", "HEAD_REST", "VALUE_REST") for _ in range(2)]
    return [pair for pair in zip([*sides, *sides], columns, strict=True) if pair[1]]


def _bounds(form: Form, most: int) -> tuple[int | float | None, ...]:
    """Return left, right and cap as the kernel takes them, with the window limited to `most` positions."""
    left, right = (None if side < 0 else min(side, most) for side in (form.left, form.right))
    return left, right or None, form.softcap * LOG2_E or None


def _unit(form: Form) -> float:
    return 1 / form.softcap if form.softcap else LOG2_E


def _described(boxes: Sequence[Box], sides: Sequence[Any]) -> list[Any]:
    """Return the TMA descriptors of q, k, v and o and of their second parts, for a launch through Triton itself."""
    told = [box.of(tensor) for box, tensor in zip(boxes, [*sides, *sides], strict=False)]
    return [*told, *[None] * (8 - len(told))]


def described(
    q: Any, k: Any, v: Any, o: Any, lse: Any, sinks: Any = None, *, form: Form, scale: float, launch: Launch
) -> Any:
    """Return arguments, options and grid of a launch through Triton itself."""
    call = Call.of(q, k, v, o, form, launch)
    arguments = (*_described(call.boxes, (q, k, v, o)), lse, scale * call.unit, *call.numbers, sinks, None)
    return arguments, {**call.constants, **launch.options}, (call.programs,)


def forward(
    q: Any,
    k: Any,
    v: Any,
    *,
    form: Form,
    scale: float,
    sinks: Any = None,
    launch: Launch | None = None,
    with_lse: bool = True,
) -> tuple[Any, Any]:
    """Return o, and lse or None, newly allocated."""
    return prepared(q, k, v, form, launch, with_lse=with_lse)(q, k, v, scale, sinks)


def prepared(q: Any, k: Any, v: Any, form: Form, launch: Launch | None = None, *, with_lse: bool = True) -> Forward:
    """Return `forward` for tensors with the same shapes, strides, dtype and device as these, and aligned to 16
    bytes."""
    heads = q.shape[0] * q.shape[1]
    chosen = launch or Launch.choose(q.shape[2], k.shape[2], q.shape[3], form, heads, value_dim=v.shape[3])
    with_lse = with_lse or k.shape[2] > WITHOUT_LSE
    last, out = heads_last(q), (*q.shape[:3], v.shape[3])
    out = turned(out) if last else out
    make = maker(q.device, (out, q.dtype), *([(q.shape[:3], torch.float32)] if with_lse else []))
    launcher = None
    if q.numel():
        made = torch.empty(out, dtype=q.dtype, device="meta")
        call = Call.of(q, k, v, made.transpose(1, 2) if last else made, form, chosen)
        rests = len(call.boxes) - 4
        no_rests = (None,) * (4 - rests)
        grid = call.programs, 1, 1
        launcher = Launcher(attention_forward_hopper, grid, call.constants, chosen.options, q.device, call.boxes)

    def forward(q: Any, k: Any, v: Any, scale: float, sinks: Any = None) -> tuple[Any, Any]:
        o, lse = make() if with_lse else (*make(), None)
        if launcher:
            sides = q, k, v, o
            launcher(*sides, *sides[:rests], *no_rests, lse, scale * call.unit, *call.numbers, sinks, None)
        return (o.transpose(1, 2) if last else o), lse

    return forward


def described_packed(call: Call, q: Any, k: Any, v: Any, o: Any) -> list[Any]:
    """Return the TMA descriptors of a packed call, for a launch through Triton itself."""
    return _described(call.boxes, (q.transpose(0, 1)[None], k.transpose(0, 1)[None], v, o))


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
    """Return o [total, H, V] and lse [H, total] for q [total, H, D], k [total, G, D] and v [total, G, V], as the
    portable kernel does."""
    return packed_prepared(q, k, v, len(cu_q) - 1, longest, form, launch)(q, k, v, cu_q, cu_k, scale, sinks)


def packed_prepared(
    q: Any, k: Any, v: Any, count: int, longest: int, form: Form, launch: Launch | None = None
) -> Forward:
    """Return `packed_forward` for tensors like these, in the sense of `prepared`, and `count` sequences."""
    (total, H, D), V = q.shape, v.shape[2]
    chosen = launch or Launch.choose(longest, longest, D, form, value_dim=V, packed=True)
    out = total, H, V
    make = maker(q.device, (out, q.dtype), ((H, total), torch.float32))
    launcher = None
    if count and total:
        call = Call.of_packed(q, k, v, torch.empty(out, dtype=q.dtype, device="meta"), count, form, chosen, longest)
        rests = len(call.boxes) - 4
        no_rests = (None,) * (4 - rests)
        grid = call.programs, 1, 1
        launcher = Launcher(attention_forward_hopper, grid, call.constants, chosen.options, q.device, call.boxes)
        listed = listing.prepared(count, total, form, chosen.rows, chosen.block_n, q.device)

    def forward(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, scale: float, sinks: Any = None) -> tuple[Any, Any]:
        o, lse = make()
        if launcher:
            sides, tiles = (q, k, v, o), listed(cu_q, cu_k)
            launcher(*sides, *sides[:rests], *no_rests, lse, scale * call.unit, *call.numbers, sinks, tiles)
        return o, lse

    return forward
