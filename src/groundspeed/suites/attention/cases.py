"""The cases of attention: named shapes (requirement A3) × mask × dtype, and any shape that a user writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from groundspeed.case import Case, Scalar
from groundspeed.errors import BadInput
from groundspeed.suites.attention import dense, packed
from groundspeed.suites.attention.dense import case_name
from groundspeed.suites.attention.shapes import (
    DECODE,
    DENSE_ONLY,
    FORMS,
    LATENCY,
    OPTIONAL,
    RAGGED,
    SHAPE_KEYS,
    SHAPES,
    THROUGHPUT,
    USUAL,
    Shape,
    lengths_of,
    shape_of,
)
from groundspeed.suites.shape_text import parts_of, whole_number
from groundspeed.suites.told import case_told

DTYPES = ("fp32", "fp16", "bf16")
MAX_FLOPS = 2**62
"""The most FLOPs of a shape that a user writes; the number of digits is limited, too."""

_QUICK = {
    "cpu": ("small", "medium", "large", "xlarge", "multi-head"),
    "cuda": ("xlarge", "t4", "claim", "ref-64"),
}
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16", "fp16")}


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    """Return every named case; a shape with two names is one case with an alias."""
    decode = [forward(name, shape, dtype, False) for dtype in DTYPES for name, shape in DECODE.items()]
    both = {**FORMS, **RAGGED}
    forms = [forward(name, shape, dtype, c) for dtype in DTYPES for name, shape in both.items() for c in (False, True)]
    return [*(c for dtype in DTYPES for c in _named(tuple(SHAPES), dtype)), *decode, *forms]


def preset_cases(preset: str, device: str) -> list[Case]:
    """Return what a preset measures if no case is asked for. Larger shapes are for GPUs: a CPU would take days."""
    if preset == "quick":
        names, dtypes = _QUICK[device], _DEFAULT_DTYPES[device][:1]
    else:
        names = tuple(SHAPES) if device == "cuda" else (*LATENCY, *THROUGHPUT)
        dtypes = _DEFAULT_DTYPES[device]
    return [c for dtype in dtypes for c in _named(names, dtype)]


def _named(names: Sequence[str], dtype: str) -> list[Case]:
    first: dict[Shape, str] = {}
    aliases: dict[str, list[str]] = {}
    for name in SHAPES:
        aliases.setdefault(first.setdefault(SHAPES[name], name), []).append(name)
    chosen = dict.fromkeys(first[SHAPES[name]] for name in names)
    return [
        dataclasses.replace(
            forward(name, SHAPES[name], dtype, causal),
            aliases=tuple(case_name(alias, causal, dtype) for alias in aliases[name][1:]),
        )
        for name in chosen
        for causal in (False, True)
    ]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Return the cases of a shape that a user writes, `S=777,D=96`. Defaults: B=1, H=8, S=1024, D=64 and both masks."""
    parts = parts_of(text, SHAPE_KEYS)
    lengths = _lengths(parts.pop("lengths")) if "lengths" in parts else ()
    least = {"causal": 0}
    values = {key: whole_number(part, "S=777,D=96", least=least.get(key, 1)) for key, part in parts.items()}
    for key in ("causal", "sinks"):
        if values.get(key, 0) > 1:
            raise BadInput(f"--shape {key}={values[key]}: {key} must be 0 or 1")
    masks = (bool(values["causal"]),) if "causal" in values else (False, True)
    if lengths and (strangers := [key for key in DENSE_ONLY if key in values]):
        raise BadInput(f"--shape {text}: packed sequences take lengths instead of B and S; leave out {strangers[0]}")
    batch, sequence = (0, 0) if lengths else (values.get("B", 1), values.get("S", 1024))
    shape = Shape(batch, values.get("H", 8), sequence, values.get("D", 64), lengths=lengths)
    if "G" in values and shape.H % values["G"]:
        raise BadInput(f"--shape {text}: H={shape.H} is not a multiple of G={values['G']}")
    others: dict[str, Any] = {key: values[key] for key in OPTIONAL if key in values}
    told = {key: value for key, value in others.items() if key not in USUAL or value != getattr(shape, USUAL[key])}
    shape = shape._replace(**told)
    cases = [forward(shape.name, shape, dtype, causal) for dtype in dtypes for causal in masks]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def _lengths(part: str) -> tuple[int, ...]:
    try:
        return lengths_of(part.partition("=")[2])
    except ValueError as error:
        raise BadInput(f"--shape {part:.40}: {error}") from None


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("attention", params, _of_params)


def _of_params(params: dict[str, Scalar]) -> Case:
    shape, dtype, causal = shape_of(params), str(params["dtype"]), bool(params["causal"])
    if dtype not in DTYPES:
        raise ValueError("out of range")
    return forward(shape.name, shape, dtype, causal)


def forward(name: str, shape: Shape, dtype: str, causal: bool) -> Case:
    make = packed.forward if shape.lengths else dense.forward
    return make(name, shape, dtype, causal)
