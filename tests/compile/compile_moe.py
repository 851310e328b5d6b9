"""Compile the kernels of a mixture of experts as they are launched, for a GPU that is not here; run by test_compile.py
in a process of its own.

    python compile_moe.py CAPABILITY

Prints one JSON line per compiled kernel: what it uses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from compile_hopper import used
from triton import knobs

from groundspeed.kernels.moe import layer
from groundspeed.kernels.moe.form import Routing
from groundspeed.lab.standin import StandIn, set_driver

SHAPES = [(tokens, 4096, 11008, 32, 2) for tokens in (1, 64, 2048, 32768)] + [(4096, 2048, 768, 128, 8)]
"""T, H, I, E, top_k."""


def what_is_used(files: dict[str, str]) -> dict[str, Any]:
    by_kind = {Path(file).suffix: Path(path) for file, path in files.items()}
    metadata = json.loads(by_kind[".json"].read_text())
    asm = {"cubin": by_kind[".cubin"].read_bytes(), "ptx": by_kind[".ptx"].read_text()}
    return {"kernel": metadata["name"], **used(SimpleNamespace(asm=asm, metadata=SimpleNamespace(**metadata)))}


def main(capability: int) -> None:
    set_driver(StandIn(capability))
    seen: list[dict[str, Any]] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: seen.append(what_is_used(files)))
    for hopper in (False, True)[: 1 + (capability == 90)]:
        for T, H, inner, E, top_k in SHAPES:
            for activation in ("swiglu", "gelu"):
                F = 2 * inner if activation == "swiglu" else inner
                sizes = (T, H), (E, H), (E, F, H), (E, H, inner)
                told = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes]
                forward = layer.prepared(
                    *told, Routing(top_k), activation, capability=divmod(capability, 10), hopper=hopper
                )
                seen.clear()
                forward(*told)
                for one in seen:
                    print(json.dumps({"case": [T, E, activation], **one}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
