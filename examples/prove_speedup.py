"""Prove on your own machine that a function is faster than the one that it replaces.

    python examples/prove_speedup.py
    python examples/prove_speedup.py --device cuda --dtype bf16 --sequence 8192

Put your own code into `before`, `after` and `inputs`. Here the attention of a model, written out as in a textbook, is
replaced: on a GPU by groundspeed's, on a CPU by PyTorch's. Both are checked against `before` computed in FP64, before
timing and on timed calls: a function that is fast but wrong gets no verdict.

Whatever the outcome, it is kept as a bundle: raw samples, versions, hashes. Anyone who doubts the claim can recompute
it from the bundle with `groundspeed verify`, without this script and without a GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs
from groundspeed.errors import GroundspeedError

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """All scores at once"""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """groundspeed's attention on a GPU, PyTorch's on a CPU"""
    if q.is_cuda:
        return gs.attention(q, k, v, causal=True)
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def main(given: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    asked.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    asked.add_argument("--dtype", default="fp32", choices=DTYPES)
    asked.add_argument("--sequence", type=int, default=512)
    asked.add_argument("--preset", default="quick", choices=("quick", "standard", "paper"))
    asked.add_argument("--out", default=".groundspeed/runs", type=Path, help="folder for the bundle")
    told = asked.parse_args(given)
    if told.device == "cuda" and not torch.cuda.is_available():
        asked.error("--device cuda: PyTorch sees no NVIDIA GPU here; --device cpu runs anywhere")

    # Called again and again, with another seed each time, so that no function gets the same inputs twice.
    def inputs() -> tuple[Tensor, ...]:
        shape = 1, 4, told.sequence, 64
        q, k, v = (torch.randn(shape, device=told.device, dtype=DTYPES[told.dtype]) for _ in "qkv")
        return q, k, v

    # Several fresh processes measure blocks in which each function is timed once, in random order. The baseline is
    # declared before anything is measured.
    try:
        run = gs.compare(
            {"before": before, "after": after}, inputs=inputs, baseline="before", preset=told.preset, out=told.out
        )
    except GroundspeedError as error:
        asked.exit(error.exit_code, f"{error}\n")
    print(run)


if __name__ == "__main__":
    main()
