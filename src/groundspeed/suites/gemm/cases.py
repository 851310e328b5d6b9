"""The cases of a matrix product (B3): a [M, K] · bᵀ of b [N, K], as a linear layer has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from groundspeed.case import Case, Scalar
from groundspeed.errors import BadInput
from groundspeed.kernels import work
from groundspeed.suites.inputs import random_tensors, shift
from groundspeed.suites.shape_text import parts_of, whole_number
from groundspeed.suites.told import case_told

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("fp32", "fp16", "bf16", "fp8")
"""FP8 is e4m3; its result is BF16."""
SHAPE_KEYS = {"M": "rows", "N": "columns", "K": "length of the sums"}
MAX_SIZE, MAX_FLOPS = 2**30, 2**62
ERROR = {"fp32": 2e-5, "fp16": 1e-3, "bf16": 6e-3, "fp8": 6e-3}
"""RMS error against FP64, over the RMS of the result, row by row: about twice that of rounding the result, and in FP32
what sums of some thousand products lose."""
_DEFAULT_DTYPES = {"cpu": ("fp32",), "cuda": ("bf16", "fp16", "fp8")}


class Shape(NamedTuple):
    M: int
    N: int
    K: int

    @property
    def name(self) -> str:
        return f"{self.M}x{self.N}x{self.K}"


SMALL = tuple(Shape(n, n, n) for n in (64, 128, 256, 512))
"""Shapes that a CPU can do."""
SQUARE = tuple(Shape(n, n, n) for n in (1024, 2048, 4096, 8192))
LAYERS = (
    Shape(8192, 11008, 4096),
    Shape(8192, 4096, 11008),
    Shape(2048, 11008, 4096),
    Shape(2048, 4096, 11008),
    Shape(8192, 12288, 4096),
    Shape(65536, 2048, 768),
    Shape(4099, 11016, 4104),
)
"""The first one is that of the specification (B9); the last one has odd tiles everywhere."""
FEW_ROWS = tuple(Shape(M, 11008, 4096) for M in (16, 64, 256))
SHAPES = (*SMALL, *SQUARE, *LAYERS, *FEW_ROWS)


def default_dtypes(device: str) -> tuple[str, ...]:
    return _DEFAULT_DTYPES[device]


def all_cases() -> list[Case]:
    return [forward(shape, dtype) for dtype in DTYPES for shape in SHAPES if _fits(shape, dtype)]


def preset_cases(preset: str, device: str) -> list[Case]:
    """Return what a preset measures if no case is asked for. Larger shapes are for GPUs: a CPU would take days."""
    quick = {"cpu": SMALL[2:], "cuda": (SQUARE[2], LAYERS[0])}
    whole = {"cpu": SMALL, "cuda": (*SQUARE, *LAYERS, *FEW_ROWS)}
    shapes = (quick if preset == "quick" else whole)[device]
    dtypes = _DEFAULT_DTYPES[device][:1] if preset == "quick" else _DEFAULT_DTYPES[device]
    return [forward(shape, dtype) for dtype in dtypes for shape in shapes if _fits(shape, dtype)]


def _fits(shape: Shape, dtype: str) -> bool:
    return dtype != "fp8" or not (shape.N % 16 or shape.K % 16)


def shape_cases(text: str, dtypes: Sequence[str]) -> list[Case]:
    """Return the cases of a shape that a user writes, `M=777,N=4096`; the default of each number is 4096."""
    numbers = {key: whole_number(part, "M=777,N=4096") for key, part in parts_of(text, SHAPE_KEYS).items()}
    shape = Shape(*(numbers.get(key, 4096) for key in SHAPE_KEYS))
    if "fp8" in dtypes and not _fits(shape, "fp8"):
        raise BadInput(f"--shape {text:.200}: N and K must be multiples of 16 in FP8; choose others, or another dtype")
    cases = [forward(shape, dtype) for dtype in dtypes]
    if any(case.work.flops > MAX_FLOPS for case in cases):
        raise BadInput(f"--shape {text}: that is more work than any machine can do; choose smaller numbers")
    return cases


def case_of_params(params: dict[str, Scalar]) -> Case:
    return case_told("gemm", params, _of_params)


def _of_params(params: Mapping[str, Scalar]) -> Case:
    told, dtype = [params[key] for key in SHAPE_KEYS], str(params["dtype"])
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 < n <= MAX_SIZE for n in told):
        raise ValueError("out of range")
    shape = Shape(*map(int, told))
    if dtype not in DTYPES or not _fits(shape, dtype):
        raise ValueError("out of range")
    return forward(shape, dtype)


def forward(shape: Shape, dtype: str) -> Case:
    M, N, K = shape
    return Case(
        suite="gemm",
        name=f"{shape.name}-{dtype}",
        params={"M": M, "N": N, "K": K, "dtype": dtype},
        work=work.matmul(M, N, K, dtype),
        counts={},
        tolerance={"rms_rel": ERROR[dtype]},
        inputs=partial(random_tensors, ((M, K), (N, K)), dtype),
        refresh=shift,
        oracle=_oracle,
        oracle_flops_per_row=2 * N * K,
        input_names=("a", "b"),
        output_shape=(M, N),
        arguments={},
        output_dtype="bf16" if dtype == "fp8" else None,
    )


def _oracle(a: Tensor, b: Tensor, *, rows: Tensor | None = None) -> Tensor:
    return (a if rows is None else a[rows.to(a.device)]).double() @ b.double().T
