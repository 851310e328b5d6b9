"""Time products of a few rows with matrices on this GPU, as in a model that writes token by token: chains of products
in a CUDA graph. Each product has its own matrix, so that all are read from memory, and waits for the one before it.

    python tools/tune_linear.py [--rows 1,8,64,128] [--shapes 12288x4096+norm,4096x4096] [--like '16x32x256*,*x512*']
    python tools/tune_linear.py --compile         # everything that would be timed; needs no GPU

A shape is N × K, then what is fused with it: norm, gelu, swiglu (N is half of the matrix), residual. Every variant is
checked before it is timed. For each shape the table has the µs of one product: for the chosen launch, started early or
not, with K in parts or not, and with other prefetches; for the best variants and for PyTorch's parts; and the µs of
reading the matrix at the bandwidth of a large copy. A norm is in the product, or where that is said, apart: a kernel of
its own before it. Norms of more than 16 rows are not part of it.
This is a tool for choosing `Launch`, not evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from side_by_side import compile_ahead, need_gpu, rounds
from triton import next_power_of_2

from groundspeed.kernels.linear import parts, reference, triton
from groundspeed.kernels.linear.api import is_roomy
from groundspeed.kernels.linear.form import FEW_ROWS, Norm

SHAPES = (
    "12288x4096+norm,4096x4096+residual,16384x4096+norm+gelu,4096x16384+residual,14336x4096+norm+swiglu,"
    "2304x768+norm,768x768+residual,3072x768+norm+gelu,768x3072+residual,11008x4096,128256x4096"
)
CHAIN_BYTES, MOST_LINKS, COPY_BYTES, SHOWN = 1 << 30, 64, 1 << 30, 6
"""CHAIN_BYTES of matrices in a chain are far more than L2 holds."""
LEAST_BYTES, MOST_BYTES = 49152, 131072
"""Bytes in flight to a program."""


class Chain(NamedTuple):
    """Products of the same kind, each with its own weights."""

    x: Any
    weights: list[Any]
    bias: Any
    norm: Norm | None
    activation: str | None
    residual: Any


def chain_of(shape: str, M: int, device: str) -> Chain:
    sizes, *asked = shape.split("+")
    N, K = map(int, sizes.split("x"))
    activation = next((name for name in ("gelu", "swiglu") if name in asked), None)
    wide = 2 * N if activation == "swiglu" else N
    links = 2 if device == "meta" else min(MOST_LINKS, max(2, CHAIN_BYTES // (2 * wide * K)))

    def random(*size: int) -> Any:
        return torch.randn(size, device=device).bfloat16()

    normed = "norm" in asked and M <= FEW_ROWS
    return Chain(
        random(M, K),
        [random(wide, K) / K**0.5 for _ in range(links)],
        random(wide),
        Norm(random(K), random(K), 1e-5, True) if normed else None,
        activation,
        random(M, N) if "residual" in asked else None,
    )


def launches_of(rows: int, tiles: int) -> list[triton.Launch]:
    """Return launches for so many rows, which fit into one or two tiles, with `tiles` tiles of the matrix read at
    once."""
    least = max(16, min(64, next_power_of_2(rows)))
    return [
        triton.Launch(m, n, k, 8 if m * n >= 8192 else 4, stages, 4 if m < 64 else 1)
        for m, n, k, stages in itertools.product(
            (16, 32, 64, 128), (16, 32, 64, 128), (64, 128, 256, 512), (3, 4, 5, 6)
        )
        if least <= m <= max(least, rows)
        and 2048 <= tiles * n * k <= 32768
        and LEAST_BYTES <= 2 * (m + tiles * n) * k * (stages - 1) <= MOST_BYTES
    ]


def variants(shape: str, M: int, like: str) -> dict[str, Callable[[], Any]]:
    """Return by name a call of each of our launches, for tensors without memory."""
    chain = chain_of(shape, M, "meta")
    calls = {name: partial(call, chain.weights[0]) for name, call in calls_of(chain, like).items()}
    del calls["PyTorch"]
    return calls


def calls_of(chain: Chain, like: str) -> dict[str, Callable[[Any], Any]]:
    """Return by name functions that compute one product, with the weights that they are given."""

    def ours(launch: Any, chained: bool) -> Callable[[Any], Any]:
        multiplied = product_of(chain, launch, chained=chained)
        return lambda weight: multiplied(weight, chain.x)

    def apart(launch: Any) -> Callable[[Any], Any]:
        multiplied = product_of(chain._replace(norm=None), launch)
        return lambda weight: multiplied(weight, parts.normed(chain.x, chain.norm))

    def in_parts(weight: Any) -> Any:
        return parts.linear(chain.x, weight, chain.bias, None, chain.norm, chain.activation, chain.residual)

    (rows, K), wide, tiles = chain.x.shape, len(chain.weights[0]), 2 if chain.activation == "swiglu" else 1
    roomy = chain.x.device.type == "meta" or is_roomy(chain.x.device)
    chosen = triton.Launch.choose(rows, wide // tiles, K, tiles, roomy=roomy)
    calls = {
        "PyTorch": in_parts,
        "chosen": ours(chosen, True),
        "chosen, no prefetch": ours(replace(chosen, ahead=0), True),
        "chosen, long prefetch": ours(replace(chosen, ahead=2048), True),
        "chosen, K whole": ours(replace(chosen, parts=1), True),
        "chosen, unchained": ours(chosen, False),
    }
    tried = launches_of(rows, tiles)
    named = {f"{t.block_m}x{t.block_n}x{t.block_k} w{t.num_warps} s{t.num_stages}": t for t in tried}
    named = {name: t for name, t in named.items() if any(fnmatch.fnmatch(name, each) for each in like.split(","))}
    calls |= {name: ours(t, True) for name, t in named.items()}
    if chain.norm is not None:
        long = {f"chosen, prefetch {n}": replace(chosen, ahead=n) for n in (0, 1024, 2048)}
        calls |= {f"{name}, norm apart": apart(t) for name, t in {"chosen": chosen, **long, **named}.items()}
    return calls


def product_of(chain: Chain, launch: Any, *, chained: bool = True) -> Callable[[Any, Any], Any]:
    """Return a function of weight and x."""
    _, weights, bias, norm, activation, residual = chain
    made: list[Callable[..., Any]] = []  # prepared in the first call, which may fail

    def call(weight: Any, x: Any) -> Any:
        if not made:
            told = x, weights[0], bias, None, norm, activation, residual
            made.append(triton.prepared(*told, launch=launch, chained=chained))
        return made[0](x, weight, bias, None, norm, residual)

    return call


def graph_of(call: Callable[[Any], Any], weights: list[Any]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call(weights[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights:
            call(weight)
    replay: Callable[[], None] = graph.replay
    return replay


def timed(chain: Chain, like: str) -> dict[str, float]:
    """Return variant → µs of a product."""
    right = reference.linear(
        chain.x, chain.weights[1], chain.bias, norm=chain.norm, activation=chain.activation, residual=chain.residual
    )
    graphs: dict[str, Callable[[], None]] = {}
    for name, call in calls_of(chain, like).items():
        try:
            error = float((call(chain.weights[1]).double() - right).norm() / right.norm())
            if error <= 2 * reference.ERROR["bf16"]:
                graphs[name] = graph_of(call, chain.weights)
            else:
                print(f"  {name}: wrong, {error:.1e}", flush=True)
        except Exception as failure:  # only this variant is dropped
            print(f"  {name}: {type(failure).__name__}: {failure!s:.100}", flush=True)
    first = rounds(graphs, 3)
    fixed = [name for name in graphs if name == "PyTorch" or name.startswith("chosen")]
    best = sorted((name for name in graphs if name not in fixed), key=first.__getitem__)[:SHOWN]
    again = rounds({name: graphs[name] for name in (*fixed, *best)}, 15)
    return {name: 1e3 * ms / len(chain.weights) for name, ms in again.items()}


def copy_bandwidth() -> float:
    """Return the bandwidth of a large copy in GB/s, read plus written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / rounds({"copy": lambda: target.copy_(source)}, 10)["copy"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,8,64,128")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--like", default="*")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = list(itertools.product(options.shapes.split(","), map(int, options.rows.split(","))))
    if not options.compile:
        need_gpu(parser)
    compile_ahead(variants, [(shape, M, options.like) for shape, M in cases])
    if options.compile:
        return
    copy = copy_bandwidth()
    print(f"copy {copy:.0f} GB/s", flush=True)
    results: dict[str, Any] = {"copy": copy}
    for shape, M in cases:
        chain = chain_of(shape, M, "cuda")
        read = 1e-3 * chain.weights[0].nbytes / copy
        results[f"{shape} {M}"] = times = timed(chain, options.like)
        print(f"{shape}, {M} rows: reading the matrix {read:.1f} µs", flush=True)
        for name, us in sorted(times.items(), key=lambda one: one[1]):
            print(f"  {us:8.1f} µs {read / us:6.1%}  {name}", flush=True)
        del chain
        torch.cuda.empty_cache()
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
