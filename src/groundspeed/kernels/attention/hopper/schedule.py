"""The order in which a program works on tiles.

A tile is the queries of all consumers of a program, BLOCK_M each, of one head. The grid is persistent: there are as
many programs as run at once, and program p of P takes items p, p + P, … Without a mask, an item is a tile. Under a
causal mask, tiles differ in length. If there are more of them than run at once, an item is a pair of tiles of the same
head, a long one and a short one, and all pairs are equally long. That balances as well as a queue would, and only a few
heads are in progress at a time, so their keys stay in the L2 cache.

If the number of tiles is odd, the middle one has no partner in its head: it is processed twice or, in balanced
launches, paired with that of the next head. Under a window, the tiles at the ends of a head are short, and so is the
work of a program that happens to take its tiles there: in balanced launches, each head begins some tiles after the one
before.

Packed sequences differ in length. The device makes a list of all their tiles, those with the most keys first
(listing.py). A few heads go through the list together, and the next few go through it backwards. If heads went through
it one after the other, a program would get the longest tile of every head whenever there are as many tiles as programs;
if all heads went together, their keys would not stay in the cache. If there are few tiles, the keys do stay in the
cache: then all heads go together, and every other round starts with the last program."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from groundspeed.kernels.hopper import aggregate

WITHIN_A_HEAD = gl.constexpr(1)
OVER_TWO_HEADS = gl.constexpr(2)
"""How tiles are paired, if they are."""
WIDTH = gl.constexpr(8)
"""The numbers of an entry of the list of tiles: the first row of the tile within its sequence; then, of that sequence,
the first query, the first key, the number of queries and the number of keys. The first entry of the list holds the
number of tiles."""


@aggregate
class Form:
    """The compile-time configuration of the kernel."""

    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    HEAD_REST: gl.constexpr
    """Columns of a second part of the tile, for what exceeds a power of two, or 0."""
    VALUE_DIM: gl.constexpr
    VALUE_REST: gl.constexpr
    """The same for the values; each is at most that of the keys."""
    STAGES: gl.constexpr
    """Ring buffer stages of K, and of V."""
    PLACES: gl.constexpr
    """Slots for the Q, and later the O, of a consumer. A program can have a second tile only if there is at least one
    more slot than there are consumers; otherwise it deadlocks."""
    CAUSAL: gl.constexpr
    """A row sees keys up to its own position, or up to `right` positions after it."""
    LEFT: gl.constexpr
    """A row sees at most `left` keys before its position."""
    CAP: gl.constexpr
    """Scores have a soft-cap."""
    SINKS: gl.constexpr
    """Each head has a sink: one more score, without a value."""
    PACKED: gl.constexpr
    """Sequences of different lengths are packed; each tile belongs to one of them."""
    PAIRED: gl.constexpr
    SHIFTED: gl.constexpr
    """Each head begins `shift` tiles after the one before; after `around` + 1 heads the next begins with tile 0
    again."""
    RAGGED: gl.constexpr
    """The last block of keys may not be full."""
    EMPTY: gl.constexpr
    """There may be rows that see no key, or none of the first block of their tile."""
    FLAT: gl.constexpr
    """A single loop runs over the blocks of all tiles."""
    ORDERED: gl.constexpr
    """The wait for the next K is placed between the softmax and the wait for P·V. This keeps ptxas from moving the wait
    for P·V ahead of the softmax."""
    TURNS: gl.constexpr
    """Consumers take turns to multiply, so that the softmax of one overlaps the products of the others."""
    LOCAL_SUMS: gl.constexpr
    """Each thread sums its own part of a row; the parts are combined at the end of the tile."""
    LAZY: gl.constexpr
    """The output is rescaled only if a maximum has grown so much that P would exceed 2⁴."""
    SPLIT: gl.constexpr
    """K and V are released separately, instead of a K together with the V before it."""
    LSE: gl.constexpr
    """The LSE is requested."""

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
    """For packed sequences, the rows that a tile consists of."""

    row: gl.tensor
    """The first query of the tile, within its sequence."""
    query: gl.tensor
    key: gl.tensor
    """The first query and the first key of the sequence, and its numbers of queries and keys."""
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
    """A tile of a program."""

    n: gl.tensor
    """The number of tiles that the program had before."""
    head: gl.tensor
    """The head; if tiles are paired over two heads, the pair of heads."""
    place: gl.tensor
    """The index of its item within that head; for packed sequences, its index in the list."""
    part: Part

    @gluon.constexpr_function
    def __init__(self, n, head, place, part):
        self.n = n
        self.head = head
        self.place = place
        self.part = part


@gluon.jit
def _whole():
    """Return an unused Part, for launches without packed sequences."""
    return Part(gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0))


@aggregate
class Work:
    """The work of a launch."""

    queries: gl.tensor
    keys: gl.tensor
    """The numbers of queries and keys of a head; for packed sequences, the totals of all sequences."""
    heads: gl.tensor
    """Query heads in a batch entry."""
    group: gl.tensor
    """Query heads that share a key head."""
    tiles: gl.tensor
    """Tiles of a head."""
    places: gl.tensor
    """Tiles of a head, or pairs of them; for packed sequences the entries of the list, or 1 if it is empty."""
    items: gl.tensor
    """Tiles, or pairs of them, in total."""
    heads_on: gl.tensor
    places_on: gl.tensor
    """The step from one item of a program to its next, as heads and places. It is added: a division would take as long
    as a product."""
    shift: gl.tensor
    around: gl.tensor
    left: gl.tensor
    right: gl.tensor
    """The numbers of keys before and after its position that a row sees, if these are bounded."""
    unit: gl.tensor
    cap: gl.tensor
    """With a soft-cap, a score s becomes cap·tanh(unit·s), in units of log2."""
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
        """Return the number of tiles of this program."""
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
        """Return the first tile of this program."""
        if self.form.PACKED:
            return self._listed(gl.to_tensor(0))
        else:
            item = gl.program_id(0)
            head = item // self.places
            place = item - head * self.places
            return Tile(gl.to_tensor(0), head, place, _whole())

    @gluon.jit
    def after(self, tile: Tile):
        """Return the tile after this one."""
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
        """Return whether all heads of packed sequences go through the list together, because there are few tiles."""
        return self.items <= 8 * gl.num_programs(0)

    @gluon.jit
    def _item(self, n):
        """Return the index of item n of this program, for packed sequences."""
        program, programs = gl.program_id(0), gl.num_programs(0)
        return n * programs + gl.where(self._few() & (n % 2 == 1), programs - 1 - program, program)

    @gluon.jit
    def _listed(self, n):
        """Return tile n of this program, for packed sequences; past the last tile, any tile. As many heads go together
        as give a program some four tiles of them, but at most four heads. The last group of heads goes through the list
        forwards, so that the last tiles are short."""
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
        """Return the query head of a tile, counted over all batches."""
        if self.form.PAIRED == OVER_TWO_HEADS:
            middle = tile.place == self.tiles - 1
            second = gl.where(tile.place >= self.tiles // 2, 1, 0)
            return tile.head * 2 + gl.where(middle, tile.n % 2, second)
        else:
            return tile.head

    @gluon.jit
    def lengths(self, tile: Tile):
        """Return the numbers of queries and keys; for packed sequences, those of the tile's sequence."""
        if self.form.PACKED:
            return tile.part.queries, tile.part.keys
        else:
            return self.queries, self.keys

    @gluon.jit
    def span(self, tile: Tile):
        """Return the first query of a tile, and the number of blocks of keys, at least one, that any of its rows
        sees."""
        form = self.form
        ROWS: gl.constexpr = form.CONSUMERS * form.BLOCK_M
        queries, keys = self.lengths(tile)
        number = tile.place
        if form.PAIRED == OVER_TWO_HEADS:  # the middle tiles of both heads have the last place
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
        """Return the first key of the first block of the tile whose first query is `first`."""
        key = gl.to_tensor(0)
        if self.form.LEFT:
            queries, keys = self.lengths(tile)
            key = gl.maximum(first + keys - queries - self.left, 0)
            key = key // self.form.BLOCK_N * self.form.BLOCK_N
        return key

    @gluon.jit
    def blocks(self):
        """Return the number of blocks of all tiles of this program."""
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
