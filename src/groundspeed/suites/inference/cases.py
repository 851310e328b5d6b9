"""The cases of whole models: named models × dtype, and any model that a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from groundspeed.case import Case, Scalar, with_clock
from groundspeed.errors import BadInput
from groundspeed.kernels import work
from groundspeed.suites.inference import reference, weights
from groundspeed.suites.inference.shapes import (
    DECODE,
    PREFILL,
    SHAPE_KEYS,
    SHAPES,
    TINY,
    TINY_MEMORY,
    Shape,
    shape_of,
)
from groundspeed.suites.inputs import shift
from groundspeed.suites.shape_text import parts_of, whole_number
from groundspeed.suites.told import case_told

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("fp32", "fp16", "bf16")
MAX_FLOPS = 2**62
ERROR = {"fp32": 1.5e-6, "fp16": 7e-4, "bf16": 5.5e-3}
"""RMS error against FP64, over the RMS of the result, row by row, for a model of one layer; it grows with the cube root
of the number of layers. In 16 bits it is 1.4 times the error of PyTorch's own code, for one layer as for 32. In FP32
long sums lose more. Weights that were rounded to 8 bits beforehand have 1.1 to 1.4 times this error."""
KEPT = 1.3
"""Factor on ERROR if keys were kept, which matter more (weights.py). Keys and values in FP8 show twice that or more."""
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16",)}
GRAPHED = ("small-1x128", "small-4x512", "medium-1x128", "large-1x128", *DECODE)
"""Cases whose launches take as long as the work: these are measured in a CUDA graph, too."""
EAGER = tuple(name for name in GRAPHED if name.endswith(("-1x128", "-decode-1")))
"""Cases whose launches take longer than the work: these are also measured as a caller sees them, so that the cost of
launching can be stated (B4)."""


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    return [forward(name, shape, dtype) for dtype in DTYPES for name, shape in SHAPES.items()]


def preset_cases(preset: str, device: str) -> list[Case]:
    """Return what a preset measures if no case is asked for. Larger models are for GPUs: a CPU would take hours. The
    cases about memory must be asked for, because among these they would be judged for their time."""
    quick = {"cpu": ("d256-2x128", "d256-decode-2"), "cuda": ("small-1x128", "small-4x512", "small-decode-8")}
    whole = {"cpu": tuple(name for name in TINY if name not in TINY_MEMORY), "cuda": (*PREFILL, *DECODE)}
    names = (quick if preset == "quick" else whole)[device]
    cases = [forward(name, SHAPES[name], dtype) for dtype in _DEFAULT_DTYPES[device] for name in names]
    clocks = {"graph": GRAPHED, "eager": EAGER} if device == "cuda" else {}
    others = [
        with_clock(case, clock)
        for clock, names in clocks.items()
        for case in cases
        if case.name.rpartition("-")[0] in names
    ]
    return [*cases, *others]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Return the cases of a model that a user writes, `L=4,d=512,H=8,B=1,S=777`. The defaults are those of the small
    model and one sequence of 128 tokens."""
    numbers = {key: whole_number(part, "L=4,S=777") for key, part in parts_of(text, SHAPE_KEYS).items()}
    shape = SHAPES["small-1x128"]._replace(**numbers)
    try:
        shape.check()
    except ValueError as error:
        raise BadInput(f"--shape {text:.200}: {error}") from None
    cases = [forward(shape.name, shape, dtype) for dtype in dtypes]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("inference", params, _of_params)


def _of_params(params: dict[str, Scalar]) -> Case:
    if (dtype := str(params["dtype"])) not in DTYPES:
        raise ValueError("out of range")
    shape = shape_of(params)
    return forward(shape.name, shape, dtype)


def forward(name: str, shape: Shape, dtype: str) -> Case:
    L, d, H, B, S, N = shape
    return Case(
        suite="inference",
        name=f"{name}-{dtype}",
        params={**shape.params(), "dtype": dtype},
        work=work.transformer_forward(L, d, H, B, S, N, dtype),
        counts={"tokens": B * S, "samples": B},
        tolerance={"rms_rel": ERROR[dtype] * L ** (1 / 3) * (KEPT if N else 1)},
        inputs=partial(weights.inputs, shape, dtype),
        drawn_inputs=partial(weights.tokens, shape, dtype),
        refresh=_refresh,
        oracle=partial(reference.transformer, heads=H),
        oracle_flops_per_row=work.transformer_forward(L, d, H, 1, S, N, dtype).flops,
        input_names=("x", *shape.weights(), *shape.kept()),
        output_shape=(B, S, d),
        arguments={"heads": H, "kept": N},
        fixed_inputs=len(shape.weights()) + len(shape.kept()),
    )


def _refresh(inputs: tuple[Tensor, ...], earlier: tuple[Tensor, ...]) -> None:
    shift(inputs[:1], earlier[:1])
