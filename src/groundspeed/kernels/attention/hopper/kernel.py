"""The Hopper kernel: shared memory, barriers and warp roles."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from groundspeed.kernels.attention.hopper.consumer import consume
from groundspeed.kernels.attention.hopper.loaders import Pipe, Places, load_keys, move_queries
from groundspeed.kernels.attention.hopper.schedule import WITHIN_A_HEAD, Form, Work
from groundspeed.kernels.hopper import Ring, barriers


@gluon.jit
def _rests(buffers, COUNT: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Allocate COUNT buffers for the second part of COLUMNS columns; if there is none, return other buffers, which are
    not used."""
    if COLUMNS:
        LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, COLUMNS], buffers.dtype)
        return gl.allocate_shared_memory(buffers.dtype, [COUNT, ROWS, COLUMNS], LAYOUT)
    else:
        return buffers


@gluon.jit(
    do_not_specialize=["queries", "keys", "heads", "group", "tiles", "items", "left", "right", "shift", "around"]
)
def attention_forward_hopper(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    q_rest,
    k_rest,
    v_rest,
    o_rest,
    lse_ptr,
    scale,
    queries,
    keys,
    heads,
    group,
    tiles,
    items,
    left,
    right,
    cap,
    shift,
    around,
    sinks_ptr,
    tiles_ptr,
    CONSUMERS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    HEAD_REST: gl.constexpr,
    VALUE_DIM: gl.constexpr,
    VALUE_REST: gl.constexpr,
    STAGES: gl.constexpr,
    PLACES: gl.constexpr,
    CAUSAL: gl.constexpr,
    LEFT: gl.constexpr,
    CAP: gl.constexpr,
    SINKS: gl.constexpr,
    PACKED: gl.constexpr,
    PAIRED: gl.constexpr,
    SHIFTED: gl.constexpr,
    RAGGED: gl.constexpr,
    EMPTY: gl.constexpr,
    FLAT: gl.constexpr,
    ORDERED: gl.constexpr,
    TURNS: gl.constexpr,
    LOCAL_SUMS: gl.constexpr,
    LAZY: gl.constexpr,
    SPLIT: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    """`lse_ptr` is None unless the LSE is requested. `left`, `right`, `cap`, `shift`, `around` and `sinks_ptr` are None
    if they do not apply; a causal mask without `right` has right = 0. With packed sequences, `queries` and `keys` are
    the totals of all sequences, and `tiles_ptr` is the list of their tiles. `q_rest` to `o_rest` describe the columns
    beyond a power of two, if there are any."""
    form = Form(
        CONSUMERS, BLOCK_M, BLOCK_N, HEAD_DIM, HEAD_REST, VALUE_DIM, VALUE_REST, STAGES, PLACES, CAUSAL, LEFT, CAP,
        SINKS, PACKED, PAIRED, SHIFTED, RAGGED, EMPTY, FLAT, ORDERED, TURNS, LOCAL_SUMS, LAZY, SPLIT,
        lse_ptr is not None,
    )  # fmt: skip
    before, after, limit, unit = gl.to_tensor(0), gl.to_tensor(0), scale, scale
    shifted, head_mask = gl.to_tensor(0), gl.to_tensor(0)
    if lse_ptr is None:
        lse_ptr = gl.to_tensor(0)
    heads_sinks = lse_ptr
    if LEFT:
        before = left
    if right is not None:
        after = right
    if SHIFTED:
        shifted, head_mask = shift, around
    if CAP:
        limit = cap
        scale = gl.to_tensor(1.0)
    if SINKS:
        heads_sinks = sinks_ptr
    places = tiles
    listed = lse_ptr
    if PAIRED == WITHIN_A_HEAD:
        places = (tiles + 1) // 2
    if PACKED:
        listed = tiles_ptr
        entries = gl.load(tiles_ptr)
        items = entries * heads
        places = gl.maximum(entries, 1)
    heads_on = gl.num_programs(0) // places
    places_on = gl.num_programs(0) - heads_on * places
    work = Work(
        queries, keys, heads, group, tiles, places, items, heads_on, places_on, shifted, head_mask, before, after,
        unit, limit, listed, form,
    )  # fmt: skip
    ROWS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, HEAD_DIM], q_desc.dtype)
    KEYS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, HEAD_DIM], k_desc.dtype)
    VALUES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, VALUE_DIM], v_desc.dtype)
    EACH: gl.constexpr = (PLACES + CONSUMERS - 1) // CONSUMERS
    q_buffers = gl.allocate_shared_memory(q_desc.dtype, [PLACES, BLOCK_M, HEAD_DIM], ROWS)
    q_rests = _rests(q_buffers, PLACES, BLOCK_M, HEAD_REST)
    q = Places(
        q_buffers, q_rests, barriers(CONSUMERS * EACH, 1), barriers(PLACES, 1), PLACES, CONSUMERS, EACH, HEAD_REST
    )
    k_buffers = gl.allocate_shared_memory(k_desc.dtype, [STAGES, BLOCK_N, HEAD_DIM], KEYS)
    k = Ring(k_buffers, _rests(k_buffers, STAGES, BLOCK_N, HEAD_REST), barriers(STAGES, 1), STAGES, HEAD_REST)
    v_buffers = gl.allocate_shared_memory(v_desc.dtype, [STAGES, BLOCK_N, VALUE_DIM], VALUES)
    v = Ring(v_buffers, _rests(v_buffers, STAGES, BLOCK_N, VALUE_REST), barriers(STAGES, 1), STAGES, VALUE_REST)
    k_free = barriers(STAGES, CONSUMERS)
    v_free = barriers(STAGES, CONSUMERS)
    pipe = Pipe(k, v, q, k_free, v_free)
    fence_async_shared()
    if HEAD_REST == 0:  # not used
        q_rest, k_rest = q_desc, k_desc
    if VALUE_REST == 0:
        v_rest, o_rest = v_desc, o_desc
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 0)),
                (load_keys, (pipe, work, k_desc, v_desc, k_rest, v_rest)),
                (move_queries, (pipe, work, q_desc, o_desc, q_rest, o_rest)),
            ],
            [1, 1],
            [24, 24],
        )
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 0)),
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 1)),
                (load_keys, (pipe, work, k_desc, v_desc, k_rest, v_rest)),
                (move_queries, (pipe, work, q_desc, o_desc, q_rest, o_rest)),
            ],
            [4, 1, 1],
            [REGISTERS, 24, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 0)),
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 1)),
                (consume, (pipe, work, scale, lse_ptr, heads_sinks, 2)),
                (load_keys, (pipe, work, k_desc, v_desc, k_rest, v_rest)),
                (move_queries, (pipe, work, q_desc, o_desc, q_rest, o_rest)),
            ],
            [4, 4, 1, 1],
            [REGISTERS, REGISTERS, 24, 24],
        )
