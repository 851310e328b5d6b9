"""The suite `gemm`: a plain matrix product."""

from __future__ import annotations

from groundspeed.suites.gemm.cases import (
    DTYPES,
    SHAPE_KEYS,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.gemm.contenders import COMPILED_BY, LIBRARY, contenders, preset_contenders, preset_skips

SUMMARY = "a matrix product a·bᵀ, as in a linear layer"
BASELINE = {"cpu": LIBRARY, "cuda": LIBRARY}
"""Declared before anything is measured; `--baseline` chooses another."""

__all__ = [
    "BASELINE",
    "COMPILED_BY",
    "DTYPES",
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
