"""Parts that the Hopper kernels share: names that differ between versions of Gluon, ring buffers in shared memory that
TMA fills and wgmma reads, and named barriers by which warpgroups take turns."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.core import _aggregate as aggregate

FIRST_BARRIER = 12
"""The first of the sixteen named barriers of a program that is used here. Triton uses the first few, one for each group
of warps."""


@aggregate
class Ring:
    """A ring buffer of SIZE stages. Block n is in stage n modulo SIZE, and the barrier of that stage completes phase
    n // SIZE when the block has been loaded."""

    buffers: gl.shared_memory_descriptor
    rests: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    SIZE: gl.constexpr
    REST: gl.constexpr
    """Columns of `rests`, which hold what `buffers` does not if the number of columns is not a power of two; or 0."""

    @gluon.constexpr_function
    def __init__(self, buffers, rests, full, SIZE, REST):
        self.buffers = buffers
        self.rests = rests
        self.full = full
        self.SIZE = gl.constexpr(SIZE)
        self.REST = gl.constexpr(REST)

    @gluon.jit
    def buffer(self, n):
        return self.buffers.index(n % self.SIZE)

    @gluon.jit
    def rest(self, n):
        return self.rests.index(n % self.SIZE)

    @gluon.jit
    def wait(self, n, pred=True):
        """Wait until block n has been loaded."""
        mbarrier.wait(self.full.index(n % self.SIZE), (n // self.SIZE) & 1, pred=pred)

    @gluon.jit
    def load(self, n, descriptor, descriptor_of_rest, row):
        """Start loading block n by TMA. `row` has all coordinates of its first row except the column."""
        full = self.full.index(n % self.SIZE)
        load_columns(full, self.buffer(n), descriptor, self.rest(n), descriptor_of_rest, row, self.REST)


@gluon.jit
def load_columns(full, buffer, descriptor, rest, descriptor_of_rest, row, REST: gl.constexpr):
    """Load rows by TMA, which signals the barrier `full` when they are there. The innermost two dimensions of a
    descriptor's block are those of its buffer."""
    if REST:
        mbarrier.expect(full, descriptor.block_type.nbytes + descriptor_of_rest.block_type.nbytes)
    else:
        mbarrier.expect(full, descriptor.block_type.nbytes)
    tma.async_copy_global_to_shared(descriptor, row + [0], full, boxed(buffer, descriptor))
    if REST:
        COLUMNS: gl.constexpr = descriptor.block_type.shape[-1]
        tma.async_copy_global_to_shared(descriptor_of_rest, row + [COLUMNS], full, boxed(rest, descriptor_of_rest))


@gluon.jit
def boxed(buffer, descriptor):
    """Return a view of a two-dimensional buffer with the shape of the descriptor's block, which has more dimensions."""
    return buffer._reinterpret(descriptor.dtype, descriptor.block_type.shape, descriptor.layout)


@gluon.jit
def barriers(SIZE: gl.constexpr, COUNT: gl.constexpr):
    """Allocate SIZE mbarriers, each of which completes a phase after COUNT arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [SIZE, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SIZE):
        mbarrier.init(made.index(i), count=COUNT)
    return made


@gluon.constexpr_function
def _barrier(what, number):
    """Return the PTX of a named barrier between two warpgroups. The `mov` is there because inline assembly must have a
    result."""
    return f"bar.{what} {FIRST_BARRIER + number}, 256; mov.b32 $0, 0;"


@gluon.jit
def await_turn(C: gl.constexpr):
    """Wait until the warpgroup before this one, C, has passed on the turn. Gluon has no named barriers."""
    _run(_barrier("sync", C))


@gluon.jit
def pass_turn(C: gl.constexpr):
    """Pass the turn to warpgroup C, without waiting."""
    _run(_barrier("arrive", C))


@gluon.jit
def lasting(number):
    """Return the number unchanged, through an instruction that is opaque to the compiler. If a value carried by a loop
    serves only as the bound of an inner loop, Triton (3.6 and 3.7, triton#9036) treats it as dead and keeps its first
    value."""
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _run(TEXT: gl.constexpr):
    gl.inline_asm_elementwise(TEXT, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)
