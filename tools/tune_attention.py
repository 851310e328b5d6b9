"""Time launch choices of the portable attention kernel on this GPU, round-robin with PyTorch's SDPA.

    python tools/tune_attention.py [--dtype bf16] [--out FILE]

Every variant is checked before it is timed. For each shape the table has the best variants with their ratio to
sdpa-flash (in FP32 to the memory-efficient backend); above 1 is faster. This is a tool for choosing `Launch`, not
evidence: claims come from `groundspeed run`."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from side_by_side import rounds, sdpa
from torch.nn.attention import SDPBackend

from groundspeed.kernels.attention import triton as portable
from groundspeed.kernels.attention.reference import TOLERANCE, attention

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

VARIANTS = {  # BLOCK_M, BLOCK_N, warps, stages
    64: [(64, 64, 4, 3), (64, 128, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 32, 4, 4)],
    128: [(64, 64, 4, 3), (64, 128, 4, 2), (128, 64, 4, 2), (128, 64, 8, 3), (128, 128, 8, 2), (128, 32, 8, 3)],
    256: [(64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 3), (128, 64, 8, 2), (128, 32, 8, 3), (128, 128, 8, 1)],
}
VARIANTS_FP32 = {
    64: [(64, 32, 4, 2), (64, 64, 4, 2), (128, 32, 8, 2), (128, 32, 8, 3), (128, 64, 8, 2)],
    128: [(64, 32, 4, 2), (64, 32, 8, 2), (128, 32, 8, 2), (64, 64, 8, 1), (32, 32, 4, 2)],
    256: [(16, 32, 4, 1), (32, 32, 4, 1), (32, 32, 8, 1), (64, 32, 8, 1)],
}


def shape_result(B: int, H: int, S: int, D: int, causal: bool, dtype: str) -> dict[str, Any]:
    q, k, v = (torch.randn(B, H, S, D, device="cuda").to(DTYPES[dtype]) for _ in range(3))
    rows = torch.randint(0, B * H * S, (64,))
    expected = attention(q, k, v, causal=causal, rows=rows)
    calls: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for variant in (VARIANTS_FP32 if dtype == "fp32" else VARIANTS)[D]:
        launch = portable.Launch(*variant)
        name = "x".join(map(str, variant))

        def call(launch: portable.Launch = launch) -> Any:
            return portable.forward(q, k, v, causal=causal, scale=D**-0.5, launch=launch)[0]

        try:
            out = call().view(-1, D)[rows.cuda()].double()
        except Exception as error:
            notes[name] = str(error).splitlines()[0][:80]
            if "CUDA error" in notes[name]:
                raise RuntimeError(f"{name} at D={D} broke the device") from error
            continue
        relative = float((out - expected).square().mean().sqrt() / expected.square().mean().sqrt())
        if not relative <= TOLERANCE[dtype].rms_rel:
            notes[name] = f"wrong: {relative:.1e}"
            continue
        calls[name] = call
    backends = (
        {"efficient": SDPBackend.EFFICIENT_ATTENTION}
        if dtype == "fp32"
        else {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    )
    for name, backend in backends.items():
        calls[name] = sdpa(backend, q, k, v, causal)
        calls[name]()
    first = rounds(calls, 3)
    repeats = max(5, min(40, int(400 / sum(first.values()))))
    return {"shape": [B, H, S, D, causal, dtype], "ms": rounds(calls, repeats), "notes": notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--sizes", default="512,2048,8192")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = []
    for D, S, causal in itertools.product((64, 128, 256), map(int, options.sizes.split(",")), (False, True)):
        began = time.time()
        result = shape_result(16384 // S, 2048 // D, S, D, causal, options.dtype)
        results.append(result)
        ms = result["ms"]
        rivals = {name: ms[name] for name in ("flash", "efficient", "cudnn") if name in ms}
        reference = ms.get("flash") or ms["efficient"]
        flops = 4 * 16384 * 2048 * S * (0.5 if causal else 1)
        best = sorted((value, name) for name, value in ms.items() if name not in rivals)[:4]
        shown = "  ".join(f"{name} {reference / value:.2f}" for value, name in best)
        rates = "  ".join(f"{name} {flops / value / 1e9:.0f}" for name, value in rivals.items())
        mask = "causal" if causal else "full"
        head = f"D{D} S{S} {mask:6} {options.dtype}  {rates}  best {flops / best[0][0] / 1e9:.0f}"
        print(f"{head}: {shown}  {result['notes'] or ''} ({time.time() - began:.0f} s)", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
