"""The warpgroups that multiply: each has 64 rows of a tile, S = Q·Kᵀ and O += P·V, with the softmax between.

P·V of a block is begun together with Q·Kᵀ of the next one, of the next tile where it was the last, so that the tensor
cores have work while the softmax goes on: two products are under way, the first is waited for, its softmax taken, and
only then the second."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from groundspeed.kernels.attention.hopper.loaders import Pipe
from groundspeed.kernels.attention.hopper.schedule import Form, Work
from groundspeed.kernels.hopper import await_turn, pass_turn

NEGATIVE = gl.constexpr(float("-inf"))
LN_2 = gl.constexpr(0.6931471805599453)
LAZY_LOG2 = gl.constexpr(8.0)
"""P stays under 2⁸: far from the end of FP32, and BF16 and FP16 are as exact there as under 1."""


@gluon.constexpr_function
def _mma(form: Form, columns):
    """How a product of 64 rows lies in the registers of a warpgroup."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def _masked(scores, first, key, work: Work):
    """Scores of the rows from `first` and the keys from `key`; −inf where a row does not see a key."""
    form = work.form
    LAYOUT: gl.constexpr = scores.type.layout
    keys = key + gl.arange(0, form.BLOCK_N, gl.SliceLayout(0, LAYOUT))
    if form.CAUSAL:
        rows = first + gl.arange(0, form.BLOCK_M, gl.SliceLayout(1, LAYOUT))
        if key + form.BLOCK_N > gl.minimum(work.keys, first + work.keys - work.queries + 1):
            seen = gl.minimum(work.keys, rows + work.keys - work.queries + 1)
            scores = gl.where(keys[None, :] < seen[:, None], scores, NEGATIVE)
    elif form.RAGGED:
        if key + form.BLOCK_N > work.keys:
            scores = gl.where((keys < work.keys)[None, :], scores, NEGATIVE)
    return scores


