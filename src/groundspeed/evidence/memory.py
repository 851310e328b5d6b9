"""The facts of a memory profile: memory alive over time, the peak of each phase, and the largest allocations there.

Schema history
  1  2026-11  first
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from groundspeed.errors import BadInput
from groundspeed.evidence.decode import decode, parse_json

SCHEMA = 1
LONGEST_NAME = 200
"""The most characters of the name of a phase."""


def is_name(name: object) -> bool:
    """Return whether a phase can have this name: text that every file can hold, so no surrogates."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


@dataclass(frozen=True)
class Allocation:
    """Memory that was allocated in one piece. What is unknown is None."""

    bytes: int
    shape: tuple[int, ...] | None
    dtype: str | None
    op: str | None
    """The operator that returned the first tensor in it."""
    where: str | None
    """File, line and function of the nearest caller outside PyTorch."""

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ValueError("an allocation has fewer than 0 bytes")


@dataclass(frozen=True)
class Phase:
    """All periods in which the phase of one name was open. Inside another phase the name is `outer/inner`."""

    name: str
    times: int
    peak_bytes: int
    """The most that was alive, including what was there before."""
    added_bytes: int
    """The most that was alive in addition to what was there when the phase began."""
    kept_bytes: int
    """What it left behind, summed over all periods; negative if it freed more than it allocated."""
    largest: tuple[Allocation, ...]
    """Allocations made in the profile and alive at this peak."""

    def __post_init__(self) -> None:
        if not self.name or self.times < 1 or not 0 <= self.added_bytes <= self.peak_bytes:
            raise ValueError("a phase needs a name, was open at least once, and added no more than its peak")


@dataclass(frozen=True)
class Span:
    """One period in which a phase was open."""

    name: str
    begin_s: float
    end_s: float

    def __post_init__(self) -> None:
        if not self.name or not 0 <= self.begin_s <= self.end_s:
            raise ValueError("a phase needs a name, and ends after it begins")


@dataclass(frozen=True)
class MemoryUse:
    schema: int
    device: Literal["cpu", "cuda"]
    device_name: str
    before_bytes: int
    """Alive when the profile began; on the host, earlier allocations are not counted."""
    after_bytes: int
    peak_bytes: int
    reserved_bytes: int | None
    """The most GPU memory that PyTorch held, in use or not."""
    resident_bytes: int | None
    """The most host memory that the process held, if Linux reports it."""
    phases: tuple[Phase, ...]
    """In the order in which they first began."""
    spans: tuple[Span, ...]
    times_s: tuple[float, ...]
    """Seconds since the profile began; `levels_bytes` has what was alive from each of these times on."""
    levels_bytes: tuple[int, ...]
    largest: tuple[Allocation, ...]
    """Allocations made in the profile and alive at its peak."""
    notes: tuple[str, ...]
    """What the profile did not see, and what went wrong."""

    def __post_init__(self) -> None:
        if len(self.times_s) != len(self.levels_bytes):
            raise ValueError("a timeline has as many times as levels")
        if min((self.before_bytes, self.after_bytes, *self.levels_bytes)) < 0:
            raise ValueError("fewer than 0 bytes are alive")
        if self.peak_bytes < max(self.before_bytes, self.after_bytes):
            raise ValueError("a peak is lower than the beginning or the end")


def plain(use: MemoryUse) -> dict[str, object]:
    return asdict(use)


def read(path: Path) -> MemoryUse:
    """Return the memory profile in a file. BadInput if it is none, or of another schema."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    found = parse_json(content, str(path))
    schema = found.get("schema") if isinstance(found, dict) else None
    if isinstance(schema, int) and schema != SCHEMA:
        raise BadInput(f"{path}: a memory profile of schema {schema}, and this groundspeed reads schema {SCHEMA}")
    return decode(MemoryUse, found, str(path))
