"""A calibration for people: the roofs of the machine, and the differences that its noise alone produces."""

from __future__ import annotations

import math
from collections.abc import Iterator

from groundspeed.case import CLOCKS
from groundspeed.evidence.calibration import Calibration, Noise, Roof
from groundspeed.judge.floors import LEAST, alarm, floor_of
from groundspeed.judge.limits import Peaks
from groundspeed.report import text

FAMILY = 36
"""The number of cases in a sweep."""


def roof_lines(calibration: Calibration, peaks: Peaks | None) -> Iterator[str]:
    for roof in calibration.roofs:
        datasheet = _datasheet(roof, peaks)
        share = f", {roof.rate / datasheet:.0%} of the datasheet" if datasheet else ""
        yield f"{roof.what} {roof.dtype}: {rate_text(roof)}{share} ({text.safe(roof.case)})"


def rate_text(roof: Roof) -> str:
    if roof.what == "copy":
        return f"{text.significant(roof.rate / 1e9)} GB/s"
    size, name = text.flop_rate_unit(roof.rate)
    return f"{text.significant(roof.rate / size)} {name}"


def _datasheet(roof: Roof, peaks: Peaks | None) -> float | None:
    if peaks is None:
        return None
    return peaks.bandwidth if roof.what == "copy" else peaks.flops.get(roof.dtype)


def noise_lines(calibration: Calibration, device: str) -> Iterator[str]:
    for noise in calibration.noise:
        yield f"{_work(noise, device)}: {_noise(noise, calibration.processes)}"


def _work(noise: Noise, device: str) -> str:
    clock = f", {CLOCKS.get(noise.clock, text.safe(noise.clock))}" if device == "cuda" else ""
    return f"{noise.length} work{clock}"


def _noise(noise: Noise, processes: int) -> str:
    count = len(noise.estimates)
    if count < LEAST:
        return f"{text.plural(count, 'comparison')}, but a floor needs {LEAST}"
    rms = math.sqrt(sum(x * x for x in noise.estimates) / count)
    one, many = (math.expm1(floor_of(noise.estimates, together)) for together in (1, FAMILY))
    said = f"floor {one:.2%} for one case, {many:.2%} for {FAMILY} (RMS {rms:.2%} of {count} comparisons)"
    return f"{said}; ALARM: a contender seems to differ from itself" if alarm(noise.ts, processes) else said


def alarms(calibration: Calibration) -> list[Noise]:
    """Return the kinds of work on which the machine can give no verdict."""
    return [n for n in calibration.noise if len(n.estimates) >= LEAST and alarm(n.ts, calibration.processes)]
