"""The order in which a program takes tiles of c. Row tiles come from a list on the device. TOGETHER of them go through
all columns before the next ones start, rows first, so that a matrix is read from L2 while it is there."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from groundspeed.kernels.hopper import aggregate

GELU, SWIGLU, RELU2, GELU_TANH = gl.constexpr(1), gl.constexpr(2), gl.constexpr(3), gl.constexpr(4)
BLOCK_M = gl.constexpr(64)
"""The rows of a consumer; a group begins at a multiple of this number."""


@aggregate
class Form:
    """The compile-time configuration of the kernel."""

    CONSUMERS: gl.constexpr
    BLOCK_N: gl.constexpr
    """Rows of b in a tile; for SwiGLU, half of them are of the gate."""
    BLOCK_K: gl.constexpr
    STAGES: gl.constexpr
    COLUMNS: gl.constexpr
    """The columns of c that are stored at a time."""
    ACTIVATION: gl.constexpr
    TOGETHER: gl.constexpr
    LAG: gl.constexpr
    """The number of blocks of K by which the second consumer lags behind the first, so that one multiplies during the
    epilogue of the other."""
    WHOLE: gl.constexpr
    """Whether all tiles have all of their columns, so that biases need no mask."""

    @gluon.constexpr_function
    def __init__(self, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, COLUMNS, ACTIVATION, TOGETHER, LAG, WHOLE):
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.BLOCK_K = gl.constexpr(BLOCK_K)
        self.STAGES = gl.constexpr(STAGES)
        self.COLUMNS = gl.constexpr(COLUMNS)
        self.ACTIVATION = gl.constexpr(ACTIVATION)
        self.TOGETHER = gl.constexpr(TOGETHER)
        self.LAG = gl.constexpr(LAG)
        self.WHOLE = gl.constexpr(WHOLE)


@aggregate
class Work:
    """The work of a program, known to all its partitions."""

    listed: gl.tensor
    """The list of row tiles: first row, expert, rows, and one unused number."""
    tiles: gl.tensor
    """The number of row tiles."""
    columns: gl.tensor
    """The number of column tiles."""
    width: gl.tensor
    """The columns of c."""
    steps: gl.tensor
    """The number of blocks of K."""
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
        """Return the number of tiles of this program."""
        programs = gl.num_programs(0)
        return (self.tiles * self.columns - gl.program_id(0) + programs - 1) // programs

    @gluon.jit
    def tile(self, i):
        """Return the address of the list entry of tile i of this program, and its column tile."""
        number = gl.program_id(0) + i * gl.num_programs(0)
        whole = self.form.TOGETHER * self.columns
        first = number // whole * self.form.TOGETHER
        rows = gl.minimum(self.tiles - first, self.form.TOGETHER)
        within = number % whole
        return self.listed + (first + within % rows) * 4, within // rows
