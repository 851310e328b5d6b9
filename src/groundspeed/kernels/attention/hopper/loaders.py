"""The loader warps: one loads K and V, the other loads Q and stores O."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from groundspeed.kernels.attention.hopper.schedule import Form, Tile, Work
from groundspeed.kernels.hopper import Ring, aggregate, boxed, lasting, load_columns

FAR = gl.constexpr(1 << 30)


@aggregate
class Places:
    """The slots for Q of tile t of consumer c, and later its O. They are a single ring over all consumers, so that one
    slot more than there are consumers is enough. But each consumer has its own barriers for the arrival of Q. With a
    barrier per slot, a consumer that waits for the second filling of a slot could pass before the first: an mbarrier
    only distinguishes even phases from odd ones."""

    buffers: gl.shared_memory_descriptor
    rests: gl.shared_memory_descriptor
    loaded: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    """The barriers for O, by slot: the storing warp waits for all of them in order."""
    PLACES: gl.constexpr
    CONSUMERS: gl.constexpr
    EACH: gl.constexpr
    """The most tiles of one consumer that can be in the slots."""
    REST: gl.constexpr
    """Columns of `rests`, or 0."""

    @gluon.constexpr_function
    def __init__(self, buffers, rests, loaded, ready, PLACES, CONSUMERS, EACH, REST):
        self.buffers = buffers
        self.rests = rests
        self.loaded = loaded
        self.ready = ready
        self.PLACES = gl.constexpr(PLACES)
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.EACH = gl.constexpr(EACH)
        self.REST = gl.constexpr(REST)

    @gluon.jit
    def buffer(self, t, c):
        return self.buffers.index((t * self.CONSUMERS + c) % self.PLACES)

    @gluon.jit
    def rest(self, t, c):
        return self.rests.index((t * self.CONSUMERS + c) % self.PLACES)

    @gluon.jit
    def load(self, t, c, descriptor, descriptor_of_rest, row):
        loaded = self.loaded.index(c * self.EACH + t % self.EACH)
        load_columns(loaded, self.buffer(t, c), descriptor, self.rest(t, c), descriptor_of_rest, row, self.REST)

    @gluon.jit
    def await_loaded(self, t, c, pred=True):
        mbarrier.wait(self.loaded.index(c * self.EACH + t % self.EACH), (t // self.EACH) & 1, pred=pred)

    @gluon.jit
    def hand_over(self, t, c):
        mbarrier.arrive(self.ready.index((t * self.CONSUMERS + c) % self.PLACES), count=1)

    @gluon.jit
    def await_ready(self, t, c):
        n = t * self.CONSUMERS + c
        mbarrier.wait(self.ready.index(n % self.PLACES), (n // self.PLACES) & 1)


@aggregate
class Pipe:
    """The buffers between the loader warps and the consumers. Blocks of keys are numbered through all tiles of a
    program."""

    k: Ring
    v: Ring
    q: Places
    k_free: gl.shared_memory_descriptor
    v_free: gl.shared_memory_descriptor
    """Unless K and V are released separately, block n of `k_free` also releases V of block n − 1."""

    @gluon.constexpr_function
    def __init__(self, k, v, q, k_free, v_free):
        self.k = k
        self.v = v
        self.q = q
        self.k_free = k_free
        self.v_free = v_free


@gluon.jit
def _at(descriptor, head, heads, row):
    """Return the coordinates of a row except its column. Batch and head are one dimension if the strides allow it."""
    RANK: gl.constexpr = len(descriptor.block_type.shape)
    if RANK == 3:
        return [head, row]
    else:
        batch = head // heads
        return [batch, head - batch * heads, row]


@gluon.jit
def _within(descriptor, head, heads, row, end, form: Form):
    """Return the same; for packed sequences, the coordinates in a box that stops before row `end`: rows from there on
    are read as zeros and not written. The dimension of rows has size FAR, and the first two coordinates undo the shift
    by FAR − end (launch.py)."""
    if form.PACKED:
        return [FAR, end, head, FAR - end + row]
    else:
        return _at(descriptor, head, heads, row)


@gluon.jit
def _await_free(free, n, STAGES: gl.constexpr):
    """Wait until the stage of block n is free. The first wait for each stage passes at once."""
    mbarrier.wait(free.index(n % STAGES), ((n // STAGES) & 1) ^ 1)


@gluon.jit
def load_keys(pipe: Pipe, work: Work, k_desc, v_desc, k_rest, v_rest):
    """Load K of each block, and V one block later, which is when it is needed."""
    form = work.form
    n = 0
    head_before = 0
    key_before = 0
    end_before = 0
    key_heads = work.heads // work.group
    tile = work.first()
    for _ in range(work.count()):
        coming = tile
        if form.PACKED:  # started early, since it reads the list from memory
            coming = work.after(tile)
        first, blocks = work.span(tile)
        begin = work.begin(tile, first)
        end = 0
        if form.PACKED:
            begin += tile.part.key
            end = tile.part.key + tile.part.keys
            blocks = lasting(blocks)
        head = work.head(tile) // work.group
        for b in range(blocks):
            _await_free(pipe.k_free, n, form.STAGES)
            pipe.k.load(n, k_desc, k_rest, _at(k_desc, head, key_heads, begin + b * form.BLOCK_N))
            if n > 0:
                if form.SPLIT:
                    _await_free(pipe.v_free, n - 1, form.STAGES)
                where = _within(v_desc, head_before, key_heads, key_before, end_before, form)
                pipe.v.load(n - 1, v_desc, v_rest, where)
            head_before = head
            key_before = begin + b * form.BLOCK_N
            end_before = end
            n += 1
        if form.PACKED:
            tile = coming
        else:
            tile = work.after(tile)
    where = _within(v_desc, head_before, key_heads, key_before, end_before, form)
    if form.PACKED:
        if n > 0:
            _load_last(pipe, n, v_desc, v_rest, where, form)
    else:
        _load_last(pipe, n, v_desc, v_rest, where, form)


@gluon.jit
def _load_last(pipe: Pipe, n, v_desc, v_rest, where, form: Form):
    """Load V of the last block, n − 1."""
    if form.SPLIT:
        _await_free(pipe.v_free, n - 1, form.STAGES)
    else:
        _await_free(pipe.k_free, n, form.STAGES)
    pipe.v.load(n - 1, v_desc, v_rest, where)


@gluon.jit
def _store(pipe: Pipe, work: Work, o_desc, o_rest, tile: Tile, c):
    """Wait for O of consumer c and store it; its slot is free afterwards."""
    pipe.q.await_ready(tile.n, c)
    first, _ = work.span(tile)
    queries, _ = work.lengths(tile)
    row = first + c * work.form.BLOCK_M
    if row < queries:
        place, end = row, row
        if work.form.PACKED:
            place = tile.part.query + row
            end = tile.part.query + queries
        where = _within(o_desc, work.head(tile), work.heads, place, end, work.form)
        tma.async_copy_shared_to_global(o_desc, where + [0], boxed(pipe.q.buffer(tile.n, c), o_desc))
        if work.form.VALUE_REST:
            column = work.form.VALUE_DIM
            tma.async_copy_shared_to_global(o_rest, where + [column], boxed(pipe.q.rest(tile.n, c), o_rest))
        tma.store_wait(0)


@gluon.jit
def _next(work: Work, tile: Tile, c):
    """Return the next consumer of the tile, or the first consumer of the next tile."""
    c += 1
    if c == work.form.CONSUMERS:
        c = 0
        tile = work.after(tile)
    return tile, c


@gluon.jit
def move_queries(pipe: Pipe, work: Work, q_desc, o_desc, q_rest, o_rest):
    """Load Q as soon as there is a free slot, tile by tile, and within a tile consumer by consumer."""
    form = work.form
    count = work.count() * form.CONSUMERS
    tile = work.first()
    c = 0
    stored = work.first()
    stored_c = 0
    for n in range(count):
        if n >= form.PLACES:
            _store(pipe, work, o_desc, o_rest, stored, stored_c)
            stored, stored_c = _next(work, stored, stored_c)
        first, _ = work.span(tile)
        row = first + c * form.BLOCK_M
        if form.PACKED:
            row += tile.part.query
        pipe.q.load(tile.n, c, q_desc, q_rest, _at(q_desc, work.head(tile), work.heads, row))
        tile, c = _next(work, tile, c)
    for _ in range(gl.maximum(count - form.PLACES, 0), count):
        _store(pipe, work, o_desc, o_rest, stored, stored_c)
        stored, stored_c = _next(work, stored, stored_c)
