"""The suite `moe`: a mixture of experts, forward: routing, both products, and the weighted sum."""

from __future__ import annotations

from groundspeed.suites.moe.cases import (
    DTYPES,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.moe.contenders import COMPILED_BY, contenders, preset_contenders, preset_skips
from groundspeed.suites.moe.shapes import SHAPE_KEYS

SUMMARY = "a mixture of experts, forward, including its routing"
BASELINE = {"cpu": "expert-loop", "cuda": "grouped-mm"}
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
