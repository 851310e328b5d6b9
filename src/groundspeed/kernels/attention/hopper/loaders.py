"""The warps that move: one brings K and V, one brings Q and takes O away."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from groundspeed.kernels.attention.hopper.schedule import Work
from groundspeed.kernels.hopper import Ring, aggregate, boxed


@aggregate
class Pipe:
    """The buffers between those who move and those who multiply. Blocks of keys are numbered through all tiles of a
    program, and Q and O by tile and consumer, t·CONSUMERS + C."""

    k: Ring
    v: Ring
    q: Ring
    k_free: gl.shared_memory_descriptor
    v_free: gl.shared_memory_descriptor
    """Where K and V are not released each on its own, block n of `k_free` releases V of block n − 1 too."""
    o_ready: gl.shared_memory_descriptor
    """O is where Q was."""

    @gluon.constexpr_function
    def __init__(self, k, v, q, k_free, v_free, o_ready):
        self.k = k
        self.v = v
        self.q = q
        self.k_free = k_free
        self.v_free = v_free
        self.o_ready = o_ready


@gluon.jit
def _await_free(free, n, STAGES: gl.constexpr):
    """Until buffer n has been read; the first ones are free already."""
    mbarrier.wait(free.index(n % STAGES), ((n // STAGES) & 1) ^ 1)


@gluon.jit
def load_keys(pipe: Pipe, work: Work, k_desc, v_desc):
    """K, and V a block later: that is when it is needed."""
    form = work.form
    n = 0
    batch_before = 0
    head_before = 0
    key_before = 0
    for t in range(work.count()):
        head, _, blocks = work.tile(t)
        batch = head // work.heads
        key_head = (head - batch * work.heads) // work.group
        for b in range(blocks):
            _await_free(pipe.k_free, n, form.STAGES)
            pipe.k.load(n, k_desc, [batch, key_head, b * form.BLOCK_N, 0])
            if n > 0:
                if form.SPLIT:
                    _await_free(pipe.v_free, n - 1, form.STAGES)
                pipe.v.load(n - 1, v_desc, [batch_before, head_before, key_before, 0])
            batch_before = batch
            head_before = key_head
            key_before = b * form.BLOCK_N
            n += 1
    if form.SPLIT:
        _await_free(pipe.v_free, n - 1, form.STAGES)
    else:
        _await_free(pipe.k_free, n, form.STAGES)
    pipe.v.load(n - 1, v_desc, [batch_before, head_before, key_before, 0])


@gluon.jit
def _where(n, work: Work):
    """Batch, head and first row of number n of what consumers work on: they take turns."""
    form = work.form
    t = n // form.CONSUMERS
    head, first, _ = work.tile(t)
    batch = head // work.heads
    return batch, head - batch * work.heads, first + (n - t * form.CONSUMERS) * form.BLOCK_M


@gluon.jit
def _store(pipe: Pipe, work: Work, o_desc, n):
    """O of number n when it is there; its place is free afterwards."""
    mbarrier.wait(pipe.o_ready.index(n % pipe.q.SIZE), (n // pipe.q.SIZE) & 1)
    batch, head, row = _where(n, work)
    if row < work.queries:
        tma.async_copy_shared_to_global(o_desc, [batch, head, row, 0], boxed(pipe.q.buffer(n), o_desc))
        tma.store_wait(0)


@gluon.jit
def move_queries(pipe: Pipe, work: Work, q_desc, o_desc):
    """Q of what comes next as soon as there is a place for it."""
    form = work.form
    count = work.count() * form.CONSUMERS
    for n in range(count):
        if n >= form.PLACES:
            _store(pipe, work, o_desc, n - form.PLACES)
        batch, head, row = _where(n, work)
        pipe.q.load(n, q_desc, [batch, head, row, 0])
    for n in range(gl.maximum(count - form.PLACES, 0), count):
        _store(pipe, work, o_desc, n)
