"""What the Hopper kernels share: names that differ between versions of Gluon, rings of shared-memory buffers that TMA
fills and wgmma reads, and turns that warpgroups take."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.language.core import _aggregate as aggregate

FIRST_BARRIER = 12
"""Of the sixteen named barriers of a program, Triton takes the first few, one for each group of warps."""


@aggregate
class Ring:
    """Buffers that are filled and read in turn: number n of what goes through them is in buffer n modulo SIZE."""

    buffers: gl.shared_memory_descriptor
    rests: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    SIZE: gl.constexpr
    REST: gl.constexpr
    """Columns of `rests`, after those of `buffers`: of what has a number of columns that is no power of two."""

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
        """Until number n is there."""
        mbarrier.wait(self.full.index(n % self.SIZE), (n // self.SIZE) & 1, pred=pred)

    @gluon.jit
    def load(self, n, descriptor, descriptor_of_rest, row):
        """Have TMA fill buffer n from a row on, all of whose coordinates but the last are given."""
        full = self.full.index(n % self.SIZE)
        load_columns(full, self.buffer(n), descriptor, self.rest(n), descriptor_of_rest, row, self.REST)


@gluon.jit
def load_columns(full, buffer, descriptor, rest, descriptor_of_rest, row, REST: gl.constexpr):
    """By TMA, announced at a barrier. The innermost two dimensions of a descriptor's block are those of its buffer."""
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
    """A buffer of rows and columns as the block of a descriptor with more dimensions."""
    return buffer._reinterpret(descriptor.dtype, descriptor.block_type.shape, descriptor.layout)


@gluon.jit
def barriers(SIZE: gl.constexpr, COUNT: gl.constexpr):
    """So many, each of which is passed after COUNT arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [SIZE, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SIZE):
        mbarrier.init(made.index(i), count=COUNT)
    return made


@gluon.constexpr_function
def _barrier(what, number):
    """Of two warpgroups; the result is there because there must be one."""
    return f"bar.{what} {FIRST_BARRIER + number}, 256; mov.b32 $0, 0;"


@gluon.jit
def await_turn(C: gl.constexpr):
    """Until the warpgroup before this one has passed on the turn. Gluon has no named barriers."""
    _run(_barrier("sync", C))


@gluon.jit
def pass_turn(C: gl.constexpr):
    """To that warpgroup."""
    _run(_barrier("arrive", C))


@gluon.jit
def lasting(number):
    """The same number, by way of an instruction that nobody looks into. Triton (3.6 and 3.7, triton#9036) takes what a
    loop carries for dead where it only bounds a loop within, and keeps its first value."""
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [number], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _run(TEXT: gl.constexpr):
    gl.inline_asm_elementwise(TEXT, "=r,r", [gl.to_tensor(0)], dtype=gl.int32, is_pure=False, pack=1)
