"""What a run declares before it measures, and the random draws that follow from the declaration.

The runner makes these draws and a replay makes them again: the same declaration gives the same orders. A draw sorts
names by a hash, so it depends on no library's random generator and can be checked in any language.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

NAME = "paired-blocks/5"
"""Random interleaved blocks in fresh processes, stopped on width (docs/protocol.md)."""
FOURTH_NAME = "paired-blocks/4"
"""As NAME, but a sample with more calls than unseen combinations of inputs used them again. The inputs of
short work were then in a warmer cache, and a result kept by content could be right."""
THIRD_NAME = "paired-blocks/3"
"""As the fourth, but on a GPU the cache was flushed by writing, and the writes went on during the timed launch after
it."""
SECOND_NAME = "paired-blocks/2"
"""As the third, but on a GPU the cache was cold only for the first launch of a batch, and host stalls were timed."""
FIRST_NAME = "paired-blocks/1"
"""As the second, but draws depended on the cases and contenders alone."""
BEFORE_THIRD = (FIRST_NAME, SECOND_NAME)
BEFORE_FOURTH = (*BEFORE_THIRD, THIRD_NAME)
NAMES = (*BEFORE_FOURTH, FOURTH_NAME, NAME)

MAX_NUMBER = 2**15 - 1
"""The largest process, attempt or worker number that the int16 columns of the samples hold."""
EXTENSIONS = {4: (8, 0.97), 8: (16, 0.965)}
"""Processes → (processes after a declared extension, confidence of each interval at both looks). With these confidences
the two looks together come to about 95% (docs/protocol.md)."""

PROCESSES = {"quick": 4, "standard": 8, "paper": 12}
"""Preset → number of processes, unless the user asks for another number."""
DEFAULT_PRESET = "standard"

MAX_LOOKS, MAX_BLOCKS = 16, 1_000_000
"""Far above any real use, and low enough that a replay finishes whatever was declared."""


@dataclass(frozen=True)
class Protocol:
    name: str
    preset: str
    processes: int
    looks: tuple[int, ...]
    """Block counts at which a process may stop on a case; at the last one it always stops."""
    half_width: float
    """A process stops at a look if the 95% half-width of every judged log ratio is at most this."""
    seed: int
    threads: int
    timeout_s: float
    budget_s: float | None
    """Measuring time of the whole run. Once it is spent, a case stops at its next look, whatever the half-width."""
    warmup_s: float
    input_sets: int
    sequential: int
    """Samples that each contender takes in a row after the blocks of a case, for comparison; 0 for none."""
    extension: int | None
    """Total number of processes if a verdict is UNCLEAR after `processes`; None if the run ends there."""
    isolated: bool
    """Whether each contender has a process of its own, instead of one process for all."""

    def __post_init__(self) -> None:
        if min(self.processes, self.threads, self.input_sets) < 1 or self.processes > MAX_NUMBER:
            raise ValueError(f"processes, threads and input_sets are at least 1, and processes at most {MAX_NUMBER}")
        if not self.looks or self.looks[0] < 1 or any(a >= b for a, b in zip(self.looks, self.looks[1:], strict=False)):
            raise ValueError("looks must increase")
        if len(self.looks) > MAX_LOOKS or self.looks[-1] > MAX_BLOCKS:
            raise ValueError(f"there are at most {MAX_LOOKS} looks, the last at block {MAX_BLOCKS:,} or before")
        if min(self.half_width, self.timeout_s, self.warmup_s) <= 0:
            raise ValueError("half_width, timeout_s and warmup_s are above 0")
        if not 0 <= self.sequential <= MAX_BLOCKS:
            raise ValueError(f"sequential is a number of samples, at most {MAX_BLOCKS:,}")
        if self.extension is not None and self.extension != EXTENSIONS.get(self.processes, (None,))[0]:
            known = ", ".join(f"{few} to {many}" for few, (many, _) in EXTENSIONS.items())
            raise ValueError(f"an extension goes from {known} processes")

    @property
    def confidence(self) -> float:
        """Confidence of each interval over processes, chosen so that the final result of the run holds with 95%."""
        return EXTENSIONS[self.processes][1] if self.extension else 0.95

    @property
    def process_budget_s(self) -> float | None:
        return None if self.budget_s is None else self.budget_s / self.processes


def draw(seed: int, names: Iterable[str], *labels: object) -> list[str]:
    """Return `names` in the random order that `seed` and `labels` (process, case, block, …) determine."""
    prefix, sha256 = f"{':'.join(map(str, (seed, *labels)))}:".encode(), hashlib.sha256
    return sorted(names, key=lambda name: sha256(prefix + name.encode()).digest())


def declared_seed(
    protocol: Protocol, cases: Iterable[str], contenders: Iterable[str], comparison: Iterable[str]
) -> int:
    """Return the seed of all draws of a run. It depends on everything that was declared (`comparison`: device,
    baseline, judged contenders, calibration): removing something or replacing the baseline afterwards would change
    every order."""
    declared: list[object] = [list(cases), list(contenders)]
    if protocol.name != FIRST_NAME:
        fields = dataclasses.asdict(protocol)
        unsaid = {"seed"} if protocol.isolated else {"seed", "isolated"}  # keeps the draws of runs before this field
        declared += [list(comparison), {k: v for k, v in fields.items() if k not in unsaid}]
    return derive_seed(protocol.seed, json.dumps(declared, sort_keys=True))


def inputs_seed(seed: int, process: int, attempt: int, case: str, worker: int, number: int) -> int:
    """Return the seed of a set of inputs with which a worker begins a case. Workers of a process count from 1, sets
    from 0."""
    return derive_seed(seed, process, attempt, case, worker, "inputs", number)


def derive_seed(seed: int, *labels: object) -> int:
    """Return a 63-bit seed for one use, derived from the run's seed and the labels of the use."""
    digest = hashlib.sha256(":".join(map(str, (seed, *labels))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
