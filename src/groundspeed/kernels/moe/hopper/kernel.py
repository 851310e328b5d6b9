"""The grouped product on Hopper: shared memory, barriers and warp roles."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from groundspeed.kernels.hopper import barriers
from groundspeed.kernels.moe.hopper.consumer import multiply
from groundspeed.kernels.moe.hopper.pipe import Pipe, load
from groundspeed.kernels.moe.hopper.schedule import BLOCK_M, Form, Work


@gluon.jit(do_not_specialize=["columns", "width", "steps"])
def moe_grouped_gemm_hopper(
    a_desc,
    b_desc,
    c_desc,
    tiles_ptr,
    count_ptr,
    bias_ptr,
    columns,
    width,
    steps,
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    COLUMNS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    TOGETHER: gl.constexpr,
    LAG: gl.constexpr,
    WHOLE: gl.constexpr,
):
    """`columns` tiles side by side make up c, which is `width` columns wide; `steps` blocks make up K. There is a bias
    for each column, the same for all groups, or `bias_ptr` is None."""
    form = Form(CONSUMERS, BLOCK_N, BLOCK_K, STAGES, COLUMNS, ACTIVATION, TOGETHER, LAG, WHOLE)
    work = Work(tiles_ptr, gl.load(count_ptr), columns, width, steps, form)
    MATRIX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], b_desc.dtype)
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES * CONSUMERS, BLOCK_M, BLOCK_K], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BLOCK_N, BLOCK_K], MATRIX)
    c = gl.allocate_shared_memory(c_desc.dtype, [CONSUMERS, BLOCK_M, COLUMNS], c_desc.layout)
    pipe = Pipe(a, b, barriers(STAGES, 1), barriers(STAGES, CONSUMERS), c, STAGES, CONSUMERS)
    fence_async_shared()
    if CONSUMERS == 1:
        gl.warp_specialize(
            [(multiply, (pipe, work, c_desc, bias_ptr, 0)), (load, (pipe, work, a_desc, b_desc))],
            [1],
            [24],
        )
    else:
        gl.warp_specialize(
            [
                (multiply, (pipe, work, c_desc, bias_ptr, 0)),
                (multiply, (pipe, work, c_desc, bias_ptr, 1)),
                (load, (pipe, work, a_desc, b_desc)),
            ],
            [4, 1],
            [240, 24],
        )
