"""The grouped product with its operands exchanged: the rows of the matrix are those of wgmma, and the tokens are its
columns. Rows of wgmma come in units of 64, columns in units of 8. So the tokens of an expert that has some more than
128 of them fit in one tile of 128 + 32, where otherwise a second tile would multiply, and read all of its matrix from
L2, mostly for rows that do not exist.

Each consumer computes 128 rows of the matrix. If a tile has at most TOKENS tokens, the other REST are neither loaded
nor multiplied."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from groundspeed.kernels.hopper import barriers, boxed
from groundspeed.kernels.moe.hopper.choice import MATRIX, PIECE
from groundspeed.kernels.moe.hopper.consumer import NOWHERE, activated, halves, mma, sigmoid
from groundspeed.kernels.moe.hopper.pipe import Pipe
from groundspeed.kernels.moe.hopper.schedule import SWIGLU, Form, Work

CONSUMERS = gl.constexpr(2)
MATRIX_ROWS = gl.constexpr(MATRIX)
"""The rows of the matrix of a consumer; for SwiGLU, the first half of them is of the gate."""
STORED = gl.constexpr(PIECE)
"""The tokens that are stored at a time."""


@gluon.jit
def _store(values, buffer, c_desc, row, rows, column, TOKEN: gl.constexpr, TOKENS: gl.constexpr, form: Form):
    """Store the results for TOKENS tokens, of which the first one is TOKEN of its tile, in pieces."""
    if TOKENS > STORED:
        left, right = halves(values, form.COLUMNS, TOKENS)
        _store(left, buffer, c_desc, row, rows, column, TOKEN, TOKENS // 2, form)
        _store(right, buffer, c_desc, row, rows, column, TOKEN + TOKENS // 2, TOKENS // 2, form)
    else:
        rounded = gl.convert_layout(activated(values, form.ACTIVATION).to(buffer.dtype), mma(TOKENS))
        tma.store_wait(0)
        buffer.permute((1, 0)).store(rounded)
        fence_async_shared()
        place = gl.where(rows > TOKEN, row + TOKEN, NOWHERE)
        tma.async_copy_shared_to_global(c_desc, [place, column], buffer)


@gluon.jit
def _finish(acc, buffer, c_desc, row, rows, column, TOKEN: gl.constexpr, TOKENS: gl.constexpr, form: Form):
    if form.ACTIVATION == SWIGLU:
        gate, up = gl.split(gl.permute(gl.reshape(acc, [2, MATRIX_ROWS // 2, TOKENS]), (1, 2, 0)))
        values = gate * sigmoid(gate) * up
    else:
        values = acc
    _store(values, buffer, c_desc, row, rows, column, TOKEN, TOKENS, form)


@gluon.jit
def _tile(
    pipe: Pipe,
    rests,
    work: Work,
    c_desc,
    i,
    row,
    rows,
    column,
    C: gl.constexpr,
    TOKENS: gl.constexpr,
    REST: gl.constexpr,
):
    """Compute tile i, with REST tokens more than TOKENS."""
    form = work.form
    first = i * work.steps
    pipe.await_full(first)
    acc = gl.zeros([MATRIX_ROWS, TOKENS], gl.float32, mma(TOKENS))
    acc = warpgroup_mma(pipe.rows(first, C), pipe.matrix(first).permute((1, 0)), acc, use_acc=False, is_async=True)
    if REST:
        rest = gl.zeros([MATRIX_ROWS, REST], gl.float32, mma(REST))
        tokens = rests.index(first % form.STAGES).permute((1, 0))
        rest = warpgroup_mma(pipe.rows(first, C), tokens, rest, use_acc=False, is_async=True)
        acc, rest = warpgroup_mma_wait(2, deps=(acc, rest))
    else:
        acc = warpgroup_mma_wait(1, deps=(acc,))
    for k in range(1, work.steps):
        n = first + k
        pipe.await_full(n)
        acc = warpgroup_mma(pipe.rows(n, C), pipe.matrix(n).permute((1, 0)), acc, is_async=True)
        if REST:
            tokens = rests.index(n % form.STAGES).permute((1, 0))
            rest = warpgroup_mma(pipe.rows(n, C), tokens, rest, is_async=True)
            acc, rest = warpgroup_mma_wait(2, deps=(acc, rest))
        else:
            acc = warpgroup_mma_wait(1, deps=(acc,))
        pipe.release(n - 1)
    if REST:
        acc, rest = warpgroup_mma_wait(0, deps=(acc, rest))
    else:
        acc = warpgroup_mma_wait(0, deps=(acc,))
    pipe.release(first + work.steps - 1)
    # As in consumer.py: keeps the release before the epilogue.
    pipe.await_full(first + work.steps, pred=i + 1 < work.count())
    buffer = pipe.c.index(C)
    at = (column * CONSUMERS + C) * form.COLUMNS
    if REST:
        _finish(rest, buffer, c_desc, row, rows, at, TOKENS, REST, form)
    _finish(acc, buffer, c_desc, row, rows, at, 0, TOKENS, form)


@gluon.jit
def multiply(pipe: Pipe, rests, work: Work, c_desc, C: gl.constexpr, TOKENS: gl.constexpr, REST: gl.constexpr):
    for i in range(work.count()):
        listed, column = work.tile(i)
        row = gl.load(listed)
        rows = gl.load(listed + 2)
        if REST:
            if rows > TOKENS:
                _tile(pipe, rests, work, c_desc, i, row, rows, column, C, TOKENS, REST)
            else:
                _tile(pipe, rests, work, c_desc, i, row, rows, column, C, TOKENS, 0)
        else:
            _tile(pipe, rests, work, c_desc, i, row, rows, column, C, TOKENS, 0)
    tma.store_wait(0)


@gluon.jit
def load(pipe: Pipe, rests, work: Work, a_desc, rest_desc, b_desc, TOKENS: gl.constexpr, REST: gl.constexpr):
    """Load blocks by TMA as soon as a stage is free, as `pipe.load` does."""
    form = work.form
    HALVES: gl.constexpr = 2 if form.ACTIVATION == SWIGLU else 1
    WIDTH: gl.constexpr = MATRIX_ROWS // HALVES
    BYTES: gl.constexpr = CONSUMERS * HALVES * b_desc.block_type.nbytes + a_desc.block_type.nbytes
    for i in range(work.count()):
        listed, column = work.tile(i)
        row = gl.load(listed)
        expert = gl.load(listed + 1)
        more = gl.load(listed + 2) > TOKENS
        for k in range(work.steps):
            n = i * work.steps + k
            pipe.await_free(n)
            full = pipe.full.index(n % form.STAGES)
            at = k * form.BLOCK_K
            if REST:
                mbarrier.expect(full, BYTES + rest_desc.block_type.nbytes, pred=more)
                mbarrier.expect(full, BYTES, pred=more == 0)
                tokens = rests.index(n % form.STAGES)
                tma.async_copy_global_to_shared(rest_desc, [row + TOKENS, at], full, tokens, pred=more)
            else:
                mbarrier.expect(full, BYTES)
            for c in gl.static_range(CONSUMERS):
                own = pipe.rows(n, c)
                for half in gl.static_range(HALVES):
                    first = half * work.width + (column * CONSUMERS + c) * WIDTH
                    part = own.slice(half * WIDTH, WIDTH, dim=0)
                    tma.async_copy_global_to_shared(b_desc, [expert, first, at], full, boxed(part, b_desc))
            tma.async_copy_global_to_shared(a_desc, [row, at], full, pipe.matrix(n))


@gluon.jit(do_not_specialize=["columns", "width", "steps"])
def moe_grouped_gemm_transposed(
    a_desc,
    rest_desc,
    b_desc,
    c_desc,
    tiles_ptr,
    count_ptr,
    columns,
    width,
    steps,
    TOKENS: gl.constexpr,
    REST: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    COLUMNS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    TOGETHER: gl.constexpr,
):
    """As `moe_grouped_gemm_hopper`. `rest_desc` describes a too, with blocks of REST rows."""
    form = Form(CONSUMERS, CONSUMERS * MATRIX_ROWS, BLOCK_K, STAGES, COLUMNS, ACTIVATION, TOGETHER, 0, False)
    work = Work(tiles_ptr, gl.load(count_ptr), columns, width, steps, form)
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([MATRIX_ROWS, BLOCK_K], b_desc.dtype)
    own = gl.allocate_shared_memory(b_desc.dtype, [STAGES * CONSUMERS, MATRIX_ROWS, BLOCK_K], LAYOUT)
    tokens = gl.allocate_shared_memory(a_desc.dtype, [STAGES, TOKENS, BLOCK_K], a_desc.layout)
    if REST:
        rests = gl.allocate_shared_memory(a_desc.dtype, [STAGES, REST, BLOCK_K], rest_desc.layout)
    else:
        rests = tokens
    c = gl.allocate_shared_memory(c_desc.dtype, [CONSUMERS, STORED, COLUMNS], c_desc.layout)
    pipe = Pipe(own, tokens, barriers(STAGES, 1), barriers(STAGES, CONSUMERS), c, STAGES, CONSUMERS)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (pipe, rests, work, c_desc, 0, TOKENS, REST)),
            (multiply, (pipe, rests, work, c_desc, 1, TOKENS, REST)),
            (load, (pipe, rests, work, a_desc, rest_desc, b_desc, TOKENS, REST)),
        ],
        [4, 1],
        [240, 24],
    )
