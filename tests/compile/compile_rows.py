"""Compile the kernels that go row by row as they are launched, for GPUs that are not here; run by test_compile.py in a
process of its own.

    python compile_rows.py CAPABILITY…

Prints one JSON line per compiled kernel: what it uses, and how many bytes each of its loads and stores has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from compile_hopper import used
from triton import knobs

from groundspeed.kernels.activation import triton as activation
from groundspeed.kernels.norm import triton as norm
from groundspeed.kernels.rotary import triton as rotary
from groundspeed.lab.standin import StandIn, set_driver

ACCESS = re.compile(r"\b(?:ld|st)\.global(?:\.L\w+::\w+|\.(?!v\d|b\d)\w+)*(?:\.v(\d))?\.b(\d+)")


class Here(StandIn):
    """A device of its own for each capability: Triton keeps what it compiled by the device."""

    def get_current_device(self) -> int:
        return self.capability


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.empty(shape, dtype=dtype, device="meta")


def calls(chained: bool) -> dict[str, Callable[[], Any]]:
    """Rows that are multiples of eight elements and not of sixteen; the kinds that take the most registers. `chained`:
    those that can start while the kernel before them is running do so."""
    x, long, weight = empty(7, 4104), empty(7, 65536, dtype=torch.float32), empty(65536, dtype=torch.float32)
    full = empty(7, 16384, dtype=torch.float32)
    apart = empty(2, 9, 3 * 264).unflatten(2, (3, 264)).narrow(2, 0, 2).transpose(1, 2)
    q, k = (empty(2, 64, heads, 80).transpose(1, 2) for heads in (32, 8))
    cos = empty(1, 64, 16, dtype=torch.float32)
    odd = empty(7, 1001)

    def normed(x: Any, weight: Any, bias: Any, residual: Any, centered: bool) -> None:
        norm.forward(x, weight, bias, residual, eps=1e-5, centered=centered, chained=chained)

    return {
        "norm": lambda: normed(x, weight[:4104], weight[:4104], x, True),
        "norm of rows apart": lambda: normed(apart, empty(264), None, None, False),
        "norm, the longest in one block": lambda: normed(full, weight[:16384], weight[:16384], full, True),
        "norm of long rows": lambda: normed(long, weight, weight, long, True),
        "rotary": lambda: rotary.forward(q, k, cos, cos),
        "swiglu of halves": lambda: activation.forward(empty(7, 2 * 11016), "swiglu", chained=chained),
        "odd gelu": lambda: activation.forward(odd, "gelu", chained=chained),
        "even gelu": lambda: activation.forward(empty(7, 1024), "gelu", chained=chained),
    }


def what_is_used(files: dict[str, str]) -> dict[str, Any]:
    by_kind = {Path(file).suffix: Path(path) for file, path in files.items()}
    metadata = json.loads(by_kind[".json"].read_text())
    asm = {"cubin": by_kind[".cubin"].read_bytes(), "ptx": by_kind[".ptx"].read_text()}
    found = used(SimpleNamespace(asm=asm, metadata=SimpleNamespace(**metadata)))
    widths = [int(many or 1) * int(bits) // 8 for many, bits in ACCESS.findall(asm["ptx"])]
    chained = {
        "waits": bool(metadata["launch_pdl"]),
        "order": order_of(asm["ptx"]),
        "code": order_in(by_kind[".cubin"]),
    }
    return {"kernel": metadata["name"], "bytes": widths, **chained, **found}


def order_of(ptx: str) -> list[str]:
    """What a program does, one after the other: begin the next kernel, wait for the one before it, load and store; of
    neighbours that are alike, one."""
    kinds = {"griddepcontrol.launch": "begin", "griddepcontrol.wait": "wait", "ld.global": "load", "st.global": "store"}
    return in_order(ptx, kinds)


def order_in(cubin: Path) -> list[str]:
    """The same of the machine code."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    code = subprocess.run([tool, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    return in_order(code, {"PREEXIT": "begin", "ACQBULK": "wait", "LDG": "load", "STG": "store"})


def in_order(text: str, kinds: dict[str, str]) -> list[str]:
    told = [kinds[found] for found in re.findall("|".join(map(re.escape, kinds)), text)]
    return [one for one, before in zip(told, [None, *told], strict=False) if one != before]


def main(capabilities: list[int]) -> None:
    seen: list[dict[str, Any]] = []
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, files, key: seen.append(what_is_used(files)))
    for capability in capabilities:
        set_driver(Here(capability))
        for name, call in calls(capability >= 90).items():
            seen.clear()
            call()
            for one in seen:
                print(json.dumps({"case": name, "capability": capability, **one}), flush=True)


if __name__ == "__main__":
    main(list(map(int, sys.argv[1:])))
