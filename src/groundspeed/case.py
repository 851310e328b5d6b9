"""Case and Contender: the words that suites and measure share."""

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
"""As cases call them, and as PyTorch does."""
FUNCTIONS = "functions"
"""The suite of what `gs.compare` is given, which no command can measure again."""
DEFAULT_CLOCK = "default"
CLOCKS = {
    "default": "device time, cold L2",
    "warm": "device time, warm L2",
    "graph": "device time in a CUDA graph",
    "eager": "eager calls back to back",
}
"""How work on a GPU can be timed (measure/cuda.py), in words."""


@dataclass(frozen=True)
class Experts:
    """Over whom the work of a case is spread by what its inputs say."""

    number: int
    choices: int
    """Of all tokens together."""
    usage: Callable[..., tuple[list[int], float]]
    """`usage(*inputs)`: the tokens of each expert, which are the same for every seed and after every `refresh`; and the
    balance loss, 1 where all are alike."""


@dataclass(frozen=True)
class Case:
    """One piece of work: op, shape, dtype, direction; with an oracle, a tolerance and the work it must do."""

    suite: str
    name: str
    params: Mapping[str, Scalar]
    work: Work
    counts: Mapping[str, int]
    """What one call processes: tokens, queries, samples."""
    tolerance: Mapping[str, float]
    inputs: Callable[[int, str], tuple[Any, ...]]
    """Random inputs from a seed, on a device."""
    refresh: Callable[[tuple[Any, ...], tuple[Any, ...]], None]
    """`refresh(inputs, earlier)`: cheaply write others into the inputs, made of what they were; `earlier` is a copy of
    that. A result kept from an earlier call is then wrong."""
    oracle: Callable[..., Any]
    """`oracle(*inputs, rows=None)`: the result in FP64 as [rows, last dimension], of the rows asked for or of all."""
    oracle_flops_per_row: int
    input_names: tuple[str, ...]
    """The random ones, then the fixed ones."""
    output_shape: tuple[int, ...]
    arguments: Mapping[str, Any]
    """Keyword arguments for every contender, besides the inputs."""
    output_dtype: str | None = None
    """As cases call it (`bf16`); None where it is that of the first input."""
    long_sums: Callable[[tuple[Any, ...], int], tuple[tuple[Any, ...], Any]] | None = None
    """Other inputs made of these, and about so many rows of their result, in which many terms of one sign are added up:
    whoever adds them in less than FP32 shows there. None for FP32, whose own sums are no better, and for short ones."""
    fixed_inputs: int = 0
    """How many of the inputs, the last ones, are the same whatever the seed and left alone by `refresh`: numbers that
    say where things lie."""
    drawn_inputs: Callable[[int, str], tuple[Any, ...]] | None = None
    """As `inputs`, the random ones alone; None where making the fixed ones again takes no time worth a function."""
    pieces: tuple[int, ...] = ()
    """Rows of the output with which parts begin that are work of their own; each is looked at as often as any other,
    however short it is. None: it is one."""
    experts: Experts | None = None
    aliases: tuple[str, ...] = ()
    """Other names of the same work: it is measured once."""
    clock: str = DEFAULT_CLOCK
    """On a GPU one of CLOCKS; a CPU has one clock."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def with_clock(case: Case, clock: str) -> Case:
    """The same work measured by another clock, which is then part of its name and its parameters."""
    return replace(
        case,
        name=f"{case.name}@{clock}",
        params={**case.params, "clock": clock},
        aliases=tuple(f"{alias}@{clock}" for alias in case.aliases),
        clock=clock,
    )


def by_its_clock(case: Case, params: Mapping[str, Scalar]) -> Case:
    """As parameters tell it, which leave out the default; ValueError where they do not, or there is no such clock."""
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
    """How a function can be called, in plain words that one process can tell another."""

    function: str
    parameters: tuple[tuple[str, int, bool], ...]
    """Of each its name, its kind as `inspect` counts them, and whether it can be left out."""


@dataclass(frozen=True)
class Contender:
    """An implementation that can do the cases of a suite."""

    suite: str
    name: str
    description: str
    build: Callable[[Case], Callable[..., Any]]
    """The callable that is timed, for one case. Compilation belongs to its first call, which is never timed."""
    absent: Callable[[str], str | None] = field(default=lambda device: None)
    """Why it cannot be used on this device at all (not installed, no such backend), or None."""
    supports: Callable[[Case, str], str | None] = supports_all
    """Why it cannot do this case on this device, or None."""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered before a timed interval and left after it, so that forcing a backend costs the contender nothing."""
    version: Callable[[], str] = field(default=lambda: "")
    tuning: str = ""
    """How it is fitted to the work at hand: what was chosen beforehand, and what its first call tries."""
    tries: bool = False
    """Whether its first call times what it might take, and must be alone with the device then."""
    source: str | None = None
    """Path of the file it comes from, for the hash in the record; None for what PyTorch ships."""
    parts: tuple[str, ...] = ()
    """Paths of other files that its kernel is made of."""
    signature: Signature | None = None
    """Of what `--with` brings; None where nobody knows, and where it is the suite's own."""
    launches: Callable[[Sequence[str]], str | None] = field(default=lambda kernels: None)
    """Why the kernels that it was seen to launch on a GPU are not those of what it is called, or None."""
    compiles: Callable[[Case, tuple[int, int]], None] | None = None
    """Calls its Triton kernel as the case does on a GPU of this compute capability, with tensors that have no memory:
    under a driver that launches nothing, this compiles what would be launched. None where it has no such kernel."""

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.source is None else (self.source, *self.parts)

    def source_hash(self) -> str | None:
        """Of all its files; None where it has none."""
        return joint_hash(Path(file).read_bytes() for file in self.files)


def joint_hash(contents: Iterable[bytes]) -> str | None:
    """The sha256 of one, or of the hashes of several one after the other; None of none."""
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    if len(hashes) < 2:
        return hashes[0] if hashes else None
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
