"""Time launch choices of the row-wise kernels on this GPU, round-robin with PyTorch, eager and compiled.

    python tools/tune_rows.py [--ops rms,rms-residual,layer-residual,rotary,swiglu,gelu] [--dtype bf16] [--out FILE]
    python tools/tune_rows.py --ops rms --shapes 8192x4096,16x4096    rows × columns
    python tools/tune_rows.py --ops rotary --shapes 2x4096x32x8x128   batch × sequence × heads × key heads × dimension
    python tools/tune_rows.py --chains         on Hopper: launches one after the other that start early, or do not
    python tools/tune_rows.py --compile        compile every variant for an H200; needs no GPU

Every variant is checked before it is timed, with a cold L2. For each shape the table has the best variants, the launch
that is chosen now, and PyTorch: their time, and the share of the bandwidth of a large copy at which they move the bytes
that must be moved. This is a tool for choosing `Launch`, not evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from side_by_side import compile_ahead, need_gpu, rounds
from torch.nn import functional

from groundspeed.kernels import work
from groundspeed.kernels.activation import triton as activation
from groundspeed.kernels.activations import activated
from groundspeed.kernels.norm import triton as norm
from groundspeed.kernels.rotary import pytorch as rotary_by_pytorch
from groundspeed.kernels.rotary import triton as rotary

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ROWS = "16x4096,512x4096,8192x4096,8192x5120,4096x8192,2048x16384,1024x32768,262144x128"
SHAPES = {
    "rms": ROWS,
    "rms-residual": ROWS,
    "layer-residual": ROWS,
    "rotary": "8x1x32x8x128,1x4096x32x8x128,4x4096x32x8x128,4x4096x16x16x64",
    "swiglu": "16x11008,512x11008,8192x11008,16384x1408",
    "gelu": "16x16384,8192x16384",
}
COPY_BYTES = 1 << 30
WRONG = 8e-3
"""Largest accepted RMS of the error, over that of the result."""
SHOWN = 5
LINKS = 20
"""The launches of a chain."""


class Case(NamedTuple):
    tensors: list[Any]
    prepared: Callable[..., Callable[..., Any]]
    """Return the function for a launch; None is the one that is chosen. `chained=True`: it starts early, if it can."""
    launches: list[Any]
    pytorch: Callable[..., Any]
    bytes: int


def normed(M: int, N: int, dtype: str, device: str, *, centered: bool, residual: bool) -> Case:
    sizes = [(M, N), (N,), *([(N,)] if centered else []), *([(M, N)] if residual else [])]
    tensors = [torch.randn(size, device=device).to(DTYPES[dtype]) for size in sizes]

    def apart(x: Any, weight: Any, *others: Any) -> tuple[Any, ...]:
        return x, weight, others[0] if centered else None, others[-1] if residual else None

    def prepared(launch: Any, chained: bool = False) -> Callable[..., Any]:
        forward = norm.prepared(*apart(*tensors), centered=centered, launch=launch, chained=chained)
        return lambda *told: forward(*apart(*told), 1e-5)

    def pytorch(*told: Any) -> Any:
        x, weight, bias, added = apart(*told)
        x = x if added is None else x + added
        y = functional.layer_norm(x, (N,), weight, bias) if centered else functional.rms_norm(x, (N,), weight, 1e-5)
        return y if added is None else (y, x)

    whole = triton.next_power_of_2(N)
    blocks = [whole] if N <= 16384 else []
    blocks += [block for block in (2048, 4096, 8192, 16384) if block < N and N >= 8192]
    launches = [
        norm.Launch(rows, block, warps)
        for block, rows, warps in itertools.product(blocks, (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
        if 8 <= rows * block // (32 * warps) <= 64 and (rows == 1 or (block >= N and rows * block <= 8192))
    ]
    moved = work.norm_forward(M, N, dtype, centered=centered, biased=centered, residual=residual).bytes
    return Case(tensors, prepared, launches, pytorch, moved)


def turned(B: int, S: int, H: int, G: int, D: int, dtype: str, device: str) -> Case:
    q, k = (torch.randn(B, S, n, D, device=device).to(DTYPES[dtype]).transpose(1, 2) for n in (H, G))
    angle = torch.rand(1, S, D // 2, device=device) * 100
    tensors = [q, k, angle.cos(), angle.sin()]
    row = triton.next_power_of_2(D)
    launches = [
        rotary.Launch(rows, warps)
        for rows, warps in itertools.product((8, 16, 32, 64, 128), (1, 2, 4, 8))
        if 8 <= rows * row // (32 * warps) <= 128
    ]
    moved = work.rotary_forward(B, H, G, S, D, D, dtype).bytes

    def prepared(launch: Any, chained: bool = False) -> Callable[..., Any]:
        return rotary.prepared(*tensors, launch)

    return Case(tensors, prepared, launches, rotary_by_pytorch.rotary, moved)


def activated_case(M: int, N: int, dtype: str, device: str, *, name: str) -> Case:
    gated = name == "swiglu"
    x = torch.randn(M, (2 if gated else 1) * N, device=device).to(DTYPES[dtype])

    def prepared(launch: Any, chained: bool = False) -> Callable[..., Any]:
        forward = activation.prepared(x, name, None, launch, chained=chained)
        return lambda x: forward(x, None)

    launches = [
        activation.Launch(1, block, warps)
        for block, warps in itertools.product((512, 1024, 2048, 4096, 8192), (2, 4, 8))
        if 8 <= block // (32 * warps) <= 32
    ]
    moved = work.activation_forward(M * N, dtype, gated=gated).bytes
    return Case([x], prepared, launches, lambda x: activated(x, name), moved)


def case_of(op: str, shape: str, dtype: str, device: str) -> Case:
    sizes = list(map(int, shape.split("x")))
    if op == "rotary":
        return turned(*sizes, dtype, device)
    if op in ("swiglu", "gelu"):
        return activated_case(*sizes, dtype, device, name=op)
    return normed(*sizes, dtype, device, centered="layer" in op, residual="residual" in op)


def variants(op: str, shape: str, dtype: str, device: str = "meta") -> dict[str, Callable[[], Any]]:
    """Return a call of each launch, by name."""
    return launches_of(case_of(op, shape, dtype, device))


def launches_of(case: Case) -> dict[str, Callable[[], Any]]:
    """Return a call of each launch, by name. It is prepared in its first call, which may fail."""

    def call_of(launch: Any) -> Callable[[], Any]:
        made: list[Callable[..., Any]] = []

        def call() -> Any:
            if not made:
                made.append(case.prepared(launch))
            return made[0](*case.tensors)

        return call

    return {"chosen" if launch is None else str(launch): call_of(launch) for launch in (None, *case.launches)}


def chain_of(case: Case, chained: bool) -> Callable[[], Any]:
    """Return a CUDA graph of LINKS launches one after the other, ready to be replayed."""
    forward = case.prepared(None, chained)
    forward(*case.tensors)  # compiles, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [forward(*case.tensors) for _ in range(LINKS)]
    return lambda: (graph.replay(), kept)


def all_of(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def timed(case: Case) -> dict[str, float]:
    """Return variant → µs."""
    expected = all_of(case.pytorch(*(tensor.double() for tensor in case.tensors)))
    compiled = torch.compile(case.pytorch, dynamic=False)
    calls: dict[str, Callable[[], Any]] = {
        "PyTorch": lambda: case.pytorch(*case.tensors),
        "torch.compile": lambda: compiled(*case.tensors),
        **launches_of(case),
    }
    for name, call in list(calls.items()):
        try:
            pairs = zip(all_of(call()), expected, strict=True)
            error = max(float((one.double() - right).norm() / right.norm()) for one, right in pairs)
            fault = None if error <= WRONG else f"wrong, {error:.1e}"
        except Exception as failure:  # only this variant is dropped
            fault = f"{type(failure).__name__}: {failure!s:.100}"
        if fault:
            print(f"  {name}: {fault}", flush=True)
            del calls[name]
    del expected
    first = rounds(calls, 5)
    fixed = [name for name in ("chosen", "PyTorch", "torch.compile") if name in calls]
    best = sorted((name for name in calls if name not in fixed), key=first.__getitem__)[:SHOWN]
    return {name: 1e3 * ms for name, ms in rounds({name: calls[name] for name in (*fixed, *best)}, 30).items()}


def copy_bandwidth() -> float:
    """Return the bandwidth of a large copy in GB/s, read plus written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / rounds({"copy": lambda: target.copy_(source)}, 10)["copy"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(SHAPES))
    parser.add_argument("--shapes", help="shapes for all of these ops (default: several for each op)")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--chains", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cases = [(op, shape) for op in options.ops.split(",") for shape in (options.shapes or SHAPES[op]).split(",")]
    if not options.compile:
        need_gpu(parser)
    if options.chains:
        for op, shape in cases:
            case = case_of(op, shape, options.dtype, "cuda")
            ms = rounds({kind: chain_of(case, kind == "early") for kind in ("after", "early")}, 30)
            times = "  ".join(f"{kind} {1e3 * value / LINKS:.2f} µs" for kind, value in ms.items())
            print(f"{op} {shape}: {times} for each launch", flush=True)
        return
    compile_ahead(variants, [(op, shape, options.dtype) for op, shape in cases])
    if options.compile:
        return
    copy = copy_bandwidth()
    print(f"copy {copy:.0f} GB/s", flush=True)
    results: dict[str, Any] = {"copy": copy}
    for op, shape in cases:
        case = case_of(op, shape, options.dtype, "cuda")
        results[f"{op} {shape}"] = times = timed(case)
        print(f"{op} {shape}: {case.bytes / 2**20:.1f} MiB", flush=True)
        for name, us in sorted(times.items(), key=lambda one: one[1]):
            print(f"  {us:8.1f} µs {case.bytes / us / 1e3 / copy:6.1%}  {name}", flush=True)
        torch.cuda.empty_cache()
        torch.compiler.reset()
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
