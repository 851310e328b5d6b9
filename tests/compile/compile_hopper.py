"""Compile the Hopper attention kernel as it is launched, for a GPU that is not here; run by test_compile.py in a
process of its own, with the head dimension whose launches it takes and `all`, `full` or `some`. Prints a JSON line for
each compiled kernel: what it uses and which instructions it has."""

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

from groundspeed.kernels.attention.form import PLAIN, Form
from groundspeed.kernels.attention.hopper.choice import Launch
from groundspeed.kernels.attention.hopper.kernel import attention_forward_hopper
from groundspeed.kernels.attention.hopper.launch import Call, described, described_packed
from groundspeed.lab.standin import StandIn, set_driver

LENGTHS = [(S, S) for S in (100, 256, 512, 777, 1024, 2048, 4096, 4099, 16384)] + [
    (300, 100),
    (5000, 4099),
    (128, 4096),
]
FULL = [(M, N) for M, N in LENGTHS if M == N and N % 128 == 0]
"""Of those, where tiles and blocks of keys are full; the others are compiled with the oldest Triton alone."""
SOME = [(4096, 4096), (4099, 4099)]
ODD = {64: 32, 128: 96, 256: 192}
"""Head dimensions with columns of their own, by those whose launches they take."""
FORMS = [
    Form(left=128, right=0),
    Form(left=4096),
    Form(left=300, right=300),
    Form(right=0, sinks=True),
    Form(left=1024, right=100, softcap=50.0, sinks=True),
]
INSTRUCTIONS = {"wgmma": "wgmma.mma_async", "TMA": "cp.async.bulk.tensor", "setmaxnreg": "setmaxnreg"}


def compiled(
    M: int,
    N: int,
    D: int,
    form: Form,
    dtype: torch.dtype,
    turned: bool = False,
    V: int | None = None,
) -> dict[str, Any]:
    """`turned`: of tensors [B, S, H, D], in which batch and head are not one dimension."""
    q, k, lse = torch.empty(2, 4, M, D, dtype=dtype), torch.empty(2, 2, N, D, dtype=dtype), torch.empty(2, 4, M)
    if turned:
        q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))
    launch = Launch.choose(M, N, D, form, value_dim=V)
    sinks = torch.empty(4, dtype=dtype) if form.sinks else None
    v, o = (x if V is None else x[..., :V].contiguous() for x in (k, q))
    arguments, options, _ = described(q, k, v, o, lse, sinks, form=form, scale=1.0, launch=launch)
    kernel = attention_forward_hopper.warmup(*arguments, **options, grid=(1,))
    name = [M, N, D, V, str(form), str(dtype), str(launch), "turned" if turned else ""]
    return {"case": name, **used(kernel)}


def used(kernel: Any) -> dict[str, Any]:
    halves.check(kernel.asm["ptx"])
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        "triton": triton.__version__,
        "shared": kernel.metadata.shared,
        "stack": int(re.search(r"STACK:(\d+)", usage)[1]),  # type: ignore[index]
        "instructions": sorted(name for name, text in INSTRUCTIONS.items() if text in kernel.asm["ptx"]),
    }


def compiled_packed(D: int, form: Form) -> dict[str, Any]:
    q, k = torch.empty(1000, 4, D, dtype=torch.bfloat16), torch.empty(1000, 2, D, dtype=torch.bfloat16)
    lse, tiles, sinks = torch.empty(4, 1000), torch.zeros(80, dtype=torch.int32), torch.empty(4) if form.sinks else None
    launch = Launch.choose(500, 500, D, form, packed=True)
    call = Call.of_packed(q, k, k, q, 3, form, launch, 500)
    arguments = (*described_packed(call, q, k, k, q), lse, 1.0, *call.numbers, sinks, tiles)
    kernel = attention_forward_hopper.warmup(*arguments, **call.constants, **launch.options, grid=(1,))
    told = {
        "numbers of a tile": _loaded(kernel.asm["ttgir"]),
        "at least": 4 if form.right >= 0 or form.left >= 0 else 2,
    }
    return {"case": ["packed", D, str(form), str(launch)], **used(kernel), **told}


def _loaded(ttgir: str) -> int:
    """Numbers of the coming tile that whoever loads keys reads in its loop over tiles: its first key and its keys, and
    under a mask its first row and its queries too."""
    parts = re.findall(r"partition\d\(.*?ttg\.warp_return", ttgir, re.DOTALL)
    (keys,) = [part for part in parts if "global_to_local" in part and "local_to_global" not in part]
    return keys[keys.index("scf.for") :].count("tt.load")


def main(D: int, lengths: list[tuple[int, int]]) -> None:
    set_driver(StandIn(90))
    kinds: dict[str, tuple[Any, ...]] = {}
    for form in PLAIN.values():
        for M, N in lengths:
            constants = Launch.choose(M, N, D, form).constants(M, N, D, form)
            kinds.setdefault(str(constants), (M, N, D, form, torch.bfloat16))
    kinds["odd"] = (4096, 4096, ODD[D], PLAIN[True], torch.bfloat16)
    if lengths is LENGTHS:
        kinds["odd and ragged"] = (4099, 4099, ODD[D], PLAIN[False], torch.bfloat16)
        kinds["fp16"] = (2048, 2048, D, PLAIN[True], torch.float16)
        kinds["turned"] = (4099, 4099, D, PLAIN[False], torch.bfloat16, True)
    if lengths is LENGTHS and D == 128:
        kinds["tiles of two heads in pairs"] = (4224, 4224, D, PLAIN[True], torch.bfloat16)
    if D == 256:
        kinds["fewer values"] = (4096, 4096, ODD[D], PLAIN[True], torch.bfloat16, False, 128)
        kinds["fewer values, ragged"] = (4099, 4099, ODD[D], PLAIN[False], torch.bfloat16, False, 128)
    for form in FORMS if lengths is not SOME else FORMS[-1:]:
        kinds[f"{form} {D}"] = (8192, 8192, D, form, torch.bfloat16)
    for kind in kinds.values():
        print(json.dumps(compiled(*kind)), flush=True)
    packed = (*PLAIN.values(), Form(left=100, right=50, softcap=30.0, sinks=True))
    for form in packed if lengths is not SOME else packed[1:]:
        print(json.dumps(compiled_packed(D, form)), flush=True)
    if lengths is not SOME and D == 128:
        print(json.dumps(compiled_packed(ODD[D], PLAIN[True])), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), {"all": LENGTHS, "full": FULL, "some": SOME}[sys.argv[2]])
