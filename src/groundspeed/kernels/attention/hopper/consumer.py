"""The consumer warpgroups: each computes 64 rows of a tile, S = Q·Kᵀ and O += P·V, with the softmax in between.

P·V of a block is issued together with Q·Kᵀ of the next block, or of the first block of the next tile, so that the
tensor cores stay busy during the softmax: with two products in flight, a consumer waits for the first, computes its
softmax, and only then waits for the second."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from groundspeed.kernels.attention.hopper.loaders import Pipe
from groundspeed.kernels.attention.hopper.schedule import Form, Tile, Work
from groundspeed.kernels.hopper import await_turn, pass_turn

MINUS_INFINITY, LOWEST = gl.constexpr(float("-inf")), gl.constexpr(-3.4028234663852886e38)
"""LOWEST is the lowest FP32 number: no score is lower, and unlike −inf it can be subtracted from −inf."""
LN_2, LOG2_E = gl.constexpr(0.6931471805599453), gl.constexpr(1.4426950408889634)
TWO_LOG2_E = gl.constexpr(2 * 1.4426950408889634)
LAZY_LOG2 = gl.constexpr(4.0)
"""The largest growth of a maximum, in units of log2, that is ignored: P stays under 2⁴. With 2⁸ the output would rarely
be rescaled less often, and the result would be less exact: the P that has most of the weight of a row has the smallest
rounding error just under 1."""


@gluon.constexpr_function
def _mma(columns):
    """Return the layout of a product of 64 rows in the registers of a warpgroup."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.constexpr_function
def _shared(rows, columns, dtype):
    """Return the layout of O in shared memory."""
    return gl.NVMMASharedLayout.get_default_for([rows, columns], dtype)


def _hiding(count: int, seen: str = "gt") -> str:
    """Return PTX that sets a score to −inf if its column is not below the number of columns that its row sees; with
    `le`, if its column is below the number of first columns that its row does not see. It handles the `count` scores of
    a thread: columns 8·i and 8·i + 1 of two rows, offset by twice the thread's index in its quad. Columns are compared
    as constants, which take no registers; Triton would keep column indices in registers."""
    lines = [".reg .pred p;", ".reg .b32 place, a, b;"]
    lines += ["mov.u32 place, %laneid;", "and.b32 place, place, 3;", "shl.b32 place, place, 1;"]
    lines += [f"sub.s32 a, ${2 * count}, place;", f"sub.s32 b, ${2 * count + 2}, place;"]
    for i in range(count):
        row, column = "b" if i & 2 else "a", 8 * (i // 4) + (i & 1)
        lines += [f"setp.{seen}.s32 p, {row}, {column};", f"selp.f32 ${i}, ${i}, 0fFF800000, p;"]
    return "{\n" + "\n".join(lines) + "\n}"


def _in_place(count: int, kind: str) -> str:
    """Return the constraints of `count` registers that are modified, and of `count` inputs of another kind."""
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + [kind] * count)


HIDING_32, HIDING_64 = gl.constexpr(_hiding(32)), gl.constexpr(_hiding(64))
BEFORE_32, BEFORE_64 = gl.constexpr(_hiding(32, "le")), gl.constexpr(_hiding(64, "le"))
SEEN_32, SEEN_64 = gl.constexpr(_in_place(32, "r")), gl.constexpr(_in_place(64, "r"))


@gluon.jit
def _hidden(scores, seen, form: Form):
    """Return the scores with −inf from column `seen` of each row on."""
    both = gl.broadcast(scores, seen[:, None])
    if form.BLOCK_N == 64:
        return gl.inline_asm_elementwise(HIDING_32, SEEN_32, both, dtype=gl.float32, is_pure=True, pack=32)
    else:
        return gl.inline_asm_elementwise(HIDING_64, SEEN_64, both, dtype=gl.float32, is_pure=True, pack=64)


@gluon.jit
def _hidden_before(scores, unseen, form: Form):
    """Return the scores with −inf before column `unseen` of each row."""
    both = gl.broadcast(scores, unseen[:, None])
    if form.BLOCK_N == 64:
        return gl.inline_asm_elementwise(BEFORE_32, SEEN_32, both, dtype=gl.float32, is_pure=True, pack=32)
    else:
        return gl.inline_asm_elementwise(BEFORE_64, SEEN_64, both, dtype=gl.float32, is_pure=True, pack=64)


