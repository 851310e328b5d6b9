"""The suite `calibration`: the rates that this machine reaches, and the noise between identical contenders."""

from __future__ import annotations

from groundspeed.suites.calibration.cases import (
    DTYPES,
    SHAPE_KEYS,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.calibration.contenders import (
    AGAIN,
    ONCE,
    contenders,
    preset_contenders,
    preset_skips,
)

SUMMARY = "PyTorch's copies, matrix products and attention, each against itself: a machine's roofs and noise"
BASELINE = {"cpu": ONCE, "cuda": ONCE}
COMPILED_BY: tuple[str, ...] = ()

__all__ = [
    "AGAIN",
    "BASELINE",
    "COMPILED_BY",
    "DTYPES",
    "ONCE",
    "SHAPE_KEYS",
    "SUMMARY",
    "all_cases",
    "case_of_params",
    "contenders",
    "default_dtypes",
    "preset_cases",
    "preset_contenders",
    "preset_skips",
    "shape_cases",
]
