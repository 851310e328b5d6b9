"""Time launch choices of the decode kernel on this GPU, round-robin with PyTorch's SDPA.

    python tools/tune_decode.py [--shapes 32x8x1x16384,32x32x1x4096] [--head-dim 128] [--dtype bf16] [--out FILE]
    python tools/tune_decode.py --compile      compile every variant for an H200; needs no GPU

A shape is query heads × key heads × queries × keys. Every variant is checked before it is timed, with a cold L2. For
each shape the table has the best variants: their time, the share of the bandwidth of a large copy at which they read K
and V, and how long the device spent in each of the two kernels. This is a tool for choosing `Launch`, not evidence:
claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from side_by_side import rounds, sdpa
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from groundspeed.kernels.attention import decode, relay, split
from groundspeed.kernels.attention.reference import TOLERANCE, attention
from groundspeed.lab.standin import StandIn, set_driver

Launch = split.Launch | relay.Launch
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = "32x8x1x16384,32x32x1x16384,32x8x16x16384,32x8x1x4096,32x8x1x65536,32x4x1x16384,32x32x1x1024"
COPY_BYTES = 1 << 30
MANY_ROWS = 64
PROGRAMS = (1, 2, 3, 4)
"""Programs per multiprocessor."""


def copy_bandwidth() -> float:
    """Return the bandwidth of a large copy in GB/s, read plus written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / rounds({"copy": lambda: target.copy_(source)}, 10)["copy"] / 1e6


