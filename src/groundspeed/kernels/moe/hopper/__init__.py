"""Matrix products of groups of rows with the matrix of their expert, on Hopper.

a [rows, K], b [E, N, K] (SwiGLU: [E, 2·N, K], the gate first) and c [rows, N], FP16 or BF16, accumulated in FP32; the
groups and the list of their tiles as `grouping.py` has them, each group beginning at a multiple of 64 rows. A dense
product is one of a single group.

    schedule.py   which tile of c a program has next
    pipe.py       the buffers between who loads and who multiplies; the warp that loads
    consumer.py   the warpgroups that multiply, apply the activation and store
    kernel.py     shared memory, barriers, and which warps do what
    choice.py     tiles by shape
    launch.py     how it is called from the host
"""
