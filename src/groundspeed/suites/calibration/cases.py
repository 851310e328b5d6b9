"""The cases of calibration: work of every length, bound by memory, by arithmetic and by launching. Each device has at
least twenty cases well under and twenty well over the 50 µs that separate short work from long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from groundspeed.case import Case, Scalar
from groundspeed.errors import BadInput
from groundspeed.kernels import work
from groundspeed.suites.attention.cases import forward
from groundspeed.suites.attention.shapes import Shape
from groundspeed.suites.inputs import random_tensors, shift
from groundspeed.suites.told import case_told

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("fp32", "fp16", "bf16")
SHAPE_KEYS: dict[str, str] = {}
OPS = ("copy", "matmul", "attention")

COLUMNS = 1024
"""Columns of the copied FP32 matrix: rows of 4 KiB."""
MATMUL_ERROR = {"fp32": 2e-5, "fp16": 1e-3, "bf16": 6e-3}
"""RMS error against FP64, over the RMS of the product: about twice that of rounding the result, and in FP32 what sums
of some hundred products lose."""

_COPIES_KIB = {
    "cpu": (16, 32, 64, 96, 128, 192, 4096, 6144, 8192, 12288, 16384, 32768, 65536),
    "cuda": (*(1024 * n for n in (1, 2, 4, 8, 12, 16, 24)), *(1024 * n for n in (256, 384, 512, 768, 1024))),
}
_PRODUCTS = {
    "cpu": (16, 24, 32, 40, 48, 56, 64, 192, 256, 320, 384, 448, 512),
    "cuda": (256, 512, 768, 1024, 1280, 1536, 4096, 5120, 6144, 8192),
}
_SHAPES = {
    "cpu": (
        *(Shape(1, 1, S, 64) for S in (8, 16, 24, 32)),
        *(Shape(1, 2, S, 64) for S in (256, 384, 512)),
        Shape(2, 4, 128, 64),
    ),
    "cuda": (
        *(Shape(1, 1, S, 64) for S in (32, 64, 128, 256)),
        *(Shape(16384 // S, 2048 // D, S, D) for D in (64, 128) for S in (512, 2048, 8192)),
    ),
}
_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16", "fp16")}


def default_dtypes(device: str) -> tuple[str, ...]:
    return DTYPES


def all_cases() -> list[Case]:
    cases = [*preset_cases("standard", "cpu"), *preset_cases("standard", "cuda")]
    return list({case.name: case for case in cases}.values())


def preset_cases(preset: str, device: str) -> list[Case]:
    dtypes = _DTYPES[device]
    return [
        *(copy(kib) for kib in _COPIES_KIB[device]),
        *(matmul(n, dtype) for n in _PRODUCTS[device] for dtype in dtypes),
        *(attention(shape, dtypes[0], causal) for shape in _SHAPES[device] for causal in (False, True)),
    ]


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    raise BadInput("calibration has its own shapes; omit --shape")


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("calibration", params, _of_params)


def _of_params(params: dict[str, Scalar]) -> Case:
    op, dtype = params["op"], str(params["dtype"])
    numbers = [int(params[key]) for key in ("KiB", "n", *"BHSD") if key in params]
    if dtype not in DTYPES or min(numbers) < 1:
        raise ValueError("out of range")
    if op == "copy":
        return copy(int(params["KiB"]))
    if op == "matmul":
        return matmul(int(params["n"]), dtype)
    if op == "attention":
        B, H, S, D = (int(params[key]) for key in "BHSD")
        return attention(Shape(B, H, S, D), dtype, bool(params["causal"]))
    raise ValueError("unknown op")


def copy(kib: int) -> Case:
    shape = (kib * 256 // COLUMNS, COLUMNS)
    return Case(
        suite="calibration",
        name=f"copy-{kib}k-fp32" if kib % 1024 else f"copy-{kib // 1024}m-fp32",
        params={"op": "copy", "KiB": kib, "dtype": "fp32"},
        work=work.copy(shape[0] * shape[1], "fp32"),
        counts={},
        tolerance={"max_abs": 0.0},
        inputs=partial(random_tensors, (shape,), "fp32"),
        refresh=shift,
        oracle=_same,
        oracle_flops_per_row=COLUMNS,
        input_names=("x",),
        output_shape=shape,
        arguments={},
    )


def matmul(n: int, dtype: str) -> Case:
    return Case(
        suite="calibration",
        name=f"matmul-{n}-{dtype}",
        params={"op": "matmul", "n": n, "dtype": dtype},
        work=work.matmul(n, n, n, dtype),
        counts={},
        tolerance={"rms_rel": MATMUL_ERROR[dtype]},
        inputs=partial(random_tensors, ((n, n),) * 2, dtype),
        refresh=shift,
        oracle=_product,
        oracle_flops_per_row=2 * n * n,
        input_names=("a", "b"),
        output_shape=(n, n),
        arguments={},
    )


def attention(shape: Shape, dtype: str, causal: bool) -> Case:
    case = forward(f"attention-b{shape.B}-h{shape.H}-s{shape.S}-d{shape.D}", shape, dtype, causal)
    return replace(case, suite="calibration", params={"op": "attention", **case.params})


def _same(x: Tensor, *, rows: Tensor | None = None) -> Tensor:
    return (x if rows is None else x[rows.to(x.device)]).double()


def _product(a: Tensor, b: Tensor, *, rows: Tensor | None = None) -> Tensor:
    return _same(a, rows=rows) @ b.double()
