"""Time plain products on this GPU, round-robin: launch choices of the Hopper and portable kernels, and cuBLAS.

    python tools/tune_gemm.py [--shapes 1024x1024x1024,16x11008x4096] [--like 'c2*'] [--out FILE]
    python tools/tune_gemm.py --compile           # everything that would be timed; needs no GPU

A shape is M × N × K; the default are the GPU shapes of the suite `gemm` and those of short prompts. Every variant is
checked before it is timed. For each shape the table has the µs of cuBLAS, of the chosen launch and of the best
variants, and how full the rounds of their tiles are. This is a tool for choosing `Launch`, not evidence: claims come
from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from side_by_side import compile_ahead, need_gpu, rounds
from torch.nn.functional import linear

from groundspeed.kernels.launch import MULTIPROCESSORS
from groundspeed.kernels.moe import dense
from groundspeed.kernels.moe.grouped_gemm import Launch as Portable
from groundspeed.kernels.moe.hopper.choice import Launch, Transposed
from groundspeed.suites.gemm.cases import FEW_ROWS, LAYERS, SQUARE, Shape

PROMPTS = [Shape(128, N, K) for d in (768, 2048, 4096) for N, K in ((3 * d, d), (d, d), (4 * d, d), (d, 4 * d))]
"""The products of a short prompt in the models of the suite `inference`; reading the matrix is most of their time."""
WRONG = 6e-3
"""Largest accepted RMS of the error, over that of the result, in BF16."""
HOPPER = [
    Launch(consumers, n, 64, stages, together)
    for consumers, n, stages in ((2, 256, 4), (2, 128, 6), (2, 64, 8), (1, 256, 5), (1, 128, 8), (1, 64, 12))
    for together in (8, 16, 32)
]
TRANSPOSED = [Transposed(together=together) for together in (1, 4, 8, 16)] + [Transposed(rest=0), Transposed(64, 0)]
PORTABLE = [Portable(16, n, k, 4, stages) for n, k, stages in ((64, 256, 4), (32, 256, 4), (16, 256, 5), (64, 128, 5))]
PORTABLE += [Portable(64, n, k, 4, 4) for n, k in ((64, 128), (128, 64), (32, 128))]
PORTABLE += [Portable(128, 128, 64, 8, 4), Portable(128, 64, 64, 4, 4), Portable(128, 256, 64, 8, 3)]


def name_of(launch: Launch | Transposed | Portable) -> str:
    if isinstance(launch, Transposed):
        return f"transposed {launch.tokens}+{launch.rest} s{launch.stages} t{launch.together}"
    if isinstance(launch, Launch):
        return f"c{launch.consumers} n{launch.block_n} s{launch.stages} t{launch.together}"
    return f"{launch.block_m}x{launch.block_n}x{launch.block_k} w{launch.num_warps} s{launch.num_stages}"


def variants(shape: Shape, like: str) -> dict[str, tuple[bool, Any]]:
    """Return by name whether it is the Hopper kernel, and its launch; None for the one that is chosen."""
    chosen: dict[str, tuple[bool, Any]] = {"chosen": (True, None), "portable": (False, None)}
    fitting = [launch for launch in PORTABLE if launch.block_m <= 2 * max(16, shape.M)]
    found = {name_of(launch): (not isinstance(launch, Portable), launch) for launch in (*HOPPER, *TRANSPOSED, *fitting)}
    return chosen | {name: one for name, one in found.items() if fnmatch.fnmatch(name, like)}


def filled(shape: Shape, launch: Any) -> float:
    """Return the share of the time of all rounds that goes into useful work, with one program per multiprocessor: tiles
    at the edges and the last round may be partly empty."""
    rows = launch.block_m if isinstance(launch, Portable) else launch.rows
    tiles = math.ceil(shape.M / rows) * math.ceil(shape.N / launch.block_n)
    useful = shape.M * shape.N / (rows * launch.block_n)
    return useful / (math.ceil(tiles / MULTIPROCESSORS) * MULTIPROCESSORS)


def timed(shape: Shape, like: str) -> dict[str, float]:
    a, b = (torch.randn(rows, shape.K, device="cuda").bfloat16() for rows in (shape.M, shape.N))
    rows = torch.randperm(shape.M)[:64].cuda()
    expected = a[rows].double() @ b.double().T
    calls: dict[str, Callable[[], Any]] = {"cuBLAS": lambda: linear(a, b)}
    for name, (hopper, launch) in variants(shape, like).items():
        try:
            multiply = dense.prepared(a, b, capability=torch.cuda.get_device_capability(), hopper=hopper, launch=launch)
            error = float((multiply(a, b)[rows].double() - expected).norm() / expected.norm())
            fault = None if error <= WRONG else f"wrong, {error:.1e}"
        except Exception as failure:  # only this variant is dropped
            fault = f"{type(failure).__name__}: {failure!s:.100}"
        if fault:
            print(f"{shape.name} {name}: {fault}", flush=True)
        else:
            calls[name] = lambda multiply=multiply: multiply(a, b)
    first = rounds(calls, 3)
    return {name: 1000 * ms for name, ms in rounds(calls, max(7, min(40, int(300 / sum(first.values()))))).items()}


def launches(shape: Shape, like: str) -> dict[str, Callable[[], Any]]:
    """Return a call of each variant, by name, for tensors without memory."""
    a, b = (torch.empty(rows, shape.K, dtype=torch.bfloat16, device="meta") for rows in (shape.M, shape.N))

    def call(hopper: bool, launch: Any) -> Any:
        return dense.prepared(a, b, capability=(9, 0), hopper=hopper, launch=launch)(a, b)

    return {name: partial(call, *one) for name, one in variants(shape, like).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(shape.name for shape in (*SQUARE, *LAYERS, *FEW_ROWS, *PROMPTS)))
    parser.add_argument("--like", default="*", help="only variants whose name matches this: 'c1 n64*'")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shapes = [Shape(*map(int, text.split("x"))) for text in options.shapes.split(",")]
    if not options.compile:
        need_gpu(parser)
    compile_ahead(launches, [(shape, options.like) for shape in shapes])
    if options.compile:
        return
    results: dict[str, Any] = {}
    for shape in shapes:
        us = results[shape.name] = timed(shape, options.like)
        told = "  ".join(f"{name} {us[name]:.1f}" for name in ("cuBLAS", "chosen", "portable") if name in us)
        print(f"{shape.name}: {told}")
        tried = variants(shape, options.like)
        for time, name in sorted((time, name) for name, time in us.items() if name not in ("cuBLAS", "chosen"))[:5]:
            launch = tried[name][1]
            full = f", {filled(shape, launch):.0%} full" if launch else ""
            print(f"   {time:.1f} [{name}] {us['cuBLAS'] / time:.2f} of cuBLAS{full}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
