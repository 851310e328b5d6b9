"""The cases of a mixture of experts: named shapes × activation × dtype, and any shape that a user writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from groundspeed.case import Case, Experts, Scalar
from groundspeed.errors import BadInput, unknown
from groundspeed.kernels import work
from groundspeed.kernels.moe import reference
from groundspeed.kernels.moe.form import ACTIVATIONS, Routing
from groundspeed.suites.moe import products, routed
from groundspeed.suites.moe.shapes import (
    DECODE,
    ROUTED,
    ROUTINGS,
    SHAPE_KEYS,
    SHAPES,
    SMALL,
    SPECIFIED,
    Shape,
    shape_of,
)
from groundspeed.suites.shape_text import parts_of, whole_number
from groundspeed.suites.told import case_told

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("fp32", "fp16", "bf16")
MAX_FLOPS = 2**62
TOLERANCE = {
    # At least twice the worst error of PyTorch's own code over all activations, with sums over the experts in the
    # dtype (rms_rel 1.4e-6, 6.5e-4, 5.2e-3). Hugging Face's block also rounds the logits to it: its worst rms_rel of
    # 100 single tokens is 1.7e-3 and 1.4e-2. Operands in FP8 e4m3 have one of 3e-2 or more and are refused.
    "fp32": {"max_abs": 5e-5, "mean_abs": 5e-6, "max_rel": 6e-5, "rms_rel": 5e-6},
    "fp16": {"max_abs": 1e-2, "mean_abs": 1.2e-3, "max_rel": 8e-3, "rms_rel": 2.5e-3},
    "bf16": {"max_abs": 8e-2, "mean_abs": 9e-3, "max_rel": 7e-2, "rms_rel": 2e-2},
}
_BOTH = ACTIVATIONS[:2]
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16", "fp16")}


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    layers = [forward(name, shape, act, dtype) for dtype in DTYPES for name, shape in SHAPES.items() for act in _BOTH]
    return [*layers, *(case for dtype in DTYPES for case in _products({**products.SMALL, **products.NAMED}, dtype))]


def _products(named: Mapping[str, tuple[int, int, int]], dtype: str) -> list[Case]:
    return [products.forward(name, sizes, dtype, TOLERANCE[dtype]) for name, sizes in named.items()]


def preset_cases(preset: str, device: str) -> list[Case]:
    """Return what a preset measures if no case is asked for. Larger shapes are for GPUs: a CPU would take days."""
    quick = {"cpu": ("one", "some"), "cuda": ("decode-1", "4x512")}
    whole = {"cpu": tuple(SMALL), "cuda": (*DECODE, *SPECIFIED, *ROUTED)}
    names = (quick if preset == "quick" else whole)[device]
    dtypes = _DEFAULT_DTYPES[device][:1] if preset == "quick" else _DEFAULT_DTYPES[device]
    layers = [forward(name, SHAPES[name], act, dtype) for dtype in dtypes for name in names for act in _BOTH]
    beside = {} if preset == "quick" else {"cpu": products.SMALL, "cuda": products.NAMED}[device]
    return [*layers, *(case for dtype in dtypes for case in _products(beside, dtype))]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Return the cases of a shape that a user writes, `T=777,E=64`. The defaults are T=2048, the specification's other
    sizes, and both activations."""
    parts = parts_of(text, SHAPE_KEYS)
    words = {key: parts.pop(key).partition("=")[2] for key in ("act", "routing") if key in parts}
    for key, known in (("act", ACTIVATIONS), ("routing", tuple(ROUTINGS))):
        if key in words and words[key] not in known:
            raise unknown(f"{key} in --shape", words[key], known)
    numbers = {key: whole_number(part, "T=777,E=64") for key, part in parts.items()}
    shape = Shape(**{"T": 2048, **numbers}, routing=words.get("routing", "random"))
    try:
        shape.check()
    except ValueError as error:
        raise BadInput(f"--shape {text:.200}: {error}") from None
    activations = (words["act"],) if "act" in words else _BOTH
    cases = [forward(shape.name, shape, act, dtype) for dtype in dtypes for act in activations]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("moe", params, _of_params)


def _of_params(params: dict[str, Scalar]) -> Case:
    if (dtype := str(params["dtype"])) not in DTYPES:
        raise ValueError("out of range")
    if "M" in params:
        return products.of_params(params, TOLERANCE[dtype])
    shape, activation = shape_of(params), str(params["act"])
    if activation not in ACTIVATIONS:
        raise ValueError("out of range")
    return forward(shape.name, shape, activation, dtype)


def forward(name: str, shape: Shape, activation: str, dtype: str) -> Case:
    T, H, inner, E, K, _ = shape
    matrices = 3 if activation == "swiglu" else 2
    return Case(
        suite="moe",
        name=f"{name}-{activation}-{dtype}",
        params={**shape.params(), "act": activation, "dtype": dtype},
        work=work.moe_forward(T, H, inner, E, K, matrices, routed.chosen_by_any(shape), dtype),
        counts={"tokens": T},
        tolerance=TOLERANCE[dtype],
        inputs=partial(_inputs, shape, activation, dtype),
        drawn_inputs=partial(_tokens, shape, dtype),
        refresh=partial(routed.refresh, experts=E),
        oracle=partial(_oracle, top_k=K, activation=activation),
        oracle_flops_per_row=2 * K * matrices * H * inner,
        input_names=("x", "router", "up", "down"),
        output_shape=(T, H),
        arguments={"top_k": K, "activation": activation},
        fixed_inputs=3,
        experts=Experts(E, T * K, partial(routed.usage, top_k=K)),
    )


def _inputs(shape: Shape, activation: str, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    return *_tokens(shape, dtype, seed, device), *routed.weights(shape, activation, dtype, device)


def _tokens(shape: Shape, dtype: str, seed: int, device: str) -> tuple[Tensor, ...]:
    return (routed.tokens(shape, dtype, seed, device),)


def _oracle(
    x: Tensor, router: Tensor, up: Tensor, down: Tensor, *, top_k: int, activation: str, rows: Tensor | None = None
) -> Tensor:
    return reference.moe(x, router, up, down, Routing(top_k), activation=activation, rows=rows)
