"""Time a linear layer with its activation on this GPU, round-robin: the activation in our product, cuBLAS with an
activation kernel, and PyTorch compiled.

    python tools/tune_activated.py [--shapes 8192x8192x2048] [--activation gelu] [--no-bias] [--out FILE]
    python tools/tune_activated.py --compile     # everything of ours that would be timed; needs no GPU

A shape is M × N × K, of x [M, K] and weight [N, K]; the default are the first layers of the networks in the prompts of
the suite `inference`. Every variant is checked before it is timed, with a cold L2. For each shape the table has the µs
of each variant, and what `pays` of kernels/moe/dense_api.py chooses now: `right` if that is the faster one of the two
that it chooses from, else the share of time that it loses. This is a tool for choosing, not evidence: claims come from
`groundspeed run`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from side_by_side import compile_ahead, need_gpu, rounds
from torch.nn.functional import linear

from groundspeed.kernels.activation.api import activate
from groundspeed.kernels.activations import activated
from groundspeed.kernels.moe import dense
from groundspeed.kernels.moe.dense_api import pays
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.moe.hopper.choice import Launch
from groundspeed.suites.gemm.cases import Shape
from groundspeed.suites.inference.shapes import PREFILL, WIDENING

PROMPTS = [Shape(shape.B * shape.S, WIDENING * shape.d, shape.d) for shape in PREFILL.values()]
WRONG = 6e-3
"""Largest accepted RMS of the error, over that of the result, in BF16."""
FUSED, PARTS, COMPILED = "fused", "cuBLAS + activate", "torch.compile"
LAUNCHES: dict[str, Any] = {FUSED: None} | {
    f"fused {name}": launch
    for name, launch in {
        "t8": Launch(together=8),
        "t32": Launch(together=32),
        "lag 1": Launch(lag=1),
        "lag 2": Launch(lag=2),
        "n128": Launch(block_n=128, stages=6),
    }.items()
}
"""With a lag, one consumer multiplies during the epilogue of the other: of a short K, the epilogue is a large part."""


def tensors(shape: Shape, activation: str, biased: bool, device: str) -> list[Any]:
    sizes = [(shape.M, shape.K), (shape.N, shape.K), *([(shape.N,)] if biased else [])]
    if device == "meta":
        return [torch.empty(size, dtype=torch.bfloat16, device=device) for size in sizes]
    made = [torch.randn(size, device=device) for size in sizes]
    made[1] /= shape.K**0.5
    return [tensor.bfloat16() for tensor in made]


def variants(
    shape: Shape, activation: str, biased: bool, told: list[Any] | None = None
) -> dict[str, Callable[[], Any]]:
    """Return a call of each variant of ours, by name; for tensors without memory if none are given."""
    given = told or tensors(shape, activation, biased, "meta")

    def call_of(launch: Any) -> Callable[[], Any]:
        made: list[Callable[..., Any]] = []

        def call() -> Any:
            if not made:
                prepare = partial(dense.prepared, *given[:2], capability=(9, 0), hopper=True)
                made.append(prepare(activation=activation, biased=biased, launch=launch))
            return made[0](*given)

        return call

    return {name: call_of(launch) for name, launch in LAUNCHES.items()}


def timed(shape: Shape, activation: str, biased: bool) -> dict[str, float]:
    """Return variant → µs."""
    given = tensors(shape, activation, biased, "cuda")
    x, others = given[0], given[1:]
    rows = torch.randperm(shape.M)[:64].cuda()
    expected = activated(linear(x[rows].double(), *(tensor.double() for tensor in others)), activation)
    torch.compiler.reset()
    compiled = torch.compile(lambda *told: activated(linear(*told), activation), dynamic=False)
    calls: dict[str, Callable[[], Any]] = {
        PARTS: lambda: activate(linear(*given), activation, impl="triton"),
        COMPILED: lambda: compiled(*given),
        "cuBLAS alone": lambda: linear(*given),
        **variants(shape, activation, biased, given),
    }
    for name, call in list(calls.items()):
        try:
            error = float((call()[rows].double() - expected).norm() / expected.norm())
            fault = None if error <= WRONG or name == "cuBLAS alone" else f"wrong, {error:.1e}"
        except Exception as failure:  # only this variant is dropped
            fault = f"{type(failure).__name__}: {failure!s:.100}"
        if fault:
            print(f"{shape.name} {name}: {fault}", flush=True)
            del calls[name]
    first = rounds(calls, 3)
    return {name: 1000 * ms for name, ms in rounds(calls, max(11, min(60, int(500 / sum(first.values()))))).items()}


def judged(shape: Shape, us: dict[str, float]) -> str:
    """Return what the rule chooses, and whether the other one would be faster."""
    chosen, other = (FUSED, PARTS) if pays(shape.M, shape.N, shape.K) else (PARTS, FUSED)
    if chosen not in us or other not in us:
        return f"chosen: {chosen}"
    lost = us[chosen] / us[other] - 1
    return f"chosen: {chosen}, {'right' if lost <= 0 else f'loses {lost:.1%}'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(shape.name for shape in PROMPTS))
    parser.add_argument("--activation", default="gelu", choices=["gelu", "gelu_tanh", "relu2", "swiglu"])
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    biased = not options.no_bias and widening(options.activation) == 1
    shapes = [Shape(*map(int, text.split("x"))) for text in options.shapes.split(",")]
    if not options.compile:
        need_gpu(parser)
    compile_ahead(variants, [(shape, options.activation, biased) for shape in shapes])
    if options.compile:
        return
    results: dict[str, Any] = {}
    for shape in shapes:
        us = results[shape.name] = timed(shape, options.activation, biased)
        print(f"{shape.name}: {judged(shape, us)}", flush=True)
        for name, time in sorted(us.items(), key=lambda one: one[1]):
            print(f"  {time:9.1f} µs {time / us[PARTS]:6.3f}  {name}", flush=True)
        torch.cuda.empty_cache()
        if options.out:
            options.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
