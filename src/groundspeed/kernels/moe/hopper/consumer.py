"""The consumer warpgroups: each computes 64 rows of a tile, over all columns. The next product is issued before the
previous one is awaited, so that the tensor cores always have one in flight; a completed product frees its stage.

Biases are loaded while the last product of a tile is in flight, so that they are not waited for, and take no registers
in the loop over K. They are added in FP32, before the activation."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from groundspeed.kernels.hopper import await_turn, pass_turn
from groundspeed.kernels.moe.form import GELU_END, GELU_TERMS
from groundspeed.kernels.moe.hopper.pipe import Pipe
from groundspeed.kernels.moe.hopper.schedule import BLOCK_M, GELU, GELU_TANH, RELU2, SWIGLU, Form, Work

MINUS_LOG2_E = gl.constexpr(-1.4426950408889634)
GELU_1, GELU_3, GELU_5 = (gl.constexpr(number) for number in GELU_TERMS)
MOST_SQUARE = gl.constexpr(GELU_END)
TANH_1, TANH_3 = gl.constexpr(1.5957691216057308), gl.constexpr(0.07135481282711202)
"""2·√(2/π) and 0.044715 of it: (1 + tanh(z)) / 2 = sigmoid(2·z)."""
NOWHERE = gl.constexpr(1 << 30)
"""A row beyond any tensor: TMA stores nothing there."""


@gluon.constexpr_function
def mma(columns):
    """Return the layout of a product of 64 rows, or a multiple, in the registers of a warpgroup."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def sigmoid(x):
    """Return 1 / (1 + 2^(−x·log2 e)), with the reciprocal in one instruction."""
    below = 1.0 + gl.exp2(x * MINUS_LOG2_E)
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [below], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def activated(x, ACTIVATION: gl.constexpr):
    if ACTIVATION == GELU:
        square = gl.minimum(x * x, MOST_SQUARE)
        x = x * sigmoid(x * (GELU_1 + square * (GELU_3 + square * GELU_5)))
    elif ACTIVATION == GELU_TANH:
        x = x * sigmoid(x * (TANH_1 + x * x * TANH_3))
    elif ACTIVATION == RELU2:
        positive = gl.where(x < 0.0, 0.0, x)  # NaN stays
        x = positive * positive
    return x


@gluon.jit
def halves(x, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Return the left and right halves. They consist of whole registers, so no data moves."""
    return gl.split(gl.permute(gl.reshape(x, [ROWS, 2, COLUMNS // 2]), (0, 2, 1)))


@gluon.jit
def _store(values, buffer, c_desc, row, column, form: Form):
    """Store values once the previous TMA store has read the buffer."""
    rounded = gl.convert_layout(values.to(buffer.dtype), mma(form.COLUMNS))
    tma.store_wait(0)
    buffer.store(rounded)
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [row, column], buffer)


@gluon.jit
def _finish(acc, buffer, c_desc, row, column, form: Form):
    """Apply the activation, and store the part of c that begins at this row, in column tile `column`."""
    if form.ACTIVATION == SWIGLU:
        WIDTH: gl.constexpr = form.BLOCK_N // 2
        gate, up = halves(acc, BLOCK_M, form.BLOCK_N)
        values = gate * sigmoid(gate) * up
    else:
        WIDTH: gl.constexpr = form.BLOCK_N
        values = acc
    first = column * WIDTH
    if form.COLUMNS == WIDTH:
        _store(activated(values, form.ACTIVATION), buffer, c_desc, row, first, form)
    else:
        left, right = halves(values, BLOCK_M, WIDTH)
        _store(activated(left, form.ACTIVATION), buffer, c_desc, row, first, form)
        _store(activated(right, form.ACTIVATION), buffer, c_desc, row, first + form.COLUMNS, form)


@gluon.jit
def _add(product, pipe: Pipe, first, begin, end, C: gl.constexpr):
    """Add the products of blocks `begin` to `end` of a tile whose first block is number `first`. The product of the
    block before `begin` is in flight at the start, and that of the last block at the end."""
    for k in range(begin, end):
        n = first + k
        pipe.await_full(n)
        product = warpgroup_mma(pipe.rows(n, C), pipe.matrix(n).permute((1, 0)), product, is_async=True)
        product = warpgroup_mma_wait(1, deps=(product,))
        pipe.release(n - 1)
    return product


@gluon.jit
def _biases(bias_ptr, column, work: Work):
    """Load the biases of a column tile, in the layout of its product. The width is a multiple of 8, as TMA needs it: if
    the compiler knows, it loads neighbours at once under a mask too."""
    form = work.form
    n = column * form.BLOCK_N + gl.arange(0, form.BLOCK_N, layout=gl.SliceLayout(0, mma(form.BLOCK_N)))
    if form.WHOLE:
        bias = gl.load(bias_ptr + n)
    else:
        bias = gl.load(bias_ptr + n, mask=n < work.width // 8 * 8, other=0.0)
    return bias


@gluon.jit
def multiply(pipe: Pipe, work: Work, c_desc, bias_ptr, C: gl.constexpr):
    form = work.form
    buffer = pipe.c.index(C)
    count = work.count()
    for i in range(count):
        listed, column = work.tile(i)
        row = gl.load(listed)
        rows = gl.load(listed + 2)
        first = i * work.steps
        nothing = gl.zeros([BLOCK_M, form.BLOCK_N], gl.float32, mma(form.BLOCK_N))
        if form.LAG > 0 and C == 1:
            await_turn(1)
        pipe.await_full(first)
        product = warpgroup_mma(
            pipe.rows(first, C), pipe.matrix(first).permute((1, 0)), nothing, use_acc=False, is_async=True
        )
        product = warpgroup_mma_wait(1, deps=(product,))
        if form.LAG > 0 and C == 0:
            product = _add(product, pipe, first, 1, form.LAG, C)
            pass_turn(1)
            product = _add(product, pipe, first, form.LAG, work.steps, C)
        else:
            product = _add(product, pipe, first, 1, work.steps, C)
        if bias_ptr is not None:
            bias = _biases(bias_ptr, column, work)
            # The same wait as below. Without it ptxas would move the loads to where they are awaited.
            pipe.await_full(first + work.steps, pred=i + 1 < count)
        acc = warpgroup_mma_wait(0, deps=(product,))
        pipe.release(first + work.steps - 1)
        # The block is usually there already. The wait makes ptxas keep the release before the epilogue, not after it.
        pipe.await_full(first + work.steps, pred=i + 1 < count)
        if bias_ptr is not None:
            acc += bias.to(gl.float32)[None, :]
        place = gl.where(rows > C * BLOCK_M, row + C * BLOCK_M, NOWHERE)
        _finish(acc, buffer, c_desc, place, column, form)
    tma.store_wait(0)
