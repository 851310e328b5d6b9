"""Time launch choices of the Hopper attention kernel on this GPU, round-robin with cuDNN.

    python tools/tune_hopper.py [--head-dims 64,128,256] [--sizes 512,4096] [--dtype bf16] [--out FILE]
    python tools/tune_hopper.py --forms window:1024,band:4096,softcap:50,packed,packed-causal
    python tools/tune_hopper.py --head-dims 192 --value-dim 128 --like '*ordered*lazy*'
    python tools/tune_hopper.py --compile      compile every variant, and say what it needs; needs no GPU

Forms: full, causal, a causal window of so many keys, a band of so many keys on both sides, a soft-cap under a causal
mask, and packed sequences from an eighth of a size to all of it. cuDNN is called for full and causal only; the other
forms are compared with our own dense kernel on as many tokens, full or causal. Every variant is checked before it is
timed, in a subprocess that may hang. For each shape the table has the best variants with their TFLOP/s on the work
actually done, and the ratio to cuDNN or to the dense kernel. This is a tool for choosing `Launch`, not evidence: claims
come from `groundspeed run`."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from side_by_side import rounds, sdpa
from torch.nn.attention import SDPBackend

from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper import launch as hopper
from groundspeed.kernels.attention.hopper.choice import CAPPED, TABLE, WINDOWS, Launch
from groundspeed.kernels.attention.reference import TOLERANCE, attention
from groundspeed.kernels.work import attention_forward

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
HANGS_S = 60


class Kind(NamedTuple):
    """A form of attention by its name: `full`, `window:1024`, `packed-causal`."""

    name: str

    @property
    def packed(self) -> bool:
        return self.name.startswith("packed")

    @property
    def form(self) -> Form:
        what, _, number = self.name.partition(":")
        if what == "window":
            return Form(left=int(number), right=0)
        if what == "band":
            return Form(left=int(number), right=int(number))
        if what == "softcap":
            return Form(right=0, softcap=float(number))
        return PLAIN[what in ("causal", "packed-causal")]

    def lengths(self, S: int) -> list[int]:
        """Return lengths of sequences with 16,384 tokens in total, or one sequence of more."""
        parts = [S, 3 * S // 4 + 1, S // 2, S // 3 + 5, S // 8 + 1] if self.packed else [S]
        found: list[int] = []
        while (left := max(S, 16384) - sum(found)) > 0:
            found.append(min(left, parts[len(found) % len(parts)]))
        return found


def variants(D: int, V: int, kind: Kind) -> list[Launch]:
    """Return launches that might be best, including those that are chosen now."""
    causal = kind.form.right >= 0
    odd = D
    D = next(line.head_dim for line in TABLE if line.head_dim >= D)
    found = [line.launch for line in (*TABLE, *WINDOWS, *CAPPED) if line.head_dim == D and causal in line.causal]
    if 128 < odd <= 192:  # there is shared memory for more
        found += [Launch(2, 64, 3, 3, True, *flags, False, True, lazy, True) for flags, lazy in _pairs()]
    if 128 < odd <= 192 and V <= 128 and not kind.packed:
        found += [Launch(2, 128, 2, 2, False, False, ordered, False, True, lazy, True) for ordered, lazy in _two()]
    if 64 < odd <= 80:  # 16 bytes of spills
        found += [Launch(3, 128, 2, 6, True, False, False, turns, False, lazy) for turns, lazy in _two()]
    if 64 < odd <= 96:
        found += [Launch(2, 128, 3, 4, True, *flags, False, True, True, split) for flags, split in _pairs()]
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
    if not kind.packed and kind.name != "full":
        found += [replace(launch, balanced=True) for launch in found if launch.persistent]
    return list(dict.fromkeys(found))


def _two() -> list[tuple[bool, bool]]:
    return list(itertools.product((False, True), repeat=2))


def _pairs() -> list[tuple[tuple[bool, bool], bool]]:
    """Return all values of (flat, ordered) with one more flag."""
    return list(itertools.product(_two(), (False, True)))


def name_of(launch: Launch) -> str:
    """Return a name such as `c3 n128 s2 p6 turns lazy`."""
    numbers = f"c{launch.consumers} n{launch.block_n} s{launch.stages} p{launch.places}"
    flags = [f.name for f in fields(launch) if f.type == "bool" and getattr(launch, f.name)]
    return " ".join([numbers, *flags])


def compiled(D: int, V: int, kind: Kind, launch: Launch, dtype: str) -> dict[str, Any]:
    """Compile a variant for an even and an odd length, and return what it needs for the odd one."""
    _compiled(D, V, kind, launch, dtype, 2048)
    return _compiled(D, V, kind, launch, dtype, 2000)


def _compiled(D: int, V: int, kind: Kind, launch: Launch, dtype: str, S: int) -> dict[str, Any]:
    q, v = (torch.empty(2, 2, S, n, dtype=DTYPES[dtype]) for n in (D, V))
    lse = torch.empty(2, 2, S)
    if kind.packed:
        q, v, tiles = q.view(2 * S, 2, D), v.view(2 * S, 2, V), torch.empty(80, dtype=torch.int32)
        call = hopper.Call.of_packed(q, q, v, v, 2, kind.form, launch, S)
        arguments = *hopper.described_packed(call, q, q, v, v), lse, 1.0, *call.numbers, None, tiles
        options = {**call.constants, **launch.options}
    else:
        arguments, options, _ = hopper.described(q, q, v, v, lse, form=kind.form, scale=1.0, launch=launch)
    kernel = hopper.attention_forward_hopper.warmup(*arguments, **options, grid=(1,))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    stack = re.search(r"STACK:(\d+)", usage)
    return {"shared": kernel.metadata.shared, "stack": int(stack[1]) if stack else -1}


def call_of(kind: Kind, q: Any, k: Any, v: Any, S: int, launch: Launch | None = None) -> Callable[[], Any]:
    """Return a call on tensors [B, H, S, D], or [total, H, D] if they are packed."""
    scale = q.shape[-1] ** -0.5
    if not kind.packed:
        forward = hopper.prepared(q, k, v, kind.form, launch)  # counting tiles takes longer than a short launch
        return lambda: forward(q, k, v, scale)
    cu = torch.tensor([0, *itertools.accumulate(kind.lengths(S))], dtype=torch.int32, device="cuda")
    return lambda: hopper.packed_forward(q, k, v, cu, cu, S, form=kind.form, scale=scale, launch=launch)


def tensors(kind: Kind, B: int, H: int, S: int, D: int, V: int, dtype: str) -> list[Any]:
    shape = (sum(kind.lengths(S)), H) if kind.packed else (B, H, S)
    return [torch.randn(*shape, n, device="cuda").to(DTYPES[dtype]) for n in (D, D, V)]


def checked(D: int, V: int, kind: Kind, launch: Launch, dtype: str) -> str:
    """Return `ok` or how wrong a variant is, on several tiles per program and on an odd length."""
    form = kind.form
    asked = {
        "causal": form.right == 0,
        "window_size": (form.left, form.right if form.right > 0 else -1),
        "softcap": form.softcap,
    }
    beyond = [(1, form.left + 1000)] if form.left >= 1000 else []  # long enough that the window hides keys
    for B, S in ((8, 2048), (2, 1000), *beyond):
        q, k, v = tensors(kind, B, 8, S, D, V, dtype)
        out = call_of(kind, q, k, v, S, launch)()[0]
        ends = [0, *itertools.accumulate(kind.lengths(S))] if kind.packed else []
        for a, b in itertools.pairwise(ends) if kind.packed else [(0, 0)]:
            one = [x[a:b].transpose(0, 1)[None] if kind.packed else x for x in (q, k, v, out)]
            rows = torch.randint(0, one[0].numel() // D, (64,))
            expected = attention(*one[:3], **asked, rows=rows)
            error = one[3].reshape(-1, V)[rows.cuda()].double() - expected
            relative = float(error.square().mean().sqrt() / expected.square().mean().sqrt())
            if not relative <= TOLERANCE[dtype].rms_rel:
                return f"wrong at S={S}, rows {a} to {b}: {relative:.1e}"
    return "ok"


Job = tuple[int, int, Kind, Launch, str]


def in_processes(what: str, jobs: Iterable[Job], at_once: int) -> dict[Any, Any]:
    """Run each job in a subprocess of its own, which may die or hang."""

    def one(job: Job) -> tuple[Any, Any]:
        D, V, kind, launch, dtype = job
        text = json.dumps([what, D, V, kind.name, asdict(launch), dtype])
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--job", text], capture_output=True, text=True, timeout=HANGS_S
            )
            return job, json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()[-300:]
        except subprocess.TimeoutExpired:
            return job, "hangs"

    with ThreadPoolExecutor(at_once) as pool:
        return dict(pool.map(one, jobs))


def timed(D: int, V: int, S: int, kind: Kind, dtype: str, launches: Iterable[Launch]) -> dict[str, Any]:
    """Return the TFLOP/s of each variant, and of cuDNN for full and causal or of our dense kernel for other forms."""
    B, H = max(1, 16384 // S), 2048 // D
    form = kind.form
    q, k, v = tensors(kind, B, H, S, D, V, dtype)
    calls = {name_of(launch): call_of(kind, q, k, v, S, launch) for launch in launches}
    work = dict.fromkeys(calls, 0)
    seen = form.left if form.left >= 0 else None
    for length in kind.lengths(S) if kind.packed else [S] * B:
        for name in work:
            work[name] += attention_forward(1, H, length, D, dtype, form.right == 0, window=seen, value_dim=V).flops
    dense, causal = tensors(Kind("full"), B, H, S, D, V, dtype), form.right == 0
    if kind.name in ("full", "causal"):
        calls["cudnn"] = sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, causal)
    else:
        calls["dense"] = call_of(Kind("causal" if causal else "full"), *dense, S)
    work["cudnn"] = work["dense"] = attention_forward(B, H, S, D, dtype, causal, value_dim=V).flops
    for call in calls.values():
        call()
    first = rounds(calls, 2)
    ms = rounds(calls, max(5, min(30, int(250 / sum(first.values())))))
    return {name: work[name] / value / 1e9 for name, value in ms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", default="64,128,256")
    parser.add_argument("--value-dim", type=int, help="dimension of the values, if it is not the head dimension")
    parser.add_argument("--sizes", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--forms", default="full,causal")
    parser.add_argument("--like", default="*", help="only variants whose name matches one of these: 'c3*,*ordered*'")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        what, D, V, name, launch, dtype = json.loads(options.job)
        if what == "compiled" and not torch.cuda.is_available():
            from groundspeed.lab.standin import StandIn, set_driver

            set_driver(StandIn(90))
        print(json.dumps({"compiled": compiled, "checked": checked}[what](D, V, Kind(name), Launch(**launch), dtype)))
        return
    began = time.time()
    dims, sizes = ([int(x) for x in text.split(",")] for text in (options.head_dims, options.sizes))
    kinds = [Kind(name) for name in options.forms.split(",")]
    sides = [(D, options.value_dim or D) for D in dims]
    jobs = [
        (D, V, kind, each, options.dtype)
        for D, V in sides
        for kind in kinds
        for each in variants(D, V, kind)
        if any(fnmatch.fnmatch(name_of(each), pattern) for pattern in options.like.split(","))
    ]
    results: dict[str, Any] = {}
    found = in_processes("compiled" if options.compile else "checked", jobs, options.at_once)
    for (D, _, kind, launch, _), result in found.items():
        if options.compile or result != "ok":
            print(f"D{D} {kind.name:6} {name_of(launch)}: {result}", flush=True)
    print(f"{len(found)} variants in {time.time() - began:.0f} s", flush=True)
    if options.compile:
        return
    for (D, V), kind, S in itertools.product(sides, kinds, sizes):
        launches = [job[3] for job, result in found.items() if job[:3] == (D, V, kind) and result == "ok"]
        rates = timed(D, V, S, kind, options.dtype, launches)
        results[f"{D} {S} {kind.name}"] = rates
        (rival,) = {"cudnn", "dense"} & {*rates}
        best = sorted(((rate, name) for name, rate in rates.items() if name != rival), reverse=True)
        chosen = name_of(Launch.choose(S, S, D, kind.form, value_dim=V, packed=kind.packed))
        shown = "  ".join(f"{name} {rate:.0f}" for rate, name in best[:4])
        head = f"D{D} S{S} {kind.name:6} {rival} {rates[rival]:.0f} chosen {rates.get(chosen, 0):.0f}"
        print(f"{head} best {best[0][0] / rates[rival]:.2f}x: {shown}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
