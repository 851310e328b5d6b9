"""The noise and the roofs that the bundle of a calibration gives for its machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.errors import VerificationFailed
from groundspeed.evidence.calibration import Calibration, Length, Noise, Roof
from groundspeed.judge.floors import length_of
from groundspeed.judge.judgement import Judgement


def calibration_of(judgement: Judgement, identity: str) -> Calibration:
    record = judgement.record
    return Calibration(
        identity=identity,
        finished=record.run.finished,
        processes=record.declared_processes,
        noise=tuple(_noise(judgement)),
        roofs=tuple(_roofs(judgement)),
    )


def check_kept(kept: Calibration, judgement: Judgement) -> None:
    """Raise VerificationFailed if the floors or roofs kept in a run are not those of its calibration, judged again."""
    found = calibration_of(judgement, kept.identity)
    if not _same(asdict(kept), asdict(found)):
        raise VerificationFailed(f"its floors or roofs differ from those of its calibration {kept.identity[:12]}")


def _same(kept: Any, found: Any) -> bool:
    """Compare two values, numbers to within the rounding differences between numpy versions."""
    if isinstance(kept, dict):
        return isinstance(found, dict) and kept.keys() == found.keys() and all(_same(kept[k], found[k]) for k in kept)
    if isinstance(kept, tuple):
        return len(kept) == len(found) and all(map(_same, kept, found))
    if isinstance(kept, float):
        return math.isclose(kept, found, rel_tol=1e-9, abs_tol=1e-12)
    return bool(kept == found)


def _noise(judgement: Judgement) -> Iterator[Noise]:
    found: dict[tuple[str, Length], list[tuple[float, float]]] = {}
    for case in judgement.cases:
        for result in case.results:
            c = result.comparison
            if c is None or c.interval.n < judgement.record.declared_processes or not c.interval.sd > 0:
                continue
            error = c.interval.sd / math.sqrt(c.interval.n)
            key = case.clock, length_of(min(r.latency.median for r in case.results if r.latency))
            found.setdefault(key, []).append((c.interval.mean, c.interval.mean / error))
    for (clock, length), pairs in found.items():
        yield Noise(clock, length, *(tuple(values) for values in zip(*pairs, strict=True)))


def _roofs(judgement: Judgement) -> Iterator[Roof]:
    """Yield the roof of the largest copy, which no cache can hold, and that of the fastest matrix product of each
    dtype."""
    found: dict[str, list[Roof]] = {}
    for case in sorted(judgement.cases, key=lambda case: case.facts.bytes):
        rates = [r.rates for r in case.results if r.rates]
        name, dtype = case.facts.name, str(case.facts.params.get("dtype"))
        if not rates or case.clock != DEFAULT_CLOCK:
            continue
        if case.facts.params.get("op") == "copy":
            found["copy"] = [Roof("copy", dtype, max(rate.bytes for rate in rates), name)]
        elif case.facts.params.get("op") == "matmul":
            found.setdefault(dtype, []).append(Roof("matmul", dtype, max(rate.flops for rate in rates), name))
    for roofs in found.values():
        yield max(roofs, key=lambda roof: roof.rate)
