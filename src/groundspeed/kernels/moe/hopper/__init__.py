"""Products of groups of rows with the matrix of their expert, on Hopper: a persistent, warp-specialised kernel in
Gluon.

a is [rows, K], b [E, N, K] (SwiGLU: [E, 2·N, K] with the gate first) and c [rows, N], in FP16 or BF16 with FP32
accumulation; the groups and the list of their tiles are those of `grouping.py`, with each group beginning at a multiple
of 64 rows. A dense product is one with a single group.

    schedule.py   the order in which a program takes tiles of c
    pipe.py       the ring buffer between the loader warp and the consumers; the loader warp
    consumer.py   the consumer warpgroups: products, activation and stores
    kernel.py     shared memory, barriers and warp roles
    choice.py     tiles by shape
    launch.py     the launch from the host"""
