"""Compile the kernels for keys in pages, for a GPU that is not here; run by test_compile.py in a process of its own.

    python compile_paged.py CAPABILITY all|some

Prints one JSON line per compiled kernel: what it uses."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import triton
from compile_decode import used
from triton import knobs

from groundspeed.kernels.attention import append, paged
from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.split import GPU, max_rows
from groundspeed.lab.standin import StandIn, set_driver

EVERYTHING = Form(1000, 0, 20.0, True)
"""A window, a soft-cap and sinks."""
SOME = (  # head dim, dtype, heads, queries, page, form
    (128, torch.bfloat16, 8, 1, 64, PLAIN[True]),
    (128, torch.bfloat16, 4, 500, 16, EVERYTHING),
)


def every() -> Iterator[tuple[Any, ...]]:
    for dtype, D in ((torch.bfloat16, 64), (torch.bfloat16, 80), (torch.bfloat16, 128), (torch.bfloat16, 256),
                     (torch.float32, 64), (torch.float32, 128)):  # fmt: skip
        most = max_rows(D, dtype)
        rows = (1, 1), (8, 1), (most, 1), (most // 8, 8), (4, 500)
        for (H, M), page, form in itertools.product(rows, (16, 256), (PLAIN[True], EVERYTHING)):
            yield D, dtype, H, M, page, form


def main() -> None:
    capability, wanted = int(sys.argv[1]), sys.argv[2]
    set_driver(StandIn(capability))
    seen: list[dict[str, Any]] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: seen.append(used(files)))
    gpu = GPU.of(divmod(capability, 10), 132)
    for D, dtype, H, M, page, form in every() if wanted == "all" else SOME:
        seen.clear()
        q, k = (torch.empty(size, dtype=dtype, device="meta") for size in ((2, H, M, D), (131072 // page, 1, page, D)))
        pages, lengths = (torch.empty(size, dtype=torch.int32, device="meta") for size in ((2, 65536 // page), (2,)))
        sinks = torch.empty(H, dtype=dtype, device="meta") if form.sinks else None
        paged.prepared(q, k, k, pages, form, gpu=gpu)(q, k, k, pages, lengths, 1.0, sinks)
        if M < 9:
            append.prepared(q[:, :1], q[:, :1], k, k, pages)(q[:, :1], q[:, :1], k, k, pages, lengths)
        for one in seen:
            print(
                json.dumps({"case": [D, str(dtype), H, M, page, *form], "triton": triton.__version__, **one}),
                flush=True,
            )


if __name__ == "__main__":
    main()
