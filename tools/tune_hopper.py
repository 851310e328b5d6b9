"""Time launch choices of the Hopper attention kernel on this GPU, round-robin with cuDNN.

    python tools/tune_hopper.py [--head-dims 64,128,256] [--sizes 512,4096] [--dtype bf16] [--out FILE]
    python tools/tune_hopper.py --compile      without a GPU: compile every variant, and say what it needs

Every variant is checked before it is timed, in a process that may hang. The table has, for each shape, the best
variants with their TFLOP/s and the ratio to cuDNN. A tool for choosing `Launch`, not evidence: claims come from
`groundspeed run`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from side_by_side import rounds, sdpa
from torch.nn.attention import SDPBackend

from groundspeed.kernels.attention.form import PLAIN
from groundspeed.kernels.attention.hopper import launch as hopper
from groundspeed.kernels.attention.hopper.choice import TABLE, Launch
from groundspeed.kernels.attention.reference import TOLERANCE, attention

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
HANGS_S = 60


def variants(D: int, causal: bool) -> list[Launch]:
    """What might be best; the choices that are made now are among them."""
    found = [line.launch for line in TABLE if line.head_dim == D and causal in line.causal]
    if D == 256:
        found += [Launch(2, 64, 2, 3, True, *flags, False, True, lazy, True) for flags, lazy in _pairs()]
        found += [Launch(2, 64, 2, 2, False, False, ordered, False, True, True, True) for ordered in (False, True)]
    if D < 256:
        blocks = (64, 128) if D == 64 else (64,)
        found += [
            Launch(1, n, 2, 3, True, False, ordered, False, True, lazy) for n in blocks for ordered, lazy in _two()
        ]
    if D == 128:
        found += [Launch(2, 128, 2, 6, True, *flags, False, True, lazy) for flags, lazy in _pairs()]
        found += [Launch(2, 128, 2, 4, True, *flags, False, True, True, split) for flags, split in _pairs()]
        found += [Launch(2, 128, 2, 4, True, flat, False, True, True, False, split) for flat, split in _two()]
    if D == 64:
        found += [Launch(2, 128, 4, 8, True, *flags, False, True, lazy) for flags, lazy in _pairs()]
        found += [Launch(2, 128, 4, 8, True, flat, False, True, True) for flat in (False, True)]
        found += [Launch(2, 128, 2, 4, True, *flags, False, sums) for flags, sums in _pairs()]
        found += [Launch(3, 128, 2, 6, True, flat, False, True, False, lazy) for flat, lazy in _two()]
        found += [Launch(3, 128, 3, 6, True, False, False, True), Launch(3, 128, 2, 9, True, False, False, True)]
    return list(dict.fromkeys(found))


def _two() -> list[tuple[bool, bool]]:
    return list(itertools.product((False, True), repeat=2))


def _pairs() -> list[tuple[tuple[bool, bool], bool]]:
    """(flat, ordered) and one more."""
    return list(itertools.product(_two(), (False, True)))


def name_of(launch: Launch) -> str:
    """`c3 n128 s2 p6 turns lazy`"""
    numbers = f"c{launch.consumers} n{launch.block_n} s{launch.stages} p{launch.places}"
    flags = [f.name for f in fields(launch) if f.type == "bool" and getattr(launch, f.name)]
    return " ".join([numbers, *flags])


def compiled(D: int, causal: bool, launch: Launch, dtype: str) -> dict[str, Any]:
    """What a variant needs, for an odd length."""
    _compiled(D, causal, launch, dtype, 2048)
    return _compiled(D, causal, launch, dtype, 2000)


def _compiled(D: int, causal: bool, launch: Launch, dtype: str, S: int) -> dict[str, Any]:
    q = torch.empty(2, 2, S, D, dtype=DTYPES[dtype])
    lse = torch.empty(2, 2, S)
    arguments, options, _ = hopper.described(q, q, q, q, lse, form=PLAIN[causal], scale=1.0, launch=launch)
    kernel = hopper.attention_forward_hopper.warmup(*arguments, **options, grid=(1,))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    stack = re.search(r"STACK:(\d+)", usage)
    return {"shared": kernel.metadata.shared, "stack": int(stack[1]) if stack else -1}


def checked(D: int, causal: bool, launch: Launch, dtype: str) -> str:
    """`ok`, or how wrong it is: several tiles for some programs, and an odd length."""
    for B, S in ((8, 2048), (2, 1000)):
        q, k, v = (torch.randn(B, 8, S, D, device="cuda").to(DTYPES[dtype]) for _ in range(3))
        rows = torch.randint(0, B * 8 * S, (64,))
        expected = attention(q, k, v, causal=causal, rows=rows)
        out = hopper.forward(q, k, v, form=PLAIN[causal], scale=D**-0.5, launch=launch)[0]
        error = out.view(-1, D)[rows.cuda()].double() - expected
        relative = float(error.square().mean().sqrt() / expected.square().mean().sqrt())
        if not relative <= TOLERANCE[dtype].rms_rel:
            return f"wrong at S={S}: {relative:.1e}"
    return "ok"


def in_processes(what: str, jobs: Iterable[tuple[int, bool, Launch, str]], at_once: int) -> dict[Any, Any]:
    """Each job in a process of its own, which may die or hang."""

    def one(job: tuple[int, bool, Launch, str]) -> tuple[Any, Any]:
        D, causal, launch, dtype = job
        text = json.dumps([what, D, causal, asdict(launch), dtype])
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--job", text], capture_output=True, text=True, timeout=HANGS_S
            )
            return job, json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()[-300:]
        except subprocess.TimeoutExpired:
            return job, "hangs"

    with ThreadPoolExecutor(at_once) as pool:
        return dict(pool.map(one, jobs))


def timed(
    D: int, S: int, causal: bool, dtype: str, launches: Iterable[Launch], rivals: dict[str, Any]
) -> dict[str, Any]:
    """TFLOP/s of each variant and rival."""
    B, H = max(1, 16384 // S), 2048 // D
    q, k, v = (torch.randn(B, H, S, D, device="cuda").to(DTYPES[dtype]) for _ in range(3))
    o, lse = torch.empty_like(q), torch.empty(B, H, S, device="cuda")
    calls = {name: make(q, k, v, causal) for name, make in rivals.items()}
    for launch in launches:
        arguments, options, grid = hopper.described(q, k, v, o, lse, form=PLAIN[causal], scale=D**-0.5, launch=launch)
        calls[name_of(launch)] = lambda a=arguments, o=options, g=grid: hopper.attention_forward_hopper[g](*a, **o)
    for call in calls.values():
        call()
    first = rounds(calls, 2)
    ms = rounds(calls, max(5, min(30, int(250 / sum(first.values())))))
    flops = 4 * B * H * S * S * D * (0.5 if causal else 1)
    return {name: flops / value / 1e9 for name, value in ms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", default="64,128,256")
    parser.add_argument("--sizes", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        what, D, causal, launch, dtype = json.loads(options.job)
        if what == "compiled" and not torch.cuda.is_available():
            from groundspeed.lab.standin import StandIn, set_driver

            set_driver(StandIn(90))
        print(json.dumps({"compiled": compiled, "checked": checked}[what](D, causal, Launch(**launch), dtype)))
        return
    began = time.time()
    dims, sizes = ([int(x) for x in text.split(",")] for text in (options.head_dims, options.sizes))
    jobs = [(D, c, launch, options.dtype) for D in dims for c in (False, True) for launch in variants(D, c)]
    results: dict[str, Any] = {}
    found = in_processes("compiled" if options.compile else "checked", jobs, options.at_once)
    for (D, causal, launch, _), result in found.items():
        if options.compile or result != "ok":
            print(f"D{D} {'causal' if causal else 'full':6} {name_of(launch)}: {result}", flush=True)
    print(f"{len(found)} variants in {time.time() - began:.0f} s", flush=True)
    if options.compile:
        return
    for D, causal, S in itertools.product(dims, (False, True), sizes):
        launches = [job[2] for job, result in found.items() if job[:2] == (D, causal) and result == "ok"]
        rates = timed(D, S, causal, options.dtype, launches, {"cudnn": partial(sdpa, SDPBackend.CUDNN_ATTENTION)})
        results[f"{D} {S} {'causal' if causal else 'full'}"] = rates
        best = sorted(((rate, name) for name, rate in rates.items() if name != "cudnn"), reverse=True)
        chosen = name_of(Launch.choose(S, S, D, PLAIN[causal]))
        shown = "  ".join(f"{name} {rate:.0f}" for rate, name in best[:4])
        head = (
            f"D{D} S{S} {'causal' if causal else 'full':6} cudnn {rates['cudnn']:.0f} chosen {rates.get(chosen, 0):.0f}"
        )
        print(f"{head} best {best[0][0] / rates['cudnn']:.2f}x: {shown}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
