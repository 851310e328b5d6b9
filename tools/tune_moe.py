"""Time a mixture of experts on this GPU, round-robin: launch choices of the Hopper kernel and of the portable one,
`torch._grouped_mm`, and cuBLAS with plain products of as many FLOPs.

    python tools/tune_moe.py [--tokens 1,8,64,2048,32768] [--shape 4096x11008x32x2] [--activations gelu,swiglu]
    python tools/tune_moe.py --tokens 1,8 --graph         # each call as a CUDA graph
    python tools/tune_moe.py --tokens 256,512,1024        # the number of rows above which the Hopper kernel is better
    python tools/tune_moe.py --like 'c2*' --out FILE
    python tools/tune_moe.py --compile                    # everything that would be timed; needs no GPU

A shape is hidden × intermediate × experts × top_k. Every variant is checked before it is timed. For each shape the
table has the ms of the best variants, of the chosen launches and of the other libraries; and of some of these the ms of
each kernel. `unchained` are the portable kernels, each started when the one before it has ended. This is a tool for
choosing `Launch`, not evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from side_by_side import compile_ahead, need_gpu, rounds
from torch.nn import functional

from groundspeed.kernels.moe import layer, reference
from groundspeed.kernels.moe.form import Routing, widening
from groundspeed.kernels.moe.grouped_gemm import Launch as Portable
from groundspeed.kernels.moe.hopper.choice import Launch, Transposed

WRONG = 8e-3
"""Largest accepted RMS of the error, over that of the result, in BF16."""
KEPT = 12
"""Number of variants that are timed again: the best ones of three rounds."""
DEVICE = "cuda"


class Tried(NamedTuple):
    """How a layer is prepared."""

    hopper: bool = False
    launches: tuple[Any, Any] | None = None
    capability: tuple[int, int] = (9, 0)


FIXED = {"chosen": Tried(True), "portable": Tried(), "unchained": Tried(capability=(8, 0))}
"""The chosen launches: for Hopper, portable, and portable without kernels that start early and wait on the device."""


FEW = [
    Portable(16, n, k, 4, stages)
    for n, k, stages in ((128, 128, 3), (64, 128, 4), (64, 256, 3), (64, 256, 4), (32, 256, 3), (32, 256, 4))
]
FEW += [Portable(16, 32, 128, 4, 5), Portable(16, 16, 256, 4, 4)]
"""For few rows, where the time is that of reading the matrices: 64 KB and more are in flight to a multiprocessor, over
all of its programs."""
SOME = [Portable(32, 128, 64, 4, 4), Portable(64, 64, 128, 4, 3), Portable(64, 128, 64, 4, 4)]
SOME += [Portable(64, 256, 64, 8, 3), Portable(128, 128, 64, 8, 3)]
ONE = [Launch(1, n, 64, stages, 32) for n, stages in ((256, 5), (128, 8), (64, 12))]
TWO = [Launch(2, 256, 64, 4, 16), Launch(2, 256, 32, 8, 16, 6)]
MANY = [*TWO, Launch(2, 256, 64, 4, 8), Launch(2, 256, 64, 4, 32), Launch(2, 256, 64, 4, 16, 2)]
MANY += [Launch(2, 256, 32, 8, 16), Launch(2, 256, 32, 8, 32, 6), Launch(2, 256, 32, 8, 16, 4)]
TRANSPOSED = [Transposed(), Transposed(rest=0), Transposed(stages=3), Transposed(block_k=32, stages=8)]
TRANSPOSED += [Transposed(long_first=True), Transposed(together=8), Transposed(rest=0, together=8)]


def variants(rows_each: float, like: str) -> dict[str, Tried]:
    """Return launches of the two products, whose tiles have the same number of rows: every pair, or with a medium
    number of rows the same launch twice."""
    pairs: list[tuple[bool, Any, Any]]
    if rows_each <= 8:
        pairs = [(False, a, b) for a, b in itertools.product(FEW, FEW)] + [(True, ONE[0], ONE[0])]
    elif rows_each <= 96:
        pairs = [(False, a, a) for a in SOME] + [(True, a, a) for a in ONE + TWO]
    else:
        pairs = [(True, a, b) for a, b in itertools.product(MANY, MANY)]
    if rows_each > 32:
        pairs += [(True, a, a) for a in TRANSPOSED]
    tried = {f"{name_of(a)} / {name_of(b)}": Tried(hopper, (a, b)) for hopper, a, b in pairs}
    return {name: one for name, one in tried.items() if fnmatch.fnmatch(name, like)}


def name_of(launch: Launch | Transposed | Portable) -> str:
    if isinstance(launch, Transposed):
        tile = f"transposed m{launch.tokens}+{launch.rest}"
        order = " long first" if launch.long_first else ""
        return f"{tile} k{launch.block_k} s{launch.stages}{order} t{launch.together}"
    if isinstance(launch, Portable):
        return f"m{launch.block_m} n{launch.block_n} k{launch.block_k} w{launch.num_warps} s{launch.num_stages}"
    numbers = f"c{launch.consumers} n{launch.block_n} k{launch.block_k} s{launch.stages} t{launch.together}"
    return f"{numbers} lag {launch.lag}" if launch.lag else numbers


def sizes_of(T: int, H: int, inner: int, E: int, activation: str) -> list[tuple[int, ...]]:
    """Return the sizes of x, router, up and down."""
    return [(T, H), (E, H), (E, widening(activation) * inner, H), (E, H, inner)]


def launches(
    T: int, H: int, inner: int, E: int, top_k: int, activation: str, like: str
) -> dict[str, Callable[[], Any]]:
    """Return a call of each variant, by name, for tensors without memory."""
    told = [torch.empty(s, dtype=torch.bfloat16, device="meta") for s in sizes_of(T, H, inner, E, activation)]

    def call(tried: Tried) -> Any:
        return prepared(told, Routing(top_k), activation, tried)(*told)

    return {name: partial(call, tried) for name, tried in (FIXED | variants(T * top_k / E, like)).items()}


def prepared(told: list[Any], routing: Routing, activation: str, tried: Tried) -> layer.Forward:
    return layer.prepared(
        *told, routing, activation, capability=tried.capability, hopper=tried.hopper, launches=tried.launches
    )


def by_grouped_mm(x: Any, router: Any, up: Any, down: Any, top_k: int, activation: str) -> Callable[[], Any]:
    """Return the layer as a user would write it in PyTorch today: the device never waits for the host."""
    turned = up.transpose(1, 2), down.transpose(1, 2)

    def call() -> Any:
        logits = x.float() @ router.float().T
        weights, experts = logits.topk(top_k, dim=1)
        weights = weights.softmax(1)
        flat = experts.flatten()
        order = flat.argsort(stable=True)
        ends = flat.bincount(minlength=len(up)).cumsum(0).int()
        wide = torch._grouped_mm(x[order // top_k], turned[0], offs=ends)
        if activation == "swiglu":
            gate, rest = wide.chunk(2, dim=1)
            wide = functional.silu(gate) * rest
        else:
            wide = functional.gelu(wide)
        narrow = torch._grouped_mm(wide, turned[1], offs=ends)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        return (narrow[back].view(len(x), top_k, -1) * weights[..., None].to(x.dtype)).sum(1)

    return call


def by_cublas(T: int, H: int, inner: int, wide: int) -> Callable[[], Any]:
    """Return only the products, of one matrix each."""
    x, between = (torch.randn(T, n, device=DEVICE).bfloat16() for n in (H, inner))
    up, down = (torch.randn(*size, device=DEVICE).bfloat16() for size in ((wide * inner, H), (H, inner)))
    out = x.new_empty(T, wide * inner), x.new_empty(T, H)

    def call() -> None:
        torch.mm(x, up.T, out=out[0])
        torch.mm(between, down.T, out=out[1])

    return call


def parts(call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """Return the ms of each kernel in a call, by its place in the call and its name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    events = sorted((e for e in profile.events() if e.device_time_total), key=lambda e: e.time_range.start)
    each, found = max(1, len(events) // repeats), dict[str, float]()
    for i, event in enumerate(events):
        name = f"{i % each} {event.name}"
        found[name] = found.get(name, 0.0) + event.device_time_total / 1000 / repeats
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def in_graph(call: Callable[[], Any]) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def timed(T: int, H: int, inner: int, E: int, top_k: int, activation: str, like: str, graph: bool) -> dict[str, Any]:
    told = [
        torch.randn(size, device=DEVICE).mul_(1 if i == 0 else size[-1] ** -0.5).bfloat16()
        for i, size in enumerate(sizes_of(T, H, inner, E, activation))
    ]
    routing = Routing(top_k)
    rows = torch.randperm(T, device=DEVICE)[:64]
    clear = reference.route(told[0][rows], told[1], routing).margin > 1e-3
    expected = reference.moe(*told, routing, activation=activation, rows=rows)[clear]
    calls: dict[str, Callable[[], Any]] = {}
    for name, tried in (FIXED | variants(T * top_k / E, like)).items():
        forward = prepared(told, routing, activation, tried)
        calls[name] = lambda forward=forward: forward(*told)[0]
    calls["grouped_mm"] = by_grouped_mm(*told, top_k, activation)
    for name, call in list(calls.items()):
        error = (call()[rows][clear].double() - expected).norm() / expected.norm()
        if len(expected) and not error <= WRONG:
            print(f"T{T} {activation} {name}: wrong, {error:.1e}", flush=True)
            del calls[name]
    first = rounds(calls, 3)
    ranked = sorted((name for name in calls if name not in (*FIXED, "grouped_mm")), key=first.__getitem__)
    calls = {name: call for name, call in calls.items() if name not in ranked[KEPT:]}
    best = ranked[: 1 if like == "*" else KEPT]
    kernels = {name: parts(calls[name]) for name in ("chosen", "portable", *best) if name in calls}
    if graph:
        calls = {name: in_graph(call) for name, call in calls.items() if name != "grouped_mm"}
    if T >= 1024:
        calls["cuBLAS"] = by_cublas(T * top_k, H, inner, widening(activation))
    ms = rounds(calls, max(5, min(20, int(400 / sum(rounds(calls, 2).values())))))
    experts = int(reference.route(told[0], told[1], routing).experts.unique().numel())
    bytes_ = 2 * experts * H * inner * (widening(activation) + 1)
    flops = 2 * T * top_k * H * inner * (widening(activation) + 1)
    least = min(ms[name] for name in ms if name != "cuBLAS")
    return {"ms": ms, "TB/s": bytes_ / least / 1e9, "TFLOP/s": flops / least / 1e9, "kernels": kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,8,64,2048,32768")
    parser.add_argument("--shape", default="4096x11008x32x2")
    parser.add_argument("--activations", default="gelu,swiglu")
    parser.add_argument("--like", default="*", help="only variants whose name matches this: 'c1 n64*'")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    H, inner, E, top_k = map(int, options.shape.split("x"))
    cases = [
        (int(T), H, inner, E, top_k, activation, options.like)
        for activation, T in itertools.product(options.activations.split(","), options.tokens.split(","))
    ]
    if not options.compile:
        need_gpu(parser)
    compile_ahead(launches, cases)
    if options.compile:
        return
    results: dict[str, Any] = {}
    for case in cases:
        T, *_, activation, _ = case
        found = results[f"{activation} {T}"] = timed(*case, options.graph)
        fixed = (*FIXED, "grouped_mm", "cuBLAS")
        told = "  ".join(f"{name} {found['ms'][name]:.4f}" for name in fixed if name in found["ms"])
        print(f"T{T} {activation}: {told}  (best {found['TB/s']:.2f} TB/s, {found['TFLOP/s']:.0f} TFLOP/s)")
        best = sorted((ms, name) for name, ms in found["ms"].items() if name not in fixed)
        for ms, name in best[:6]:
            print(f"   {ms:.4f} [{name}]")
        for who, kernels in found["kernels"].items():
            shown = "  ".join(f"{name[:40]} {ms:.4f}" for name, ms in list(kernels.items())[:9])
            print(f"   {who}: {shown}", flush=True)
        torch.cuda.empty_cache()
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
