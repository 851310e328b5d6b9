"""Which tile of c a program has next. Tiles of rows come from a list on the device; TOGETHER of them go through all
columns before the next ones begin, rows first, so that a matrix is read from L2 while it is there."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from groundspeed.kernels.hopper import aggregate

GELU, SWIGLU, RELU2 = gl.constexpr(1), gl.constexpr(2), gl.constexpr(3)
BLOCK_M = gl.constexpr(64)
"""Rows of a consumer, and what a group begins at a multiple of."""


@aggregate
class Form:
    """What is known when the kernel is compiled."""

    CONSUMERS: gl.constexpr
    BLOCK_N: gl.constexpr
    """Rows of b in a tile: of SwiGLU half of them gate."""
    BLOCK_K: gl.constexpr
    STAGES: gl.constexpr
    COLUMNS: gl.constexpr
    """Of c that are stored at once."""
    ACTIVATION: gl.constexpr
    TOGETHER: gl.constexpr
    LAG: gl.constexpr
    """Blocks of K that the second consumer is behind the first: while one has its epilogue, the other multiplies."""

    @gluon.constexpr_function
    def __init__(self, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, COLUMNS, ACTIVATION, TOGETHER, LAG):
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.BLOCK_K = gl.constexpr(BLOCK_K)
        self.STAGES = gl.constexpr(STAGES)
        self.COLUMNS = gl.constexpr(COLUMNS)
        self.ACTIVATION = gl.constexpr(ACTIVATION)
        self.TOGETHER = gl.constexpr(TOGETHER)
        self.LAG = gl.constexpr(LAG)


@aggregate
class Work:
    """What all partitions of a program know."""

    listed: gl.tensor
    """Tiles of rows: first row, expert, rows, and nothing."""
    tiles: gl.tensor
    """Of them."""
    columns: gl.tensor
    """Tiles of columns."""
    width: gl.tensor
    """Columns of c."""
    steps: gl.tensor
    """Blocks of K."""
    form: Form

    @gluon.constexpr_function
    def __init__(self, listed, tiles, columns, width, steps, form):
        self.listed = listed
        self.tiles = tiles
        self.columns = columns
        self.width = width
        self.steps = steps
        self.form = form

    @gluon.jit
    def count(self):
        """Tiles of this program."""
        programs = gl.num_programs(0)
        return (self.tiles * self.columns - gl.program_id(0) + programs - 1) // programs

    @gluon.jit
    def tile(self, i):
        """Number i of this program: where its rows are listed, and its column of tiles."""
        number = gl.program_id(0) + i * gl.num_programs(0)
        whole = self.form.TOGETHER * self.columns
        first = number // whole * self.form.TOGETHER
        rows = gl.minimum(self.tiles - first, self.form.TOGETHER)
        within = number % whole
        return self.listed + (first + within % rows) * 4, within // rows