@gluon.jit
def _capped(scores, work: Work):
    """Return cap·tanh(unit·s) = cap − 2·cap / (exp(2·unit·s) + 1). This is more exact than `tanh.approx`: its error is
    some 2⁻²² of the cap."""
    grown = gl.exp2(scores * (work.unit * TWO_LOG2_E)) + 1.0
    inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [grown], dtype=gl.float32, is_pure=True, pack=1
    )
    return work.cap - (2.0 * work.cap) * inverse


@gluon.jit
def _masked(scores, tile: Tile, first, key, work: Work):
    """Return the capped scores of the rows from `first` and the keys from `key`; −inf if a row does not see a key."""
    form = work.form
    ROWS: gl.constexpr = gl.SliceLayout(1, scores.type.layout)
    queries, keys = work.lengths(tile)
    if form.CAP:
        scores = _capped(scores, work)
    if form.LEFT:
        unseen = first + keys - queries - work.left - key
        if unseen + form.BLOCK_M > 1:
            scores = _hidden_before(scores, gl.arange(0, form.BLOCK_M, ROWS) + unseen, form)
    left = keys - key
    if form.CAUSAL:
        if form.LEFT:
            seen = unseen + (work.left + work.right + 1)
        else:
            seen = first + keys - queries + work.right + 1 - key
        if gl.minimum(left, seen) < form.BLOCK_N:
            scores = _hidden(scores, gl.minimum(left, gl.arange(0, form.BLOCK_M, ROWS) + seen), form)
    elif form.RAGGED:
        if left < form.BLOCK_N:
            scores = _hidden(scores, gl.full([form.BLOCK_M], 0, gl.int32, ROWS) + left, form)
    return scores


