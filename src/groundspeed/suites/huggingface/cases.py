"""The cases of Transformers' Llamas: named models × dtype, and any model that a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from groundspeed.case import Case, Scalar, with_clock
from groundspeed.errors import BadInput
from groundspeed.kernels.work import BYTES, Work, attention_forward
from groundspeed.suites.huggingface import reference, weights
from groundspeed.suites.huggingface.shapes import DECODE, PREFILL, SHAPE_KEYS, SHAPES, TINY, Shape, shape_of
from groundspeed.suites.shape_text import parts_of, whole_number
from groundspeed.suites.told import case_told

DTYPES = ("fp32", "fp16", "bf16")
MAX_FLOPS = 2**62
ERROR = {"fp32": 1.5e-6, "fp16": 9.9e-4, "bf16": 7.9e-3}
"""RMS error against FP64, over the RMS of the result, row by row, for a model of one layer that writes a word; it grows
with the square root of the number of layers. In 16 bits Transformers' own code shows 0.6 to 0.9 times this error, in
models of 1 to 32 layers and 256 to 2048 dimensions. Weights rounded to 8 bits beforehand show 1.1 to 1.5 times this
error, keys and values in FP8 more."""
READING = 1.2
"""Factor on ERROR for the states of a prompt, which see one another; errors of weights rounded beforehand grow, too."""
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16",)}
_QUICK = {"cpu": tuple(TINY), "cuda": ("llama-1b-1x2048", "llama-1b-decode-8")}


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    return [forward(name, shape, dtype) for dtype in DTYPES for name, shape in SHAPES.items()]


def preset_cases(preset: str, device: str) -> list[Case]:
    """Return what a preset measures if no case is asked for. Launching a step takes longer than its work, so on a GPU
    steps are measured in a CUDA graph, too. A CPU gets only tiny models."""
    whole = {"cpu": tuple(TINY), "cuda": (*PREFILL, *DECODE)}
    names = (_QUICK if preset == "quick" else whole)[device]
    cases = [forward(name, SHAPES[name], dtype) for dtype in _DEFAULT_DTYPES[device] for name in names]
    steps = [with_clock(case, "graph") for case in cases if case.params.get("N")]
    return [*cases, *(steps if device == "cuda" else [])]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Return the cases of a model that a user writes, `L=4,d=512,H=8,B=1,S=777`. The defaults are those of the 1B model
    and one sequence of 128 tokens."""
    numbers = {key: whole_number(part, "L=4,S=777") for key, part in parts_of(text, SHAPE_KEYS).items()}
    shape = SHAPES["llama-1b-1x2048"]._replace(**{"S": 128, **numbers})
    try:
        shape.check()
    except ValueError as error:
        raise BadInput(f"--shape {text:.200}: {error}") from None
    cases = [forward(shape.name, shape, dtype) for dtype in dtypes]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("huggingface", params, _of_params)


def _of_params(params: dict[str, Scalar]) -> Case:
    if (dtype := str(params["dtype"])) not in DTYPES:
        raise ValueError("out of range")
    shape = shape_of(params)
    return forward(shape.name, shape, dtype)


def forward(name: str, shape: Shape, dtype: str) -> Case:
    B, S = shape.B, shape.S
    return Case(
        suite="huggingface",
        name=f"{name}-{dtype}",
        params={**shape.params(), "dtype": dtype},
        work=work(shape, dtype),
        counts={"tokens": B * S, "samples": B},
        tolerance={"rms_rel": ERROR[dtype] * shape.L**0.5 * (1 if shape.writes else READING)},
        inputs=partial(weights.inputs, shape, dtype),
        drawn_inputs=partial(weights.tokens, shape),
        refresh=partial(weights.other_tokens, shape),
        oracle=partial(reference.llama, heads=shape.H, key_heads=shape.G),
        oracle_flops_per_row=work(shape._replace(B=1), dtype).flops,
        input_names=("ids", *shape.weights(), *shape.kept()),
        output_shape=(B, S, shape.V if shape.writes else shape.d),
        output_dtype=dtype,
        arguments={"heads": shape.H, "key_heads": shape.G, "kept": shape.N},
        fixed_inputs=len(shape.weights()) + len(shape.kept()),
    )


def work(shape: Shape, dtype: str) -> Work:
    """Return the work of a call. Matrices and kept keys and values are read once; the few rows looked up in the
    embedding are not counted. The head has work only if a call asks for the next word."""
    L, d, inner, H, G, V, B, S, N = shape
    matrices = L * (d * (H + 2 * G) * shape.head_dim + d * d + 3 * inner * d) + (V * d if shape.writes else 0)
    seen = attention_forward(B, H, S, shape.head_dim, dtype, True, key_heads=G, keys=N + S)
    read = matrices + 2 * L * B * G * N * shape.head_dim
    written = B * (V if shape.writes else S * d)
    return Work(flops=2 * B * S * matrices + L * seen.flops, bytes=(read + written) * BYTES[dtype])
