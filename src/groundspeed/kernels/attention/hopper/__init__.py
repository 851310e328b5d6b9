"""Attention forward for Hopper (sm_90), in Gluon: a persistent, warp-specialised kernel with loader warps and consumer
warpgroups.

    schedule.py   the order in which a program works on tiles
    listing.py    the list of tiles of packed sequences, made on the device
    balance.py    the first tile of each head under a window
    loaders.py    the loader warps: one loads K and V, one loads Q and stores O
    consumer.py   the consumer warpgroups: products and softmax
    kernel.py     the kernel: shared memory, barriers and warp roles
    choice.py     the configuration for a shape
    launch.py     the launch from the host"""
