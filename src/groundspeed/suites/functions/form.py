"""What functions are given and return, as the parameters of a case state it: `x` is `16x1024`, or `int64:16` if its
dtype is not that of the result."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from groundspeed.case import TORCH_DTYPES, Scalar

DTYPES = ("fp32", "fp16", "bf16")
"""Dtypes of a result."""
ERROR = {"fp32": 2e-5, "fp16": 1e-3, "bf16": 6e-3}
"""Default tolerance, as for a matrix product: RMS error against FP64, over the RMS of the result, row by row."""
DRAWN = (*DTYPES, "fp8")
"""Dtypes of inputs that are drawn anew."""
BYTES = {
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
NAME, OUTPUT, DTYPE, TOLERANCE, FLOPS, BYTES_MOVED = "name", "output", "dtype", "tolerance", "flops", "bytes_moved"
CLOCK = "clock"
RESERVED = (NAME, OUTPUT, DTYPE, TOLERANCE, FLOPS, BYTES_MOVED, CLOCK, "causal", "direction")
MOST_ELEMENTS, MOST_WORK, MOST_INPUTS, MOST_DIMENSIONS, LONGEST_NAME = 2**48, 2**62, 64, 16, 64
WORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,47}", re.ASCII)
_TENSOR = re.compile(r"(?:([a-z0-9]{1,8}):)?([0-9]{1,15}(?:x[0-9]{1,15})*)", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w{0,63}")


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.dtype]

    @property
    def size(self) -> str:
        return "x".join(map(str, self.shape))

    def told(self, usual: str) -> str:
        return self.size if self.dtype == usual else f"{self.dtype}:{self.size}"


@dataclass(frozen=True)
class Form:
    inputs: Mapping[str, Tensor]
    """In the order of the call's arguments."""
    output: Tensor
    tolerance: float | None = None
    """None for the default of the dtype."""
    flops: int = 0
    """0 if the user gave no count; likewise for bytes. To count all inputs as read would be a guess: of a table a call
    may read only a few rows."""
    bytes_moved: int = 0
    name: str = ""
    """What the functions do: two runs under the same name do the same work."""

    @property
    def params(self) -> dict[str, Scalar]:
        usual = self.output.dtype
        found: dict[str, Scalar] = {NAME: self.name} if self.name else {}
        found |= {name: one.told(usual) for name, one in self.inputs.items()}
        found |= {OUTPUT: self.output.size, DTYPE: usual}
        if self.tolerance is not None:
            found[TOLERANCE] = self.tolerance
        return found | {key: n for key, n in ((FLOPS, self.flops), (BYTES_MOVED, self.bytes_moved)) if n}

    @property
    def drawn(self) -> tuple[int, ...]:
        """Positions of the inputs that are drawn anew: floating-point tensors, or all inputs if there are none."""
        kinds = [one.dtype in DRAWN for one in self.inputs.values()]
        return tuple(i for i, fraction in enumerate(kinds) if fraction or not any(kinds))

    @property
    def fixed(self) -> tuple[int, ...]:
        """Positions of the other inputs, which say where things lie."""
        return tuple(i for i in range(len(self.inputs)) if i not in self.drawn)


def form_of(params: Mapping[str, Scalar]) -> Form:
    """Return the form in a case's parameters. KeyError or ValueError if they describe none."""
    dtype = params[DTYPE]
    if dtype not in DTYPES:
        raise ValueError("not a dtype of a result")
    inputs = {name: _tensor(value, str(dtype)) for name, value in params.items() if name not in RESERVED}
    output = _tensor(params[OUTPUT], str(dtype))
    tolerance, name = params.get(TOLERANCE), params.get(NAME, "")
    if tolerance is not None and not (isinstance(tolerance, float) and 0.0 <= tolerance < 1.0):
        raise ValueError("a tolerance is relative to the result: at least 0 and less than 1")
    if not isinstance(name, str) or (name and not WORK_NAME.fullmatch(name)):
        raise ValueError("a name has at most 48 letters, digits and dashes")
    flops, moved = (_count(params.get(key, 0)) for key in (FLOPS, BYTES_MOVED))
    form = Form(inputs, output, tolerance, flops, moved, name)
    names_fit = all(_NAME.fullmatch(name) for name in inputs) and len(inputs) <= MOST_INPUTS
    known = {name: value for name, value in params.items() if name != CLOCK}
    if not form.drawn or not names_fit or form.params != known or [*form.params] != [*known]:
        raise ValueError("parameters are not in canonical form")
    return form


def _count(value: Scalar) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_WORK:
        raise ValueError("counts of work must be whole numbers from 0 to 2⁶²")
    return value


def _tensor(told: Scalar, usual: str) -> Tensor:
    found = _TENSOR.fullmatch(told) if isinstance(told, str) else None
    if found is None:
        raise ValueError("not a tensor size")
    tensor = Tensor(tuple(map(int, found[2].split("x"))), found[1] or usual)
    if tensor.dtype not in BYTES or not 0 < math.prod(tensor.shape) <= MOST_ELEMENTS:
        raise ValueError("out of range")
    if len(tensor.shape) > MOST_DIMENSIONS:
        raise ValueError("too many dimensions")
    return tensor


def name_of(dtype: object) -> str | None:
    """Return the name that cases have for a dtype of PyTorch, or None if they have none."""
    said = str(dtype).removeprefix("torch.")
    named = {theirs: ours for ours, theirs in TORCH_DTYPES.items()}.get(said, said)
    return named if named in BYTES else None
