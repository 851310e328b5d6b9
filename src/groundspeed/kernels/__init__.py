"""The functions that a model calls: one package per op, with its kernels and its oracle."""