@gluon.jit
def _sums(p, form: Form):
    """Of each row; or of what a thread has of it, which no other thread is needed for."""
    if form.LOCAL_SUMS:
        return gl.sum(gl.sum(gl.reshape(p, [form.BLOCK_M, form.BLOCK_N // 8, 4, 2]), 3), 1)
    else:
        return gl.sum(p, 1)


@gluon.jit
def _softmax(scores, row_max, row_sum, scale, form: Form):
    """P, what the output so far is to be multiplied by, and the new maximum (in units of log2) and sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * scale)
    if form.LAZY:
        new_max = gl.where(new_max - row_max > LAZY_LOG2, new_max, row_max)
    shift = new_max
    if form.EMPTY:
        shift = gl.where(new_max == NEGATIVE, 0.0, new_max)
    p = gl.exp2(scores * scale - shift[:, None])
    rescale = gl.exp2(row_max - shift)
    sums = _sums(p, form)
    if form.LOCAL_SUMS:
        each = gl.convert_layout(rescale, gl.SliceLayout(1, sums.type.layout))
        row_sum = gl.convert_layout(row_sum, sums.type.layout) * each[:, None] + sums
    else:
        row_sum = row_sum * rescale + sums
    return p, rescale, new_max, row_sum


def _lazily(count: int) -> str:
    """Multiply so many registers by what belongs to their rows, unless that is 1 in the whole warp."""
    first, second = f"${2 * count}", f"${2 * count + 2}"
    lines = [f"setp.neu.f32 a, {first}, 0f3F800000;", f"setp.neu.f32 b, {second}, 0f3F800000;"]
    lines += ["or.pred a, a, b;", "vote.sync.any.pred a, a, 0xffffffff;"]
    lines += [f"mov.f32 ${i}, ${count + i};" for i in range(count)]
    lines += ["@!a bra DONE;"]
    lines += [f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count)]
    return "{ .reg .pred a, b;\n" + "\n".join(lines) + "\nDONE: }"


def _operands(count: int) -> str:
    return ",".join(["=&f"] * count + ["f"] * (2 * count))


LAZY_32, OPERANDS_32 = gl.constexpr(_lazily(32)), gl.constexpr(_operands(32))
LAZY_64, OPERANDS_64 = gl.constexpr(_lazily(64)), gl.constexpr(_operands(64))


@gluon.jit
def _rescaled(out, rescale, form: Form):
    if not form.LAZY:
        return out * rescale[:, None]
    elif form.HEAD_DIM == 64:
        pair = gl.broadcast(out, rescale[:, None])
        return gl.inline_asm_elementwise(LAZY_32, OPERANDS_32, pair, dtype=gl.float32, is_pure=False, pack=32)
    else:
        pair = gl.broadcast(out, rescale[:, None])
        return gl.inline_asm_elementwise(LAZY_64, OPERANDS_64, pair, dtype=gl.float32, is_pure=False, pack=64)


@gluon.jit
def _begin(q, p, out, n, pipe: Pipe, form: Form, C: gl.constexpr):
    """Q·Kᵀ of block n when it is there; P·V of the block before it, still under way."""
    if not form.ORDERED:
        pipe.k.wait(n)
    if form.TURNS:
        await_turn(C)
    zero = gl.zeros([form.BLOCK_M, form.BLOCK_N], gl.float32, _mma(form, form.BLOCK_N))
    scores = warpgroup_mma(q, pipe.k.buffer(n).permute((1, 0)), zero, use_acc=False, is_async=True)
    pipe.v.wait(n - 1)
    out = warpgroup_mma(p, pipe.v.buffer(n - 1), out, is_async=True)
    if form.TURNS:
        pass_turn((C + 1) % form.CONSUMERS)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    if form.SPLIT:
        mbarrier.arrive(pipe.k_free.index(n % form.STAGES), count=1)
    return scores, out


@gluon.jit
def _finish(out, n, more, pipe: Pipe, form: Form):
    """The output with P·V of the block before n. `more`: there is a block after n."""
    if form.ORDERED:
        pipe.k.wait(n + 1, pred=more)
    out = warpgroup_mma_wait(0, deps=(out,))
    if form.SPLIT:
        mbarrier.arrive(pipe.v_free.index((n - 1) % form.STAGES), count=1)
    else:
        mbarrier.arrive(pipe.k_free.index(n % form.STAGES), count=1)
    return out


@gluon.jit
def _operand(p, dtype: gl.constexpr, form: Form):
    """P as the left side of a product, out of registers."""
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, _mma(form, form.HEAD_DIM), 2))


@gluon.jit
def _write(out, row_max, row_sum, n, head, first, pipe: Pipe, work: Work, lse_ptr):
    """O to where Q was, from where it is stored; and the LSE."""
    form = work.form
    if form.LOCAL_SUMS:
        row_sum = gl.convert_layout(gl.sum(row_sum, 1), row_max.type.layout)
    if form.EMPTY:
        divisor = gl.where(row_sum == 0.0, 1.0, row_sum)
    else:
        divisor = row_sum
    inverse = gl.convert_layout(1.0 / divisor, gl.SliceLayout(1, out.type.layout))
    buffer = pipe.q.buffer(n)
    buffer.store((out * inverse[:, None]).to(buffer.dtype))
    fence_async_shared()
    mbarrier.arrive(pipe.o_ready.index(n % pipe.q.SIZE), count=1)
    lse = (row_max + gl.log2(row_sum)) * LN_2
    rows = first + gl.arange(0, form.BLOCK_M, row_max.type.layout)
    gl.store(lse_ptr + head.to(gl.int64) * work.queries + rows, lse, mask=rows < work.queries)


@gluon.jit
def consume(pipe: Pipe, work: Work, scale, lse_ptr, C: gl.constexpr):
    """Rows C·BLOCK_M and on of every tile of this program."""
    form = work.form
    SCORES: gl.constexpr = _mma(form, form.BLOCK_N)
    OUT: gl.constexpr = _mma(form, form.HEAD_DIM)
    DTYPE: gl.constexpr = pipe.q.buffers.dtype
    no_max = gl.full([form.BLOCK_M], NEGATIVE, gl.float32, gl.SliceLayout(1, SCORES))
    zero = gl.zeros([form.BLOCK_M, form.BLOCK_N], gl.float32, SCORES)
    no_sum = _sums(zero, form)
    count = work.count()
    if form.TURNS:
        if C == form.CONSUMERS - 1:
            pass_turn(0)

    head, first, blocks = work.tile(0)
    pipe.q.wait(C)
    pipe.k.wait(0)
    scores = warpgroup_mma(pipe.q.buffer(C), pipe.k.buffer(0).permute((1, 0)), zero, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(pipe.k_free.index(0), count=1)
    scores = _masked(scores, first + C * form.BLOCK_M, 0, work)
    p, _, row_max, row_sum = _softmax(scores, no_max, no_sum, scale, form)
    p = _operand(p, DTYPE, form)
    if form.ORDERED:
        pipe.k.wait(1, pred=(blocks > 1) | (count > 1))

    n = 1
    for t in range(count):
        head, first, blocks = work.tile(t)
        first += C * form.BLOCK_M
        slot = t * form.CONSUMERS + C
        q = pipe.q.buffer(slot)
        out = gl.zeros([form.BLOCK_M, form.HEAD_DIM], gl.float32, OUT)
        last_tile = t + 1 == count
        for b in range(1, blocks):
            scores, out = _begin(q, p, out, n, pipe, form, C)
            scores = _masked(scores, first, b * form.BLOCK_N, work)
            p, rescale, row_max, row_sum = _softmax(scores, row_max, row_sum, scale, form)
            out = _finish(out, n, (b + 1 < blocks) | (t + 1 < count), pipe, form)
            out = _rescaled(out, gl.convert_layout(rescale, gl.SliceLayout(1, OUT)), form)
            p = _operand(p, DTYPE, form)
            n += 1
        if last_tile:
            pipe.v.wait(n - 1)
            out = warpgroup_mma(p, pipe.v.buffer(n - 1), out, is_async=True)
            out = warpgroup_mma_wait(0, deps=(out,))
            _write(out, row_max, row_sum, slot, head, first, pipe, work, lse_ptr)
        else:
            _, next_first, next_blocks = work.tile(t + 1)
            next_slot = slot + form.CONSUMERS
            pipe.q.wait(next_slot)
            scores, out = _begin(pipe.q.buffer(next_slot), p, out, n, pipe, form, C)
            scores = _masked(scores, next_first + C * form.BLOCK_M, 0, work)
            done_max = row_max
            done_sum = row_sum
            p, _, row_max, row_sum = _softmax(scores, no_max, no_sum, scale, form)
            out = _finish(out, n, (next_blocks > 1) | (t + 2 < count), pipe, form)
            _write(out, done_max, done_sum, slot, head, first, pipe, work, lse_ptr)
            p = _operand(p, DTYPE, form)
        n += 1
    if form.TURNS:
        if C == 0:
            await_turn(0)
