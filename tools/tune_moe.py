"""Time a mixture of experts on this GPU, round-robin: launch choices of the Hopper kernel, our portable kernels,
`torch._grouped_mm`, and cuBLAS on as many FLOPs as plain products.

    python tools/tune_moe.py [--tokens 1,8,64,2048,32768] [--shape 4096x11008x32x2] [--activations gelu,swiglu]
    python tools/tune_moe.py --like 'c2*' --out FILE

A shape is hidden × intermediate × experts × top_k. Every variant is checked before it is timed. For each shape the
table has the ms of the best variants and of the others, and of each kernel of the chosen one. A tool for choosing
`Launch`, not evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from side_by_side import rounds
from torch.nn import functional

from groundspeed.kernels.moe import layer, reference
from groundspeed.kernels.moe.form import Routing, widening
from groundspeed.kernels.moe.hopper.choice import Launch

WRONG = 8e-3
"""RMS of the error over that of the result, in BF16."""


def variants(rows_each: float) -> dict[str, tuple[Launch, Launch]]:
    """Of the two products, which have tiles of as many rows."""
    large = [Launch(2, 256, 64, 4, n) for n in (8, 16, 32)] + [Launch(2, 256, 64, 4, 16, lag) for lag in (1, 2, 3)]
    large += [Launch(2, 128, 64, 6), Launch(2, 256, 32, 8, 16, 6), Launch(2, 256, 64, 4, 16, skip=True)]
    small = [Launch(1, n, 64, stages, 32) for n, stages in ((256, 5), (128, 8), (64, 12), (128, 5), (64, 8))]
    some = large if rows_each > 320 else small if rows_each < 64 else large[1:2] + small
    pairs = [(a, b) for a, b in itertools.product(some, some) if a.consumers == b.consumers]
    return {f"{name_of(a)} / {name_of(b)}": (a, b) for a, b in pairs}


def name_of(launch: Launch) -> str:
    numbers = f"c{launch.consumers} n{launch.block_n} k{launch.block_k} s{launch.stages} t{launch.together}"
    return numbers + (f" lag {launch.lag}" if launch.lag else "") + (" skip" if launch.skip else "")


def by_grouped_mm(x: Any, router: Any, up: Any, down: Any, top_k: int, activation: str) -> Callable[[], Any]:
    """As one would write it in PyTorch today: nothing waits for the host."""
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
    """The products alone, of one matrix each."""
    x, between = (torch.randn(T, n, device="cuda").bfloat16() for n in (H, inner))
    up, down = (torch.randn(*size, device="cuda").bfloat16() for size in ((wide * inner, H), (H, inner)))
    out = x.new_empty(T, wide * inner), x.new_empty(T, H)

    def call() -> None:
        torch.mm(x, up.T, out=out[0])
        torch.mm(between, down.T, out=out[1])

    return call


def parts(call: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """ms of each kernel in a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in profile.events():
        found[event.name] = found.get(event.name, 0.0) + event.device_time_total / 1000 / repeats
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def timed(T: int, H: int, inner: int, E: int, top_k: int, activation: str, like: str) -> dict[str, Any]:
    sizes = (T, H), (E, H), (E, widening(activation) * inner, H), (E, H, inner)
    told = [
        torch.randn(size, device="cuda").mul_(1 if i == 0 else size[-1] ** -0.5).bfloat16()
        for i, size in enumerate(sizes)
    ]
    routing = Routing(top_k)
    rows = torch.randperm(T)[:64].cuda()
    clear = reference.route(told[0][rows], told[1], routing).margin > 1e-3
    expected = reference.moe(*told, routing, activation=activation, rows=rows)[clear]
    tried = {"chosen": (True, None), "portable": (False, None)}
    tried |= {n: (True, pair) for n, pair in variants(T * top_k / E).items() if fnmatch.fnmatch(n, like)}
    calls: dict[str, Callable[[], Any]] = {}
    for name, (hopper, launches) in tried.items():
        forward = layer.prepared(*told, routing, activation, capability=(9, 0), hopper=hopper, launches=launches)
        calls[name] = lambda forward=forward: forward(*told)[0]
    calls["grouped_mm"] = by_grouped_mm(*told, top_k, activation)
    for name, call in list(calls.items()):
        error = (call()[rows][clear].double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        if not error <= WRONG:
            print(f"T{T} {activation} {name}: wrong, {error:.1e}", flush=True)
            del calls[name]
    if T >= 1024:
        calls["cuBLAS"] = by_cublas(T * top_k, H, inner, widening(activation))
    ms = rounds(calls, max(5, min(20, int(400 / sum(rounds(calls, 2).values())))))
    experts = int(reference.route(told[0], told[1], routing).experts.unique().numel())
    bytes_ = 2 * experts * H * inner * (widening(activation) + 1)
    flops = 2 * T * top_k * H * inner * (widening(activation) + 1)
    kernels = {name: parts(calls[name]) for name in ("chosen", "grouped_mm") if name in calls}
    return {"ms": ms, "TB/s": bytes_ / ms["chosen"] / 1e9, "TFLOP/s": flops / ms["chosen"] / 1e9, "kernels": kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,8,64,2048,32768")
    parser.add_argument("--shape", default="4096x11008x32x2")
    parser.add_argument("--activations", default="gelu,swiglu")
    parser.add_argument("--like", default="*", help="only variants whose name is like this: 'c1 n64*'")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    H, inner, E, top_k = map(int, options.shape.split("x"))
    results: dict[str, Any] = {}
    for activation, T in itertools.product(options.activations.split(","), map(int, options.tokens.split(","))):
        found = results[f"{activation} {T}"] = timed(T, H, inner, E, top_k, activation, options.like)
        fixed = ("chosen", "portable", "grouped_mm", "cuBLAS")
        told = "  ".join(f"{name} {found['ms'][name]:.3f}" for name in fixed if name in found["ms"])
        print(f"T{T} {activation}: {told}  ({found['TB/s']:.2f} TB/s, {found['TFLOP/s']:.0f} TFLOP/s)")
        best = sorted((ms, name) for name, ms in found["ms"].items() if name not in fixed)
        print("   best: " + "  ".join(f"[{name}] {ms:.3f}" for ms, name in best[:4]))
        for who, kernels in found["kernels"].items():
            shown = "  ".join(f"{name[:40]} {ms:.3f}" for name, ms in list(kernels.items())[:9])
            print(f"   {who}: {shown}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
