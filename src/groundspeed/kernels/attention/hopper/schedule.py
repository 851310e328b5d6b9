"""Which tile of which head a program works on next.

A tile is the queries of all consumers of a program, BLOCK_M each, of one head. There are as many programs as
multiprocessors, and each takes every so-manyth item. Without a mask an item is a tile. Under a causal mask tiles differ
in length, and an item is a pair of the same head, a long one and a short one, which together are always of the same
length: that balances as well as handing them out one by one, and keeps the heads that are at work few, whose keys then
stay in the L2 cache."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from groundspeed.kernels.hopper import aggregate


@aggregate
class Form:
    """What a compiled kernel is made for."""

    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    STAGES: gl.constexpr
    """Buffers of K, and of V."""
    PLACES: gl.constexpr
    """For Q, and later O, of a consumer: at least one more than there are consumers, or no program may have a second
    tile."""
    CAUSAL: gl.constexpr
    PAIRED: gl.constexpr
    RAGGED: gl.constexpr
    """The last block of keys is not full."""
    EMPTY: gl.constexpr
    """There may be rows that see no key."""
    FLAT: gl.constexpr
    """Tiles and their blocks in one loop."""
    ORDERED: gl.constexpr
    """Wait for the next K between softmax and output: keeps ptxas from waiting for p·v before the softmax."""
    TURNS: gl.constexpr
    """Consumers multiply in turn, so that the softmax of one goes on under the products of the others."""
    LOCAL_SUMS: gl.constexpr
    """Each thread adds up what it has of a row; they come together when the tile ends."""
    LAZY: gl.constexpr
    """The output is rescaled only where a maximum has grown by more than 2⁸."""
    SPLIT: gl.constexpr
    """K and V are released each on its own, instead of K with the V before it."""

    @gluon.constexpr_function
    def __init__(
        self, CONSUMERS, BLOCK_M, BLOCK_N, HEAD_DIM, STAGES, PLACES, CAUSAL, PAIRED, RAGGED, EMPTY, FLAT, ORDERED,
        TURNS, LOCAL_SUMS, LAZY, SPLIT,
    ):  # fmt: skip
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_M = gl.constexpr(BLOCK_M)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.HEAD_DIM = gl.constexpr(HEAD_DIM)
        self.STAGES = gl.constexpr(STAGES)
        self.PLACES = gl.constexpr(PLACES)
        self.CAUSAL = gl.constexpr(CAUSAL)
        self.PAIRED = gl.constexpr(PAIRED)
        self.RAGGED = gl.constexpr(RAGGED)
        self.EMPTY = gl.constexpr(EMPTY)
        self.FLAT = gl.constexpr(FLAT)
        self.ORDERED = gl.constexpr(ORDERED)
        self.TURNS = gl.constexpr(TURNS)
        self.LOCAL_SUMS = gl.constexpr(LOCAL_SUMS)
        self.LAZY = gl.constexpr(LAZY)
        self.SPLIT = gl.constexpr(SPLIT)


@aggregate
class Work:
    """What a launch has to do."""

    queries: gl.tensor
    keys: gl.tensor
    heads: gl.tensor
    """Of the queries, in a batch."""
    group: gl.tensor
    """Heads of queries that read one head of keys."""
    tiles: gl.tensor
    """Of a head."""
    items: gl.tensor
    """Tiles, or pairs of them, in all."""
    form: Form

    @gluon.constexpr_function
    def __init__(self, queries, keys, heads, group, tiles, items, form):
        self.queries = queries
        self.keys = keys
        self.heads = heads
        self.group = group
        self.tiles = tiles
        self.items = items
        self.form = form

    @gluon.jit
    def count(self):
        """Tiles of this program."""
        programs = gl.num_programs(0)
        mine = (self.items - gl.program_id(0) + programs - 1) // programs
        if self.form.PAIRED:
            mine = mine * 2
        return mine

    @gluon.jit
    def blocks(self):
        """Of all tiles of this program."""
        count = self.count()
        if self.form.CAUSAL:
            total = 0
            for n in range(count):
                _, _, blocks = self.tile(n)
                total += blocks
        else:
            _, _, blocks = self.tile(0)
            total = blocks * count
        return total

    @gluon.jit
    def tile(self, n):
        """Of tile n of this program: head, first query, and blocks of keys that one of its rows sees, at least one."""
        form = self.form
        ROWS: gl.constexpr = form.CONSUMERS * form.BLOCK_M
        if form.PAIRED:
            pairs = (self.tiles + 1) // 2
            item = (n // 2) * gl.num_programs(0) + gl.program_id(0)
            head = item // pairs
            short = item - head * pairs
            tile = gl.where(n % 2 == 0, self.tiles - 1 - short, short)
        else:
            item = n * gl.num_programs(0) + gl.program_id(0)
            head = item // self.tiles
            tile = item - head * self.tiles
            if form.CAUSAL:
                tile = self.tiles - 1 - tile
        seen = self.keys
        if form.CAUSAL:
            seen = gl.minimum(seen, (tile + 1) * ROWS + self.keys - self.queries)
        blocks = (seen + form.BLOCK_N - 1) // form.BLOCK_N
        if form.EMPTY:
            blocks = gl.maximum(blocks, 1)
        return head, tile * ROWS, blocks
