"""Case and Contender, the types that suites and measure share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groundspeed.kernels.work import Work

Scalar = str | int | float | bool

TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
"""Dtype as cases name it → as PyTorch names it."""
FUNCTIONS = "functions"
"""The suite of the functions given to `gs.compare`; no command can measure them again."""
DEFAULT_CLOCK = "default"
CLOCKS = {
    "default": "device time, cold L2",
    "warm": "device time, warm L2",
    "graph": "device time in a CUDA graph",
    "eager": "eager calls back to back",
}
"""The clocks for work on a GPU (measure/cuda.py), described in words."""


@dataclass(frozen=True)
class Experts:
    """How the inputs of a case distribute its work over experts."""

    number: int
    choices: int
    """The number of experts chosen, summed over all tokens."""
    usage: Callable[..., tuple[list[int], float]]
    """`usage(*inputs)`: the number of tokens of each expert, which is the same for every seed and after every
    `refresh`; and the balance loss, which is 1 if all experts are used alike."""


@dataclass(frozen=True)
class Case:
    """One piece of work (op, shape, dtype, direction), with its oracle, its tolerance and the work that it requires."""

    suite: str
    name: str
    params: Mapping[str, Scalar]
    work: Work
    counts: Mapping[str, int]
    """The number of items that one call processes, by kind: tokens, queries, samples."""
    tolerance: Mapping[str, float]
    inputs: Callable[[int, str], tuple[Any, ...]]
    """`inputs(seed, device)`: all inputs; the random ones are drawn from the seed."""
    refresh: Callable[[tuple[Any, ...], tuple[Any, ...]], None]
    """`refresh(inputs, earlier)`: cheaply overwrite the inputs with new values derived from `earlier`, a copy of their
    current values. A result cached from an earlier call is then wrong."""
    oracle: Callable[..., Any]
    """`oracle(*inputs, rows=None)`: the result in FP64 as [rows, last dimension], for the given rows or for all."""
    oracle_flops_per_row: int
    input_names: tuple[str, ...]
    """The random inputs come first, then the fixed ones."""
    output_shape: tuple[int, ...]
    arguments: Mapping[str, Any]
    """Keyword arguments for every contender, in addition to the inputs."""
    output_dtype: str | None = None
    """As cases name it (`bf16`); None if it is the dtype of the first input."""
    long_sums: Callable[[tuple[Any, ...], int], tuple[tuple[Any, ...], Any]] | None = None
    """`long_sums(inputs, limit)`: inputs derived from the given ones, and about `limit` rows of their result that are
    sums of many terms of one sign. An accumulation in less than FP32 shows up there. None for FP32 cases, whose own
    sums are no better, and for short sums."""
    enlarged: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    """`enlarged(inputs)`: inputs derived from the given ones, on which numbers between input and result overflow unless
    a kernel keeps them in range. The result itself does not."""
    fixed_inputs: int = 0
    """The number of inputs, at the end of the list, that do not depend on the seed and that `refresh` leaves alone,
    such as numbers that say where data lies."""
    drawn_inputs: Callable[[int, str], tuple[Any, ...]] | None = None
    """Like `inputs`, but makes only the random ones; None if making the fixed ones again takes too little time to
    matter."""
    pieces: tuple[int, ...] = ()
    """The first output row of each part that is independent work (a packed sequence, say). Every part is checked
    equally often, however short it is. Empty if the output is one part."""
    experts: Experts | None = None
    aliases: tuple[str, ...] = ()
    """Other names of the same work, which is measured once."""
    clock: str = DEFAULT_CLOCK
    """One of CLOCKS on a GPU; a CPU has only one clock."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def with_clock(case: Case, clock: str) -> Case:
    """Return the same work measured by another clock, which becomes part of its name and its parameters."""
    return replace(
        case,
        name=f"{case.name}@{clock}",
        params={**case.params, "clock": clock},
        aliases=tuple(f"{alias}@{clock}" for alias in case.aliases),
        clock=clock,
    )


def by_its_clock(case: Case, params: Mapping[str, Scalar]) -> Case:
    """Return the case with the clock named in `params`, which omit the default clock. Raise ValueError if they name the
    default clock or an unknown one."""
    if "clock" not in params:
        return case
    clock = params["clock"]
    if clock not in CLOCKS or clock == DEFAULT_CLOCK:
        raise ValueError("out of range")
    return with_clock(case, str(clock))


def supports_all(case: Case, device: str) -> str | None:
    return None


@dataclass(frozen=True)
class Signature:
    """How a function can be called, in plain values that one process can send to another."""

    function: str
    parameters: tuple[tuple[str, int, bool], ...]
    """Name, kind (the number that `inspect` gives it) and whether the parameter can be omitted, for each parameter."""


@dataclass(frozen=True)
class Contender:
    """An implementation that can do the cases of a suite."""

    suite: str
    name: str
    description: str
    build: Callable[[Case], Callable[..., Any]]
    """`build(case)`: the callable that is timed. Compilation belongs to its first call, which is never timed."""
    absent: Callable[[str], str | None] = field(default=lambda device: None)
    """`absent(device)`: why the contender cannot be used on this device at all (not installed, no such backend), or
    None."""
    supports: Callable[[Case, str], str | None] = supports_all
    """`supports(case, device)`: why the contender cannot do this case on this device, or None."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered before a timed interval and left after it, so that the contender's time does not include forcing a
    backend."""
    version: Callable[[], str] = field(default=lambda: "")
    tuning: str = ""
    """How the contender is tuned for the work: what was chosen beforehand, and what its first call tries."""
    tries: bool = False
    """Whether its first call times alternatives, and so needs the device to itself."""
    source: str | None = None
    """Path of the file that defines it, for the hash in the record; None for what PyTorch ships."""
    written: str | None = None
    """The file that Python names in a traceback of it, if that is not `source`."""
    parts: tuple[str, ...] = ()
    """Paths of the other files that its kernel is made of."""
    signature: Signature | None = None
    """Set for contenders from `--with`; None if Python cannot determine it, and for the suite's own contenders."""
    launches: Callable[[Sequence[str]], str | None] = field(default=lambda kernels: None)
    """`launches(kernels)`: why the kernels that it was seen to launch on a GPU do not fit its name, or None."""
    compiles: Callable[[Case, tuple[int, int]], None] | None = None
    """`compiles(case, capability)`: call its Triton kernel as the case does on a GPU of this compute capability, with
    tensors that have no memory. Under a driver that launches nothing, this compiles what would be launched. None if the
    contender has no such kernel."""

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.source is None else (self.source, *self.parts)

    def source_hash(self) -> str | None:
        """Return the hash of all its files; None if it has none."""
        return joint_hash(Path(file).read_bytes() for file in self.files)


def joint_hash(contents: Iterable[bytes]) -> str | None:
    """Return the sha256 of a single content, or the sha256 of the concatenated hashes of several; None for none."""
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