@gluon.jit
def _sums(p, form: Form):
    """Return the sum of each row; with LOCAL_SUMS each thread's part of it, without exchange between threads."""
    if form.LOCAL_SUMS:
        return gl.sum(gl.sum(gl.reshape(p, [form.BLOCK_M, form.BLOCK_N // 8, 4, 2]), 3), 1)
    else:
        return gl.sum(p, 1)


@gluon.jit
def _softmax(scores, row_max, row_peak, row_sum, scale, form: Form):
    """Return P, the factor for the output so far, and the new maximum (in units of log2), peak and sum. The peak is the
    true largest score, which a lazy maximum may stay below."""
    top = gl.max(scores, 1) * scale
    if form.LAZY:
        row_peak = gl.maximum(row_peak, top)
        new_max = gl.where(row_peak - row_max > LAZY_LOG2, row_peak, row_max)
    else:
        new_max = gl.maximum(row_max, top)
    p = gl.exp2(scores * scale - new_max[:, None])
    rescale = gl.exp2(row_max - new_max)
    sums = _sums(p, form)
    if form.LOCAL_SUMS:
        each = gl.convert_layout(rescale, gl.SliceLayout(1, sums.type.layout))
        row_sum = gl.convert_layout(row_sum, sums.type.layout) * each[:, None] + sums
    else:
        row_sum = row_sum * rescale + sums
    return p, rescale, new_max, row_peak, row_sum


def _lazily(count: int) -> str:
    """Return PTX that multiplies `count` registers by the factors of their rows, unless all of a warp's are 1."""
    first, second = f"${2 * count}", f"${2 * count + 2}"
    lines = [f"setp.neu.f32 a, {first}, 0f3F800000;", f"setp.neu.f32 b, {second}, 0f3F800000;"]
    lines += ["or.pred a, a, b;", "vote.sync.any.pred a, a, 0xffffffff;"]
    lines += ["@!a bra DONE;"]
    lines += [f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count)]
    return "{ .reg .pred a, b;\n" + "\n".join(lines) + "\nDONE: }"


LAZY_8, LAZY_16, LAZY_32, LAZY_64 = (gl.constexpr(_lazily(count)) for count in (8, 16, 32, 64))
FACTOR_8, FACTOR_16, FACTOR_32, FACTOR_64 = (gl.constexpr(_in_place(count, "f")) for count in (8, 16, 32, 64))


@gluon.jit
def _rescaled(out, rescale, COLUMNS: gl.constexpr, form: Form):
    factor = gl.convert_layout(rescale, gl.SliceLayout(1, _mma(COLUMNS)))[:, None]
    if not form.LAZY:
        return out * factor
    elif COLUMNS == 16:
        pair = gl.broadcast(out, factor)
        return gl.inline_asm_elementwise(LAZY_8, FACTOR_8, pair, dtype=gl.float32, is_pure=False, pack=8)
    elif COLUMNS == 32:
        pair = gl.broadcast(out, factor)
        return gl.inline_asm_elementwise(LAZY_16, FACTOR_16, pair, dtype=gl.float32, is_pure=False, pack=16)
    elif COLUMNS == 64:
        pair = gl.broadcast(out, factor)
        return gl.inline_asm_elementwise(LAZY_32, FACTOR_32, pair, dtype=gl.float32, is_pure=False, pack=32)
    else:
        pair = gl.broadcast(out, factor)
        return gl.inline_asm_elementwise(LAZY_64, FACTOR_64, pair, dtype=gl.float32, is_pure=False, pack=64)


@gluon.jit
def _rest_rescaled(rest, rescale, form: Form):
    if form.VALUE_REST:
        return _rescaled(rest, rescale, form.VALUE_REST, form)
    else:
        return rest


@gluon.jit
def _no_output(form: Form):
    """Return an empty output and its second part, or a placeholder if there is none."""
    out = gl.zeros([form.BLOCK_M, form.VALUE_DIM], gl.float32, _mma(form.VALUE_DIM))
    if form.VALUE_REST:
        return out, gl.zeros([form.BLOCK_M, form.VALUE_REST], gl.float32, _mma(form.VALUE_REST))
    else:
        return out, gl.to_tensor(0)


@gluon.jit
def _scores(q, q_rest, n, pipe: Pipe, form: Form):
    """Issue Q·Kᵀ of block n, and return it while still in flight."""
    zero = gl.zeros([form.BLOCK_M, form.BLOCK_N], gl.float32, _mma(form.BLOCK_N))
    scores = warpgroup_mma(q, pipe.k.buffer(n).permute((1, 0)), zero, use_acc=False, is_async=True)
    if form.HEAD_REST:
        scores = warpgroup_mma(q_rest, pipe.k.rest(n).permute((1, 0)), scores, use_acc=True, is_async=True)
    return scores


@gluon.jit
def _added(p, out, rest, fresh, n, pipe: Pipe, form: Form):
    """Issue P·V of block n, and return the output, still in flight. `fresh`: block n is the first of its tile."""
    out = warpgroup_mma(p, pipe.v.buffer(n), out, use_acc=fresh == 0, is_async=True)
    if form.VALUE_REST:
        p = gl.convert_layout(p, gl.DotOperandLayout(0, _mma(form.VALUE_REST), 2))
        rest = warpgroup_mma(p, pipe.v.rest(n), rest, use_acc=fresh == 0, is_async=True)
    return out, rest


@gluon.jit
def _awaited(out, rest, form: Form):
    if form.VALUE_REST:
        return warpgroup_mma_wait(0, deps=(out, rest))
    else:
        return warpgroup_mma_wait(0, deps=(out,)), rest


@gluon.jit
def _first(pipe: Pipe, work: Work, scale, C: gl.constexpr):
    """Return P, maximum, peak and sum of the first block of the first tile, with no earlier product to overlap."""
    form = work.form
    DTYPE: gl.constexpr = pipe.q.buffers.dtype
    no_max, no_sum = _nothing(form)
    first, blocks = work.span(work.first())
    key = work.begin(work.first(), first)
    pipe.q.await_loaded(0, C)
    pipe.k.wait(0)
    scores = _scores(pipe.q.buffer(0, C), pipe.q.rest(0, C), 0, pipe, form)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(pipe.k_free.index(0), count=1)
    scores = _masked(scores, work.first(), first + C * form.BLOCK_M, key, work)
    p, _, row_max, row_peak, row_sum = _softmax(scores, no_max, no_max, no_sum, scale, form)
    if form.ORDERED:
        pipe.k.wait(1, pred=(blocks > 1) | (work.count() > 1))
    return _operand(p, DTYPE, form), row_max, row_peak, row_sum


@gluon.jit
def _nothing(form: Form):
    """Return the maximum (also the peak) and the sum of a row before its first block."""
    SCORES: gl.constexpr = _mma(form.BLOCK_N)
    row_max = gl.full([form.BLOCK_M], LOWEST if form.EMPTY else MINUS_INFINITY, gl.float32, gl.SliceLayout(1, SCORES))
    return row_max, _sums(gl.zeros([form.BLOCK_M, form.BLOCK_N], gl.float32, SCORES), form)


@gluon.jit
def _begin(q, q_rest, p, out, rest, fresh, n, pipe: Pipe, form: Form, C: gl.constexpr):
    """Return Q·Kᵀ of block n, completed, and the output with P·V of the block before it, still in flight. `fresh`: that
    block is the first of its tile."""
    UNDER_WAY: gl.constexpr = 2 if form.VALUE_REST else 1
    if not form.ORDERED:
        pipe.k.wait(n)
    if form.TURNS:
        await_turn(C)
    scores = _scores(q, q_rest, n, pipe, form)
    pipe.v.wait(n - 1)
    out, rest = _added(p, out, rest, fresh, n - 1, pipe, form)
    if form.TURNS:
        pass_turn((C + 1) % form.CONSUMERS)
    scores = warpgroup_mma_wait(UNDER_WAY, deps=(scores,))
    if form.SPLIT:
        mbarrier.arrive(pipe.k_free.index(n % form.STAGES), count=1)
    return scores, out, rest


@gluon.jit
def _finish(out, rest, n, more, pipe: Pipe, form: Form):
    """Return the output with P·V of the block before n, completed. `more`: there is a block after n."""
    if form.ORDERED:
        pipe.k.wait(n + 1, pred=more)
    out, rest = _awaited(out, rest, form)
    if form.SPLIT:
        mbarrier.arrive(pipe.v_free.index((n - 1) % form.STAGES), count=1)
    else:
        mbarrier.arrive(pipe.k_free.index(n % form.STAGES), count=1)
    return out, rest


@gluon.jit
def _operand(p, dtype: gl.constexpr, form: Form):
    """Return P as the left operand of a product, in registers."""
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, _mma(form.VALUE_DIM), 2))


@gluon.jit
def _gain(row_max, row_peak, dtype: gl.constexpr):
    """Return how much the largest P of a row gained by rounding. With an up-to-date maximum it is 1, which is exact.
    With a lazy one it is rounded, and if one key has nearly all the weight of the row, the output has the same relative
    error, unless it is divided by the rounded P."""
    largest = gl.exp2(row_peak - row_max)
    return largest.to(dtype).to(gl.float32) - largest


@gluon.jit
def _close(row_max, row_peak, row_sum, tile: Tile, work: Work, sinks_ptr, dtype: gl.constexpr):
    """Return the LSE of a tile, if requested, and the factor for its output, while its last product is in flight."""
    form = work.form
    if form.LOCAL_SUMS:
        row_sum = gl.convert_layout(gl.sum(row_sum, 1), row_max.type.layout)
    if form.SINKS:
        sink = gl.load(sinks_ptr + work.head(tile) % work.heads).to(gl.float32) * LOG2_E
        top = gl.maximum(row_max, sink)
        shift = gl.where(top == MINUS_INFINITY, 0.0, top)
        own = gl.exp2(row_max - shift)
        total = row_sum * own + gl.exp2(sink - shift)
        lse = top + gl.log2(total) if form.LSE else top
        if form.LAZY:
            total += _gain(row_max, row_peak, dtype) * own
        inverse = own / gl.where(total == 0.0, 1.0, total)
    else:
        lse = row_max + gl.log2(row_sum) if form.LSE else row_max
        if form.LAZY:
            row_sum += _gain(row_max, row_peak, dtype)
        if form.EMPTY:
            row_sum = gl.where(row_sum == 0.0, 1.0, row_sum)
        inverse = 1.0 / row_sum
    return lse * LN_2, gl.convert_layout(inverse, gl.SliceLayout(1, _mma(form.VALUE_DIM)))


@gluon.jit
def _store_rest(rest, inverse, buffer, form: Form):
    if form.VALUE_REST != form.HEAD_REST:
        SHAPE: gl.constexpr = [form.BLOCK_M, form.VALUE_REST]
        buffer = buffer._reinterpret(buffer.dtype, SHAPE, _shared(form.BLOCK_M, form.VALUE_REST, buffer.dtype))
    inverse = gl.convert_layout(inverse, gl.SliceLayout(1, _mma(form.VALUE_REST)))
    buffer.store((rest * inverse[:, None]).to(buffer.dtype))


@gluon.jit
def _hand_over(out, rest, inverse, lse, tile: Tile, pipe: Pipe, work: Work, lse_ptr, C: gl.constexpr):
    """Write O to the slot of Q, from which it is stored, and store the LSE. Called only after the keys are released:
    later instructions do not overtake these stores, and the loader warp would have to wait."""
    form = work.form
    buffer = pipe.q.buffer(tile.n, C)
    if form.VALUE_DIM != form.HEAD_DIM:
        SHAPE: gl.constexpr = [form.BLOCK_M, form.VALUE_DIM]
        buffer = buffer._reinterpret(buffer.dtype, SHAPE, _shared(form.BLOCK_M, form.VALUE_DIM, buffer.dtype))
    buffer.store((out * inverse[:, None]).to(buffer.dtype))
    if form.VALUE_REST:
        _store_rest(rest, inverse, pipe.q.rest(tile.n, C), form)
    fence_async_shared()
    pipe.q.hand_over(tile.n, C)
    if form.LSE:
        first, _ = work.span(tile)
        queries, _ = work.lengths(tile)
        rows = first + C * form.BLOCK_M + gl.arange(0, form.BLOCK_M, lse.type.layout)
        place = rows
        if form.PACKED:
            place = tile.part.query + rows
        gl.store(lse_ptr + (work.queries.to(gl.int64) * work.head(tile) + place), lse, mask=rows < queries)


@gluon.jit
def _last(p, out, rest, fresh, n, pipe: Pipe, form: Form):
    """Return the output with P·V of the very last block, n − 1."""
    pipe.v.wait(n - 1)
    out, rest = _added(p, out, rest, fresh, n - 1, pipe, form)
    return _awaited(out, rest, form)


@gluon.jit
def consume(pipe: Pipe, work: Work, scale, lse_ptr, sinks_ptr, C: gl.constexpr):
    """Compute the rows from C·BLOCK_M on of every tile of this program, if it has any."""
    if work.form.PACKED:
        if work.count() > 0:
            _consume(pipe, work, scale, lse_ptr, sinks_ptr, C)
    else:
        _consume(pipe, work, scale, lse_ptr, sinks_ptr, C)


@gluon.jit
def _consume(pipe: Pipe, work: Work, scale, lse_ptr, sinks_ptr, C: gl.constexpr):
    if work.form.TURNS:
        if C == work.form.CONSUMERS - 1:
            pass_turn(0)
    if work.form.FLAT:
        _flat(pipe, work, scale, lse_ptr, sinks_ptr, C)
    else:
        _nested(pipe, work, scale, lse_ptr, sinks_ptr, C)
    if work.form.TURNS:
        if C == 0:
            await_turn(0)


@gluon.jit
def _nested(pipe: Pipe, work: Work, scale, lse_ptr, sinks_ptr, C: gl.constexpr):
    """Run a loop over tiles, with an inner loop over their blocks."""
    form = work.form
    DTYPE: gl.constexpr = pipe.q.buffers.dtype
    no_max, no_sum = _nothing(form)
    p, row_max, row_peak, row_sum = _first(pipe, work, scale, C)
    count = work.count()
    tile = work.first()
    n = 1
    for t in range(count):
        coming = tile
        if form.PACKED:  # started early, since it reads the list from memory
            coming = work.after(tile)
        first, blocks = work.span(tile)
        key = work.begin(tile, first)
        first += C * form.BLOCK_M
        q = pipe.q.buffer(t, C)
        q_rest = pipe.q.rest(t, C)
        out, rest = _no_output(form)
        for b in range(1, blocks):
            scores, out, rest = _begin(q, q_rest, p, out, rest, 0, n, pipe, form, C)
            scores = _masked(scores, tile, first, key + b * form.BLOCK_N, work)
            p, rescale, row_max, row_peak, row_sum = _softmax(scores, row_max, row_peak, row_sum, scale, form)
            out, rest = _finish(out, rest, n, (b + 1 < blocks) | (t + 1 < count), pipe, form)
            out = _rescaled(out, rescale, form.VALUE_DIM, form)
            rest = _rest_rescaled(rest, rescale, form)
            p = _operand(p, DTYPE, form)
            n += 1
        if t + 1 == count:
            lse, inverse = _close(row_max, row_peak, row_sum, tile, work, sinks_ptr, DTYPE)
            out, rest = _last(p, out, rest, 0, n, pipe, form)
            _hand_over(out, rest, inverse, lse, tile, pipe, work, lse_ptr, C)
        else:
            done = tile
            if form.PACKED:
                tile = coming
            else:
                tile = work.after(tile)
            first, blocks = work.span(tile)
            pipe.q.await_loaded(t + 1, C)
            q_rest = pipe.q.rest(t + 1, C)
            scores, out, rest = _begin(pipe.q.buffer(t + 1, C), q_rest, p, out, rest, 0, n, pipe, form, C)
            scores = _masked(scores, tile, first + C * form.BLOCK_M, work.begin(tile, first), work)
            lse, inverse = _close(row_max, row_peak, row_sum, done, work, sinks_ptr, DTYPE)
            p, _, row_max, row_peak, row_sum = _softmax(scores, no_max, no_max, no_sum, scale, form)
            out, rest = _finish(out, rest, n, (blocks > 1) | (t + 2 < count), pipe, form)
            _hand_over(out, rest, inverse, lse, done, pipe, work, lse_ptr, C)
            p = _operand(p, DTYPE, form)
        n += 1


@gluon.jit
def _flat(pipe: Pipe, work: Work, scale, lse_ptr, sinks_ptr, C: gl.constexpr):
    """Run one loop over the blocks of all tiles, with a branch for the end of a tile: faster if tiles are short."""
    form = work.form
    OUT: gl.constexpr = _mma(form.VALUE_DIM)
    DTYPE: gl.constexpr = pipe.q.buffers.dtype
    no_max, no_sum = _nothing(form)
    total = work.blocks()
    p, row_max, row_peak, row_sum = _first(pipe, work, scale, C)
    out, rest = _no_output(form)
    lse = no_max
    inverse = gl.full([form.BLOCK_M], 1.0, gl.float32, gl.SliceLayout(1, OUT))
    tile = work.first()
    first, blocks = work.span(tile)
    b = 0
    for n in range(1, total):
        fresh = b == 0
        b += 1
        ends = b == blocks
        done = tile
        if ends:
            b = 0
            tile = work.after(tile)
            first, blocks = work.span(tile)
        pipe.q.await_loaded(tile.n, C, pred=ends)
        q_rest = pipe.q.rest(tile.n, C)
        scores, out, rest = _begin(pipe.q.buffer(tile.n, C), q_rest, p, out, rest, fresh, n, pipe, form, C)
        scores = _masked(scores, tile, first + C * form.BLOCK_M, work.begin(tile, first) + b * form.BLOCK_N, work)
        if ends:
            lse, inverse = _close(row_max, row_peak, row_sum, done, work, sinks_ptr, DTYPE)
        row_max = gl.where(ends, no_max, row_max)
        row_peak = gl.where(ends, no_max, row_peak)
        row_sum = gl.where(ends, no_sum, row_sum)
        p, rescale, row_max, row_peak, row_sum = _softmax(scores, row_max, row_peak, row_sum, scale, form)
        out, rest = _finish(out, rest, n, n + 1 < total, pipe, form)
        if ends:
            _hand_over(out, rest, inverse, lse, done, pipe, work, lse_ptr, C)
        out = _rescaled(out, rescale, form.VALUE_DIM, form)
        rest = _rest_rescaled(rest, rescale, form)
        p = _operand(p, DTYPE, form)
    lse, inverse = _close(row_max, row_peak, row_sum, tile, work, sinks_ptr, DTYPE)
    out, rest = _last(p, out, rest, b == 0, total, pipe, form)
    _hand_over(out, rest, inverse, lse, tile, pipe, work, lse_ptr, C)
