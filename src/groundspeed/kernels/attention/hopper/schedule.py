"""Which tile of which head a program works on next.

A tile is the queries of all consumers of a program, BLOCK_M each, of one head. There are as many programs as run at
once, and each takes every so-manyth item. Without a mask an item is a tile. Under a causal mask tiles differ in length,
and where there are more of them than run at once, an item is a pair of the same head, a long one and a short one, which
together are always of the same length: that balances as well as handing them out one by one, and keeps the heads that
are at work few, whose keys then stay in the L2 cache.

Of an odd number of tiles the one in the middle has none to pair with in its head: it is done twice, or, where launches
are balanced, goes with that of the next head. Under a window the tiles at its ends are short, and so is what a program
has that always takes tiles from there: where launches are balanced, each head begins some tiles after the one before.

Of packed sequences, which differ in length, a list of all tiles is made on the device, those with the most keys first
(listing.py). A few heads go through it together, and the next few backwards: one after the other, a program would have
the longest tile of each wherever there are as many tiles as programs; all together, their keys would not stay in the
cache. Where there are few tiles their keys do: then all heads go together, and every other round begins with the last
program."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from groundspeed.kernels.hopper import aggregate

WITHIN_A_HEAD = gl.constexpr(1)
OVER_TWO_HEADS = gl.constexpr(2)
"""How tiles are paired, where they are."""
WIDTH = gl.constexpr(8)
"""Numbers of an entry of the list of tiles: its first row in its sequence; of that sequence the first query, the first
key, queries and keys. The first entry is how many there are."""


@aggregate
class Form:
    """What a compiled kernel is made for."""

    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    HEAD_REST: gl.constexpr
    """Where the head dimension is more than a power of two, columns of a second tile for what is over it, or 0."""
    VALUE_DIM: gl.constexpr
    VALUE_REST: gl.constexpr
    """Of the values; each at most as many."""
    STAGES: gl.constexpr
    """Buffers of K, and of V."""
    PLACES: gl.constexpr
    """For Q, and later O, of a consumer: at least one more than there are consumers, or no program may have a second
    tile."""
    CAUSAL: gl.constexpr
    """A row sees keys up to its own place, or to so many after it."""
    LEFT: gl.constexpr
    """It sees so many keys before its place, and not those before them."""
    CAP: gl.constexpr
    """Scores are capped."""
    SINKS: gl.constexpr
    """Each head has one more score, without a value."""
    PACKED: gl.constexpr
    """Sequences of different lengths lie one after the other; each tile is of one of them."""
    PAIRED: gl.constexpr
    SHIFTED: gl.constexpr
    """Each head begins `shift` tiles after the one before, and after `around` + 1 of them with the first again."""
    RAGGED: gl.constexpr
    """The last block of keys is not full."""
    EMPTY: gl.constexpr
    """There may be rows that see no key, or none of the first block of their tile."""
    FLAT: gl.constexpr
    """Tiles and their blocks in one loop."""
    ORDERED: gl.constexpr
    """Wait for the next K between softmax and output: keeps ptxas from waiting for p·v before the softmax."""
    TURNS: gl.constexpr
    """Consumers multiply in turn, so that the softmax of one goes on under the products of the others."""
    LOCAL_SUMS: gl.constexpr
    """Each thread adds up what it has of a row; they come together when the tile ends."""
    LAZY: gl.constexpr
    """The output is rescaled only where a maximum has grown by more than 2⁴."""
    SPLIT: gl.constexpr
    """K and V are released each on its own, instead of K with the V before it."""
    LSE: gl.constexpr
    """It is asked for."""

    @gluon.constexpr_function
    def __init__(
        self, CONSUMERS, BLOCK_M, BLOCK_N, HEAD_DIM, HEAD_REST, VALUE_DIM, VALUE_REST, STAGES, PLACES, CAUSAL, LEFT,
        CAP, SINKS, PACKED, PAIRED, SHIFTED, RAGGED, EMPTY, FLAT, ORDERED, TURNS, LOCAL_SUMS, LAZY, SPLIT, LSE,
    ):  # fmt: skip
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_M = gl.constexpr(BLOCK_M)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.HEAD_DIM = gl.constexpr(HEAD_DIM)
        self.HEAD_REST = gl.constexpr(HEAD_REST)
        self.VALUE_DIM = gl.constexpr(VALUE_DIM)
        self.VALUE_REST = gl.constexpr(VALUE_REST)
        self.STAGES = gl.constexpr(STAGES)
        self.PLACES = gl.constexpr(PLACES)
        self.CAUSAL = gl.constexpr(CAUSAL)
        self.LEFT = gl.constexpr(LEFT)
        self.CAP = gl.constexpr(CAP)
        self.SINKS = gl.constexpr(SINKS)
        self.PACKED = gl.constexpr(PACKED)
        self.PAIRED = gl.constexpr(PAIRED)
        self.SHIFTED = gl.constexpr(SHIFTED)
        self.RAGGED = gl.constexpr(RAGGED)
        self.EMPTY = gl.constexpr(EMPTY)
        self.FLAT = gl.constexpr(FLAT)
        self.ORDERED = gl.constexpr(ORDERED)
        self.TURNS = gl.constexpr(TURNS)
        self.LOCAL_SUMS = gl.constexpr(LOCAL_SUMS)
        self.LAZY = gl.constexpr(LAZY)
        self.SPLIT = gl.constexpr(SPLIT)
        self.LSE = gl.constexpr(LSE)


@aggregate
class Part:
    """Of packed sequences, what a tile is of."""

    row: gl.tensor
    """Its first query, in its sequence."""
    query: gl.tensor
    key: gl.tensor
    """First ones of the sequence."""
    queries: gl.tensor
    keys: gl.tensor

    @gluon.constexpr_function
    def __init__(self, row, query, key, queries, keys):
        self.row = row
        self.query = query
        self.key = key
        self.queries = queries
        self.keys = keys


@aggregate
class Tile:
    """One of those of a program."""

    n: gl.tensor
    """How many it had before."""
    head: gl.tensor
    """Where tiles are paired over two heads, the pair of them."""
    place: gl.tensor
    """Of its item, in that head; of packed sequences in the list."""
    part: Part

    @gluon.constexpr_function
    def __init__(self, n, head, place, part):
        self.n = n
        self.head = head
        self.place = place
        self.part = part


@gluon.jit
def _whole():
    """Where nothing is packed."""
    return Part(gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0))


@aggregate
class Work:
    """What a launch has to do."""

    queries: gl.tensor
    keys: gl.tensor
    """Of a head; of packed sequences those of all."""
    heads: gl.tensor
    """Of the queries, in a batch."""
    group: gl.tensor
    """Heads of queries that read one head of keys."""
    tiles: gl.tensor
    """Of a head."""
    places: gl.tensor
    """Tiles, or pairs of them, of a head; of packed sequences entries of the list, or 1 where there is none."""
    items: gl.tensor
    """Tiles, or pairs of them, in all."""
    heads_on: gl.tensor
    places_on: gl.tensor
    """From an item to the next of the same program: added, not divided, for that would take as long as a product."""
    shift: gl.tensor
    around: gl.tensor
    left: gl.tensor
    right: gl.tensor
    """Keys before and after its place that a row sees, where these are bounded."""
    unit: gl.tensor
    cap: gl.tensor
    """A score s counts as cap·tanh(unit·s), in units of log2, where it is capped."""
    listed: gl.tensor
    """The list of tiles of packed sequences."""
    form: Form

    @gluon.constexpr_function
    def __init__(
        self, queries, keys, heads, group, tiles, places, items, heads_on, places_on, shift, around, left, right,
        unit, cap, listed, form,
    ):  # fmt: skip
        self.queries = queries
        self.keys = keys
        self.heads = heads
        self.group = group
        self.tiles = tiles
        self.places = places
        self.items = items
        self.heads_on = heads_on
        self.places_on = places_on
        self.shift = shift
        self.around = around
        self.left = left
        self.right = right
        self.unit = unit
        self.cap = cap
        self.listed = listed
        self.form = form

    @gluon.jit
    def count(self):
        """Tiles of this program."""
        programs = gl.num_programs(0)
        mine = (self.items - gl.program_id(0) + programs - 1) // programs
        if self.form.PACKED:
            rounds = self.items // programs
            mine = rounds + gl.where(self._item(rounds) < self.items, 1, 0)
        if self.form.PAIRED:
            mine = mine * 2
        return mine

    @gluon.jit
    def first(self):
        """Tile of this program."""
        if self.form.PACKED:
            return self._listed(gl.to_tensor(0))
        else:
            item = gl.program_id(0)
            head = item // self.places
            place = item - head * self.places
            return Tile(gl.to_tensor(0), head, place, _whole())

    @gluon.jit
    def after(self, tile: Tile):
        """The next one."""
        if self.form.PACKED:
            return self._listed(tile.n + 1)
        else:
            head = tile.head + self.heads_on
            place = tile.place + self.places_on
            over = place >= self.places
            head = gl.where(over, head + 1, head)
            place = gl.where(over, place - self.places, place)
            if self.form.PAIRED:
                same = tile.n % 2 == 0
                head = gl.where(same, tile.head, head)
                place = gl.where(same, tile.place, place)
            return Tile(tile.n + 1, head, place, _whole())

    @gluon.jit
    def _few(self):
        """Whether of packed sequences all heads go together."""
        return self.items <= 8 * gl.num_programs(0)

    @gluon.jit
    def _item(self, n):
        """The one that is number n of this program, of packed sequences."""
        program, programs = gl.program_id(0), gl.num_programs(0)
        return n * programs + gl.where(self._few() & (n % 2 == 1), programs - 1 - program, program)

    @gluon.jit
    def _listed(self, n):
        """The tile of packed sequences that is number n of this program; behind the last one any. So many heads go
        together that a program has some four tiles of them, and four at most; the last ones forwards: what is done last
        is short."""
        programs = gl.num_programs(0)
        together = gl.where(self.places >= 4 * programs, 1, gl.where(self.places >= 2 * programs, 2, 4))
        together = gl.where(self._few(), self.heads, together)
        there = gl.minimum(self._item(n), gl.maximum(self.items - 1, 0))
        group = there // (together * self.places)
        first = group * together
        there -= first * self.places
        heads = gl.minimum(together, self.heads - first)
        entry = there // heads
        head = first + there - entry * heads
        groups = (self.heads + together - 1) // together
        entry = gl.where((groups - group) % 2 == 0, self.places - 1 - entry, entry)
        where = self.listed + (entry + 1) * WIDTH
        row, query, key = gl.load(where), gl.load(where + 1), gl.load(where + 2)
        return Tile(n, head, entry, Part(row, query, key, gl.load(where + 3), gl.load(where + 4)))

    @gluon.jit
    def head(self, tile: Tile):
        """Of its queries, over all batches."""
        if self.form.PAIRED == OVER_TWO_HEADS:
            middle = tile.place == self.tiles - 1
            second = gl.where(tile.place >= self.tiles // 2, 1, 0)
            return tile.head * 2 + gl.where(middle, tile.n % 2, second)
        else:
            return tile.head

    @gluon.jit
    def lengths(self, tile: Tile):
        """Queries and keys, of its sequence where they are packed."""
        if self.form.PACKED:
            return tile.part.queries, tile.part.keys
        else:
            return self.queries, self.keys

    @gluon.jit
    def span(self, tile: Tile):
        """First query of a tile, and blocks of keys that one of its rows sees, at least one."""
        form = self.form
        ROWS: gl.constexpr = form.CONSUMERS * form.BLOCK_M
        queries, keys = self.lengths(tile)
        number = tile.place
        if form.PAIRED == OVER_TWO_HEADS:  # the middle of both is where the second half of the second one would begin
            half = self.tiles // 2
            number = gl.where(number >= half, number - half, number)
        if form.SHIFTED:
            number += (tile.head & self.around) * self.shift
            number = gl.where(number >= self.tiles, number - self.tiles, number)
        if form.PAIRED:
            number = gl.where(tile.n % 2 == 0, self.tiles - 1 - number, number)
        elif form.CAUSAL:
            number = self.tiles - 1 - number
        seen = keys
        if form.PACKED:
            if form.CAUSAL:
                seen = gl.minimum(seen, tile.part.row + ROWS + keys - queries + self.right)
            if form.LEFT:
                seen -= self.begin(tile, tile.part.row)
        else:
            if form.CAUSAL:
                seen = gl.minimum(seen, (number + 1) * ROWS + keys - queries + self.right)
            if form.LEFT:
                seen -= self.begin(tile, number * ROWS)
        blocks = (seen + form.BLOCK_N - 1) // form.BLOCK_N
        if form.EMPTY:
            blocks = gl.maximum(blocks, 1)
        if form.PACKED:
            return tile.part.row, blocks
        else:
            return number * ROWS, blocks

    @gluon.jit
    def begin(self, tile: Tile, first):
        """First key of the first block of a tile that has this query first."""
        key = gl.to_tensor(0)
        if self.form.LEFT:
            queries, keys = self.lengths(tile)
            key = gl.maximum(first + keys - queries - self.left, 0)
            key = key // self.form.BLOCK_N * self.form.BLOCK_N
        return key

    @gluon.jit
    def blocks(self):
        """Of all tiles of this program."""
        tile = self.first()
        _, total = self.span(tile)
        if self.form.CAUSAL or self.form.LEFT or self.form.PACKED:
            for _ in range(1, self.count()):
                tile = self.after(tile)
                _, blocks = self.span(tile)
                total += blocks
        else:
            total *= self.count()
        return total
