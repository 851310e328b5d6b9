"""Compile the kernels of a mixture of experts as they are launched, for a GPU that is not here; run by test_compile.py
in a process of its own.

    python compile_moe.py CAPABILITY all|some

Prints one JSON line per compiled kernel: what it uses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from compile_hopper import used
from triton import knobs

from groundspeed.kernels.moe import api, dense, layer
from groundspeed.kernels.moe.form import Routing, widening
from groundspeed.kernels.moe.grouping import Groups, Plan, most_rows
from groundspeed.kernels.moe.hopper.choice import ALIGN, Transposed
from groundspeed.lab.standin import StandIn, set_driver
from groundspeed.suites import registry
from groundspeed.suites.moe import cases
from groundspeed.suites.moe.shapes import Shape

SHAPES = [*(Shape(tokens) for tokens in (1, 64, 512, 1024, 2048, 32768)), Shape(4096, 2048, 768, 128, 8)]
SOME = [Shape(1), Shape(2048)]


BIASED = [
    (32768, 3072, 768, "gelu", torch.bfloat16),
    (2048, 8192, 2048, "gelu", torch.float16),
    (16384, 16392, 4096, "gelu", torch.bfloat16),
    (8192, 8192, 2048, "gelu_tanh", torch.bfloat16),
    (8192, 8192, 2048, "relu2", torch.bfloat16),
    (8192, 8192, 2048, None, torch.bfloat16),
]
"""Rows, columns and K of dense products with a bias; in one of them, columns end within a tile."""


def what_is_used(files: dict[str, str]) -> dict[str, Any]:
    by_kind = {Path(file).suffix: Path(path) for file, path in files.items()}
    metadata = json.loads(by_kind[".json"].read_text())
    asm = {"cubin": by_kind[".cubin"].read_bytes(), "ptx": by_kind[".ptx"].read_text()}
    waits = "griddepcontrol.wait" in asm["ptx"]
    assert waits == bool(metadata["launch_pdl"]), metadata["name"]
    found = used(SimpleNamespace(asm=asm, metadata=SimpleNamespace(**metadata)))
    told = {"kernel": metadata["name"], "waits": waits, "in stages": "cp.async" in asm["ptx"], **found}
    return told | ({"under a product": under_a_product(by_kind[".cubin"])} if "wgmma" in found["instructions"] else {})


def under_a_product(cubin: Path) -> list[int]:
    """How many loads of a lane there are between the last product of a tile and the wait for it, by consumer: if they
    came after the wait, a consumer would wait for them too."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    code = subprocess.run([tool, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    last = [part.rpartition("HGMMA")[2] for part in re.split(r"DEPBAR\.LE gsb0, 0x0", code)[:-1]]
    return [len(re.findall(r"\bLDG\.E\b", part)) for part in last]


def main(capability: int, shapes: Sequence[Shape]) -> None:
    set_driver(StandIn(capability))
    seen: list[dict[str, Any]] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: seen.append(what_is_used(files)))
    ours = registry.load("moe").contenders
    for name in ("ours-portable", "ours-hopper")[: 1 + (capability == 90)]:
        compiles = ours[name].compiles
        assert compiles is not None
        for shape in shapes:
            for activation in ("swiglu", "gelu"):
                seen.clear()
                compiles(cases.forward(shape.name, shape, activation, "bf16"), divmod(capability, 10))
                for one in seen:
                    print(json.dumps({"case": [shape.T, shape.E, activation], **one}), flush=True)
    plain = registry.load("gemm")
    compiles = plain.contenders["ours-portable"].compiles
    assert compiles is not None
    for told, what in (("M=4099,N=11016,K=4104", "eights"), ("M=40,N=1,K=64", "one column")):
        seen.clear()
        compiles(plain.module.shape_cases(told, ["bf16"])[0], divmod(capability, 10))
        for one in seen:
            print(json.dumps({"case": [0, 1, what], **one}), flush=True)
    if capability == 90:
        for activation in ("swiglu", "gelu"):
            seen.clear()
            transposed(activation)
            for one in seen:
                print(json.dumps({"case": [2048, 32, activation], **one}), flush=True)
        for kind in BIASED:
            seen.clear()
            biased(*kind)
            for one in seen:
                print(json.dumps({"case": [0, 1, "biased", str(kind)], **one}), flush=True)
    for T in (16, 2048, 20000):
        seen.clear()
        route(T, divmod(capability, 10))
        for one in seen:
            print(json.dumps({"case": [T, api.MAX_EXPERTS, "widest"], **one}), flush=True)


def biased(M: int, N: int, K: int, activation: str | None, dtype: torch.dtype) -> None:
    a, b, bias = (torch.empty(size, dtype=dtype, device="meta") for size in ((M, K), (N, K), (N,)))
    dense.prepared(a, b, capability=(9, 0), hopper=True, activation=activation, biased=True)(a, b, bias)


def transposed(activation: str, T: int = 2048, H: int = 4096, inner: int = 11008, E: int = 32) -> None:
    """Both products of a layer."""
    sizes = [(E, widening(activation) * inner, H), (E, H, inner)]
    up, down = (torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes)
    tiles, widen, narrow = layer._on_hopper(up, down, 2 * T, activation, (Transposed(), Transposed()))
    wide, between = (torch.empty((most_rows(2 * T, E, ALIGN), n), dtype=up.dtype, device="meta") for n in (H, inner))
    numbers = torch.empty(4096, dtype=torch.int32, device="meta")
    groups = Groups(numbers, numbers, numbers, numbers)
    widen(wide, up, between, groups)
    narrow(between, down, wide, groups)
    assert tiles == (ALIGN, 160, 0)


def route(T: int, capability: tuple[int, int], H: int = 4096) -> None:
    """To as many experts as there may be, by an FP32 router."""
    x, router = (torch.empty(size, device="meta") for size in ((T, H), (api.MAX_EXPERTS, H)))
    plan = Plan(T, api.MAX_EXPERTS, 8, 1, 16)
    chained = capability[0] >= 9 and T <= 16
    layer._routes(x.bfloat16(), router, Routing(8), plan, biased=True, losses=True, chained=chained)(
        x.bfloat16(), router, router
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), SHAPES if sys.argv[2] == "all" else SOME)
