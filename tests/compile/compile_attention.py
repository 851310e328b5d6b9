"""Compile the portable attention kernel for a GPU that is not here; run by test_compile.py in a process of its own.

    python compile_attention.py CAPABILITY all|some

Prints one JSON line per configuration: what the compiled kernel uses and which instructions it has. Another Triton than
the installed one is tried with its folder (pip install --no-deps --target FOLDER triton==VERSION) on PYTHONPATH."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import halves
import torch
import triton

from groundspeed.kernels.attention.form import PLAIN
from groundspeed.lab.standin import StandIn, set_driver

GRID = {  # head dims, causal
    torch.bfloat16: ((16, 40, 64, 72, 80, 96, 128, 192, 256), True),
    torch.float32: ((16, 40, 64, 128, 256), True),
    torch.float16: ((64, 128, 256), False),
}
"""Every padded size, with and without padding, and 40 and 72, whose alignment Triton has to be told. FP16 differs from
BF16 in the type of the product alone, so it takes fewer, and the other mask."""
ELSEWHERE = {torch.bfloat16: ((16, 72, 128, 256), True), torch.float32: ((40, 256), True)}
"""On architectures other than that on which tiles were chosen, and with the newer Triton."""


def compiled(
    D: int, dtype: torch.dtype, queries: int, causal: bool, capability: int, packed: bool = False, V: int = 0
) -> dict[str, Any]:
    """`V`: dimension of the values, where it is another."""
    from groundspeed.kernels.attention import triton as portable

    launch = portable.Launch.choose(queries, D, dtype, divmod(capability, 10), packed=packed)
    q = torch.empty(2, 2, 512, D, dtype=dtype)
    v = torch.empty(2, 2, 512, V or D, dtype=dtype)
    lse = torch.empty(2, 2, 512) if packed or dtype == torch.float16 else None  # as most calls have none
    bounds = (*2 * [torch.zeros(3, dtype=torch.int32)], 1024) if packed else (None, None, None)
    constants = portable._constants(q, q, v, PLAIN[causal], launch, packed=packed)
    kernel = portable.attention_forward_kernel.warmup(
        q, q, v, v, lse, None, *q.stride(), *q.stride(), *v.stride(), 2, 1, 512, 512, D, V or None, -1, 0, 1.0, 0.0,
        *bounds,
        **constants, **launch.options, grid=(1,),
    )  # fmt: skip
    halves.check(ptx := kernel.asm["ptx"])
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        "D": D,
        "dtype": str(dtype),
        "queries": queries,
        "causal": causal,
        "triton": triton.__version__,
        "shared": kernel.metadata.shared,
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),  # type: ignore[index]
        "stack": int(re.search(r"STACK:(\d+)", usage)[1]),  # type: ignore[index]
        "instructions": sorted(name for name in ("wgmma", "mma.sync", "cp.async") if name in ptx),
    }


if __name__ == "__main__":
    target = int(sys.argv[1])
    set_driver(StandIn(target))
    for dtype, (head_dims, causal) in (GRID if sys.argv[2] == "all" else ELSEWHERE).items():
        for D in head_dims:
            for queries in (4096, 1):
                print(json.dumps(compiled(D, dtype, queries, causal, capability=target)), flush=True)
    for D in (64, 128, 256):
        print(json.dumps(compiled(D, torch.bfloat16, 4096, True, target, packed=True)), flush=True)
    print(json.dumps(compiled(192, torch.bfloat16, 4096, True, target, V=128)), flush=True)
