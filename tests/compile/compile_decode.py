"""Compile the kernels for a few queries, for a GPU that is not here; run by test_compile.py in a process of its own.

    python compile_decode.py CAPABILITY all|some

Prints one JSON line per compiled kernel: what it uses."""

from __future__ import annotations

import itertools
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
from triton import knobs

from groundspeed.kernels.attention import decode, relay
from groundspeed.lab.standin import StandIn, set_driver


def used(files: dict[str, str]) -> dict[str, Any]:
    cubin = next(path for file, path in files.items() if file.endswith(".cubin"))
    metadata = json.loads(Path(next(path for file, path in files.items() if file.endswith(".json"))).read_text())
    ptx = Path(next(path for file, path in files.items() if file.endswith(".ptx"))).read_text()
    halves.check(ptx)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(Path(cubin).read_bytes())
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        "kernel": metadata["name"],
        "shared": metadata["shared"],
        "stack": int(re.search(r"STACK:(\d+)", usage)[1]),  # type: ignore[index]
        "chained": "griddepcontrol.wait" in ptx,
        "lets start": "griddepcontrol.launch_dependents" in ptx,
        "in stages": "cp.async" in ptx,
        "handed on": handed_on(ptx) if "relay" in metadata["name"] else None,
    }


def handed_on(ptx: str) -> list[str]:
    """What splits hand on, from the wait for the flag to the flag: `acquire`, `bar`, `load`, `store` and `release` in
    the order of the code. Loads and stores that L1 might serve are told in full."""
    names = {"acquire": "acquire", "release": "release", "bar.sync": "bar", "ld.global.cg": "load"}
    names["st.global.cg"] = "store"
    lines = re.findall(r"\S*acquire\S*|\S*release\S*|bar\.sync|ld\.global\S*|st\.global\S*", ptx)
    told = [next((name for part, name in names.items() if part in line), line) for line in lines]
    begin, end = told.index("acquire"), told.index("release")
    return [name for name, _ in itertools.groupby(told[begin : end + 1])]


def main(capability: int, head_dims: tuple[int, ...]) -> None:
    set_driver(StandIn(capability))
    seen: list[dict[str, Any]] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: seen.append(used(files)))
    gpu = decode.GPU.of(divmod(capability, 10), 132)
    for D in (*(D for D in head_dims if D < relay.MAX_DIM), relay.MAX_DIM):
        q, k = (torch.empty((1, H, M, D), dtype=torch.bfloat16, device="meta") for H, M in ((8, 16), (1, 4096)))
        relay.prepared(q, k, k, True, gpu=gpu)(q, k, k, 1.0)
        print(json.dumps({"case": [8, 16, 4096, D], "triton": triton.__version__, **seen[-1]}), flush=True)
    for dtype in (torch.bfloat16, torch.float32):
        for D in head_dims:
            most = decode.max_rows(D, dtype)
            if not most:
                continue
            rows = ((1, 1), (8, 1), (most, 1), (most // 8, 8))
            for (H, M), N in itertools.product(rows, (8192, 1 << 19)):  # more are worth a block more on its way
                q = torch.empty((1, H, M, D), dtype=dtype, device="meta")
                k = torch.empty((1, 1, N, D), dtype=dtype, device="meta")
                seen.clear()
                decode.prepared(q, k, k, True, gpu=gpu)(q, k, k, 1.0)
                asked = {"case": [H, M, N, D, str(dtype)], "triton": triton.__version__}
                for one in seen:
                    print(json.dumps({**asked, **one}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), (64, 80, 128, 256) if sys.argv[2] == "all" else (80, 256))
