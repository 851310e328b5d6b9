"""Attention forward for Hopper (sm_90), in Gluon: warps that load, warps that multiply, and tiles without end.

schedule.py   which tile of which head a program works on next
loaders.py    the warps that move: K and V in, Q in and O out
consumer.py   the warpgroups that multiply and take the softmax
kernel.py     the kernel: shared memory, barriers, and which warps do what
launch.py     its choices, and its call from the host
"""
