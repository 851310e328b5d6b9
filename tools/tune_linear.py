"""Time a few rows times matrices on this GPU, as a model has them that writes token by token: chains of products in a
CUDA graph, each with matrices of its own, so that all are read from memory, and each waiting for the one before.

    python tools/tune_linear.py [--rows 1,8,16,64,128] [--shapes 12288x4096+norm,4096x4096] [--like '16x32x256*']
    python tools/tune_linear.py --compile         # all that would be timed, where there is no GPU

A shape is N × K, then what is asked beside it: norm, gelu, swiglu (N is half of the matrix), residual. Every variant is
checked before it is timed. The table has, for each shape, µs of one product: what is chosen, begun early or not, the
best variants, PyTorch's parts, and what reading the matrix takes at the bandwidth of a large copy. A tool for choosing
`Launch`, not evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from side_by_side import rounds
from triton import next_power_of_2

from groundspeed.kernels.linear import parts, reference, triton
from groundspeed.kernels.linear.form import MOST_NORMED, Norm
from groundspeed.lab.standin import StandIn, set_driver

SHAPES = (
    "12288x4096+norm,4096x4096+residual,16384x4096+norm+gelu,4096x16384+residual,14336x4096+norm+swiglu,"
    "2304x768+norm,768x768+residual,3072x768+norm+gelu,768x3072+residual,11008x4096,128256x4096"
)
CHAIN_BYTES, MOST_LINKS, COPY_BYTES, SHOWN = 1 << 30, 64, 1 << 30, 6
"""Of the matrices of a chain: far more than L2 holds."""
LAUNCHES = [
    triton.Launch(m, n, k, 8 if m * n >= 8192 else 4, stages)
    for m, n, k, stages in itertools.product((16, 32, 64, 128), (16, 32, 64, 128), (64, 128, 256, 512), (3, 4, 5, 6))
    if 4096 <= n * k <= 32768 and 49152 <= 2 * (m + n) * k * (stages - 1) <= 131072
]


class Chain(NamedTuple):
    """Products of the same kind, each with weights of its own."""

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

    normed = "norm" in asked and M * K <= MOST_NORMED
    return Chain(
        random(M, K),
        [random(wide, K) / K**0.5 for _ in range(links)],
        random(wide),
        Norm(random(K), random(K), 1e-5, True) if normed else None,
        activation,
        random(M, N) if "residual" in asked else None,
    )


def calls_of(chain: Chain, like: str) -> dict[str, Callable[[Any], Any]]:
    """By name: one product, of the weights that it is given."""

    def ours(launch: Any, chained: bool) -> Callable[[Any], Any]:
        x, weights, bias, norm, activation, residual = chain
        run = triton.prepared(x, weights[0], bias, None, norm, activation, residual, launch=launch, chained=chained)
        return lambda weight: run(x, weight, bias, None, norm, residual)

    def in_parts(weight: Any) -> Any:
        return parts.linear(chain.x, weight, chain.bias, None, chain.norm, chain.activation, chain.residual)

    wide, tiles = len(chain.weights[0]), 2 if chain.activation == "swiglu" else 1
    chosen = triton.Launch.choose(len(chain.x), wide // tiles, tiles, normed=chain.norm is not None)
    calls = {
        "PyTorch": in_parts,
        "chosen": ours(chosen, True),
        "chosen, nothing asked for": ours(replace(chosen, ahead=0), True),
        "chosen, after one another": ours(chosen, False),
    }
    least = max(16, min(64, next_power_of_2(len(chain.x))))
    fitting = [t for t in LAUNCHES if least <= t.block_m <= 2 * least]
    named = {f"{t.block_m}x{t.block_n}x{t.block_k} w{t.num_warps} s{t.num_stages}": t for t in fitting}
    return calls | {name: ours(t, True) for name, t in named.items() if fnmatch.fnmatch(name, like)}


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
    """µs of a product by variant."""
    right = reference.linear(
        chain.x, chain.weights[1], chain.bias, norm=chain.norm, activation=chain.activation, residual=chain.residual
    )
    graphs: dict[str, Callable[[], None]] = {}
    for name, call in calls_of(chain, like).items():
        try:
            error = float((call(chain.weights[1]).double() - right).norm() / right.norm())
        except Exception as failure:  # more shared memory than there is
            print(f"  {name}: {failure!s:.100}", flush=True)
            continue
        if error <= 2 * reference.ERROR["bf16"]:
            graphs[name] = graph_of(call, chain.weights)
        else:
            print(f"  {name}: wrong, {error:.1e}", flush=True)
    first = rounds(graphs, 3)
    fixed = [name for name in graphs if name == "PyTorch" or name.startswith("chosen")]
    best = sorted((name for name in graphs if name not in fixed), key=first.__getitem__)[:SHOWN]
    again = rounds({name: graphs[name] for name in (*fixed, *best)}, 15)
    return {name: 1e3 * ms / len(chain.weights) for name, ms in again.items()}


def copy_bandwidth() -> float:
    """GB/s, read and written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / rounds({"copy": lambda: target.copy_(source)}, 10)["copy"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,8,16,64,128")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--like", default="*")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = list(itertools.product(options.shapes.split(","), map(int, options.rows.split(","))))
    if options.compile:
        set_driver(StandIn(90))
        for shape, M in cases:
            chain = chain_of(shape, M, "meta")
            calls = calls_of(chain, options.like)
            for name, call in calls.items():
                if name != "PyTorch":
                    call(chain.weights[0])
            print(shape, M, len(calls) - 1, "variants", flush=True)
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
