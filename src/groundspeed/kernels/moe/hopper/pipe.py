"""The ring buffer between the loader warp and the consumers, and the loader warp."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from groundspeed.kernels.hopper import aggregate, boxed
from groundspeed.kernels.moe.hopper.schedule import BLOCK_M, SWIGLU, Work


@aggregate
class Pipe:
    """Blocks of K are numbered through all tiles of a program. Block n is in stage n modulo STAGES, with the rows of
    each consumer and the rows of b; one mbarrier signals the arrival of all of them."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor
    c: gl.shared_memory_descriptor
    """The buffer of each consumer that TMA stores from."""
    STAGES: gl.constexpr
    CONSUMERS: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, a, b, full, free, c, STAGES, CONSUMERS):
        self.a = a
        self.b = b
        self.full = full
        self.free = free
        self.c = c
        self.STAGES = gl.constexpr(STAGES)
        self.CONSUMERS = gl.constexpr(CONSUMERS)

    @gluon.jit
    def rows(self, n, c):
        """Return the rows of a for consumer c."""
        return self.a.index(n % self.STAGES * self.CONSUMERS + c)

    @gluon.jit
    def matrix(self, n):
        return self.b.index(n % self.STAGES)

    @gluon.jit
    def await_full(self, n, pred=True):
        mbarrier.wait(self.full.index(n % self.STAGES), (n // self.STAGES) & 1, pred=pred)

    @gluon.jit
    def await_free(self, n):
        """Wait until the stage of block n is free. The first wait for each stage passes at once."""
        mbarrier.wait(self.free.index(n % self.STAGES), ((n // self.STAGES) & 1) ^ 1)

    @gluon.jit
    def release(self, n):
        mbarrier.arrive(self.free.index(n % self.STAGES), count=1)


@gluon.jit
def load(pipe: Pipe, work: Work, a_desc, b_desc):
    """Load blocks by TMA as soon as a stage is free. Elements outside a tensor are read as zeros. Rows after those of a
    group belong to another group or to none; the results for them are not stored, or never read."""
    form = work.form
    HALF: gl.constexpr = form.BLOCK_N // 2
    for i in range(work.count()):
        listed, column = work.tile(i)
        row = gl.load(listed)
        expert = gl.load(listed + 1)
        for k in range(work.steps):
            n = i * work.steps + k
            pipe.await_free(n)
            full = pipe.full.index(n % form.STAGES)
            if form.ACTIVATION == SWIGLU:
                mbarrier.expect(full, form.CONSUMERS * a_desc.block_type.nbytes + 2 * b_desc.block_type.nbytes)
            else:
                mbarrier.expect(full, form.CONSUMERS * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            at = k * form.BLOCK_K
            for c in gl.static_range(form.CONSUMERS):
                tma.async_copy_global_to_shared(a_desc, [row + c * BLOCK_M, at], full, pipe.rows(n, c))
            matrix = pipe.matrix(n)
            if form.ACTIVATION == SWIGLU:
                first = column * HALF
                gate, up = matrix.slice(0, HALF, dim=0), matrix.slice(HALF, HALF, dim=0)
                tma.async_copy_global_to_shared(b_desc, [expert, first, at], full, boxed(gate, b_desc))
                tma.async_copy_global_to_shared(b_desc, [expert, work.width + first, at], full, boxed(up, b_desc))
            else:
                first = column * form.BLOCK_N
                tma.async_copy_global_to_shared(b_desc, [expert, first, at], full, boxed(matrix, b_desc))