def variants(G: int, keys: int, rows: int, row_bytes: int, gpu: split.GPU) -> Iterator[Launch]:
    """Yield the launch that is chosen now, and those that might be better; with many rows also relays."""
    yield split.Launch.choose(G, keys, rows, row_bytes, gpu)
    for block_n, warps, stages, programs in itertools.product((32, 64, 128), (4, 8), (2, 3, 4), PROGRAMS):
        splits = min(programs * gpu.multiprocessors // G, keys // max(split.MIN_KEYS, 20 * rows))
        if splits >= 1 and programs * stages * 2 * block_n * row_bytes <= gpu.shared_bytes:
            yield split.Launch(splits, block_n, warps, stages)
    if rows < MANY_ROWS:
        return
    for tile, splits, block_n, warps, stages in itertools.product(
        (16, 32, 64), (2, 3, 4, 6, 8), (64, 128), (4, 8), (2, 3)
    ):
        if stages * 2 * block_n * row_bytes <= gpu.shared_bytes // 2 and 128 * splits <= keys:
            yield relay.Launch(splits, tile, block_n, warps, stages)


def prepared(q: Any, k: Any, v: Any, launch: Launch, gpu: split.GPU | None = None) -> decode.Forward:
    if isinstance(launch, relay.Launch):
        return relay.prepared(q, k, v, True, launch)
    return decode.prepared(q, k, v, True, launch, gpu)


def name_of(launch: Launch) -> str:
    """Return a name such as `33 splits, n64 w4 s3` or `relay of 4 splits, r32 n64 w4 s3`."""
    if isinstance(launch, relay.Launch):
        shape = f"r{launch.rows} n{launch.block_n} w{launch.num_warps} s{launch.num_stages}"
        return f"relay of {launch.splits} splits, {shape}"
    return f"{launch.splits} splits, n{launch.block_n} w{launch.num_warps} s{launch.num_stages}"


def some(like: str, *shape: Any) -> list[Launch]:
    """Return the launch that is chosen now, and the variants whose names match."""
    first, *others = dict.fromkeys(variants(*shape))
    return [first, *(launch for launch in others if any(fnmatch(name_of(launch), one) for one in like.split(";")))]


def kernels_us(call: Any) -> str:
    """Return the µs of each kernel by the profiler, as in `14.2 + 2.1`."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda event: -event.device_time)
    return " + ".join(f"{event.device_time:.1f}" for event in found if "attention" in event.key)


def aligned_to_the_end(q: Any, k: Any, v: Any) -> Any:
    """Return a call of PyTorch's flash kernel with the mask under which the last query sees every key."""
    mask = causal_lower_right(q.shape[2], k.shape[2])

    def call() -> Any:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return call


def compile_all(H: int, G: int, M: int, N: int, D: int, dtype: str, like: str) -> int:
    """Compile every variant for an H200, and return how many there are."""
    q, k = (torch.empty(1, heads, n, D, dtype=DTYPES[dtype]) for heads, n in ((H, M), (G, N)))
    gpu = split.GPU.of((9, 0), 132)
    launches = some(like, G, N, M * (H // G), D * q.element_size(), gpu)
    for launch in launches:
        prepared(q, k, k, launch, gpu)(q, k, k, 1.0)
    return len(launches)


def shape_result(H: int, G: int, M: int, N: int, D: int, dtype: str, like: str) -> tuple[dict[str, float], str]:
    """Return variant → µs, and the µs of the kernels of the best one."""
    q = torch.randn(1, H, M, D, device="cuda").to(DTYPES[dtype])
    k, v = (torch.randn(1, G, N, D, device="cuda").to(DTYPES[dtype]) for _ in range(2))
    expected = attention(q, k, v, causal=True)
    calls: dict[str, Any] = {}
    for launch in some(like, G, N, M * (H // G), D * q.element_size(), split.gpu_of(q.device)):
        name = name_of(launch)
        forward = prepared(q, k, v, launch)

        def call(forward: decode.Forward = forward) -> Any:
            return forward(q, k, v, D**-0.5)[0]

        try:
            error = call().reshape(-1, D).double() - expected
        except Exception as problem:
            print(f"  {name}: {str(problem).splitlines()[0][:80]}", flush=True)
            continue
        relative = float(error.square().mean().sqrt() / expected.square().mean().sqrt())
        if relative <= TOLERANCE[dtype].rms_rel:
            calls[name] = call
        else:
            print(f"  {name}: wrong, {relative:.1e}", flush=True)
    group = [x.repeat_interleave(H // G, 1) for x in (k, v)]
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        name = f"sdpa {backend.name.split('_')[0].lower()}, keys repeated"
        if M == 1:
            calls[name] = sdpa(backend, q, *group, False)
        elif backend is SDPBackend.FLASH_ATTENTION:
            calls[name] = aligned_to_the_end(q, *group)
    best = rounds(calls, 7)
    few = dict(sorted(calls.items(), key=lambda one: best[one[0]])[:8])
    chosen = next(iter(calls))
    times = rounds({chosen: calls[chosen], **few}, 40)
    first = min(times, key=lambda name: times[name])
    return {name: 1e3 * ms for name, ms in times.items()}, kernels_us(calls[first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--like", default="*", help="only variants whose name matches one of these: '*w4 s3;*w8*'")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.compile:
        set_driver(StandIn(90))
        for shape in options.shapes.split(","):
            H, G, M, N = map(int, shape.split("x"))
            print(shape, compile_all(H, G, M, N, options.head_dim, options.dtype, options.like), "variants", flush=True)
        return
    copy = copy_bandwidth()
    print(f"copy {copy:.0f} GB/s", flush=True)
    results: dict[str, Any] = {"copy": copy}
    for shape in options.shapes.split(","):
        H, G, M, N = map(int, shape.split("x"))
        times, kernels = shape_result(H, G, M, N, options.head_dim, options.dtype, options.like)
        read = 2 * G * N * options.head_dim * DTYPES[options.dtype].itemsize
        print(f"{shape}: {read / 2**20:.0f} MiB, kernels of the best {kernels} µs", flush=True)
        for name, us in sorted(times.items(), key=lambda one: one[1]):
            chosen = " (chosen)" if name == next(iter(times)) else ""
            print(f"  {us:7.1f} µs {read / us / 1e3 / copy:6.1%}  {name}{chosen}", flush=True)
        results[shape] = times
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
