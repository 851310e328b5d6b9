"""Compile the kernels for a few rows as they are launched, for GPUs that are not here; run by test_compile.py in a
process of its own.

    python compile_linear.py CAPABILITY

Prints one JSON line per compiled kernel: what it uses."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from compile_rows import Here, empty, what_is_used
from triton import knobs

from groundspeed.kernels.linear import qkv
from groundspeed.kernels.linear import triton as linear
from groundspeed.kernels.linear.form import Norm, Pages
from groundspeed.lab.standin import set_driver


def calls(hopper: bool) -> dict[str, Callable[[], Any]]:
    """As models of 768 to 4,096 columns launch them; with the most that there may be of everything."""
    layer, short = (Norm(empty(K), empty(K), 1e-5, True) for K in (4096, 1024))

    def product(M: int, N: int, K: int, *, gated: bool = False, residual: bool = False, **asked: Any) -> None:
        weight = empty(2 * N if gated else N, K)
        linear.forward(
            empty(M, K),
            weight,
            empty(len(weight)),
            residual=empty(M, N) if residual else None,
            chained=hopper,
            roomy=hopper,
            **asked,
        )

    def queries(B: int, H: int, G: int, D: int, K: int, norm: Norm | None, turned: bool) -> None:
        x, weight, angle = empty(B, K), empty((H + 2 * G) * D, K), empty(B, 1, D // 2, dtype=torch.float32)
        made, angles = empty(8, G, 64, D), (angle, angle) if turned else None
        pages = Pages(made, made, empty(B, 8, dtype=torch.int32), empty(B, dtype=torch.int32))
        run = qkv.prepared(x, weight, norm, angles, pages, H, chained=hopper, roomy=hopper)
        run(x, weight, empty(len(weight)), norm, angles, pages)

    return {
        "residual": lambda: product(1, 4096, 16384, residual=True),
        "normed, gelu": lambda: product(8, 4096, 1024, norm=short, activation="gelu"),
        **{f"normed, {M} × 6144": lambda M=M: product(M, 6144, 1024, norm=short) for M in (2, 8, 16)},
        "wide swiglu": lambda: product(16, 14336, 4096, gated=True, activation="swiglu"),
        "swiglu of 32 rows": lambda: product(32, 14336, 4096, gated=True, activation="swiglu"),
        "swiglu of many rows": lambda: product(64, 14336, 4096, gated=True, activation="swiglu"),
        "wide": lambda: product(8, 16384, 4096, activation="gelu"),
        "wide, normed": lambda: product(8, 16384, 4096, norm=layer, activation="gelu"),
        "128 rows, up": lambda: product(128, 3072, 768, activation="gelu"),
        "128 rows, down": lambda: product(128, 768, 3072, residual=True),
        "128 rows, queries, keys, values": lambda: queries(128, 12, 12, 64, 768, None, True),
        "narrow": lambda: product(1, 768, 3072, residual=True),
        "many rows": lambda: product(64, 11008, 4096),
        "odd": lambda: product(3, 1001, 1001, residual=True),
        "queries, keys, values of a wide model": lambda: queries(8, 40, 40, 128, 5120, None, False),
        "the same of others, normed": lambda: queries(8, 32, 32, 64, 1024, short, False),
        "queries, keys, values": lambda: queries(8, 32, 8, 128, 4096, layer, True),
        "the same of many rows": lambda: queries(64, 12, 12, 64, 768, None, False),
    }


MARKS = [r"prefetch\.global\.L2", r"griddepcontrol\.launch", r"griddepcontrol\.wait", r"\bld\.global|cp\.async\.c"]
"""What must come one after the other: nothing is read before the kernel has waited, but for what is only asked for."""


def seen_in(ptx: str) -> dict[str, Any]:
    loop = loop_of(ptx)
    places = [found.start() if (found := re.search(mark, ptx)) else -1 for mark in MARKS]
    return {
        "copies in the loop": len(re.findall(r"cp\.async\.cg\S* \[.*?\], \[.*?\], 0x10", loop)),
        "loads in the loop": len(re.findall(r"\bld\.global", loop)),
        "rounded in the loop": len(re.findall(r"\bcvt\.rn\.bf16x2\.f32", loop)),
        "places": places,
        "loads behind the loop": len(re.findall(r"\bld\.global", ptx[ptx.index(loop) + len(loop) :])),
        "products": [kind for kind in ("wgmma.mma_async", "mma.sync") if kind in loop],
    }


def loop_of(ptx: str) -> str:
    """The shortest stretch that ends with a jump back to its beginning, and has a product."""
    found = []
    for label in re.finditer(r"^(\$L__BB\d+_\d+):", ptx, re.MULTILINE):
        for jump in re.finditer(rf"bra(?:\.uni)?\s+{re.escape(label[1])};", ptx[label.end() :]):
            found.append(ptx[label.end() : label.end() + jump.start()])
    return min((body for body in found if "mma" in body), key=len)


def main(capability: int) -> None:
    seen: list[dict[str, Any]] = []

    def loaded(module: Any, function: Any, name: str, files: dict[str, str], key: Any) -> None:
        ptx = next(Path(path) for file, path in files.items() if file.endswith(".ptx")).read_text()
        seen.append(what_is_used(files) | seen_in(ptx))

    knobs.runtime.kernel_load_end_hook.add(loaded)
    set_driver(Here(capability))
    for name, call in calls(capability >= 90).items():
        seen.clear()
        call()
        for one in seen:
            print(json.dumps({"case": name, **one}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
