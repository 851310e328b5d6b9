"""What a model calls: one package per op, with its oracle beside it."""
