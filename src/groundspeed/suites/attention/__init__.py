"""The suite `attention`: softmax(QKᵀ·scale)V, forward."""

from __future__ import annotations

from groundspeed.suites.attention.cases import (
    DTYPES,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.attention.contenders import COMPILED_BY, contenders, preset_contenders, preset_skips
from groundspeed.suites.attention.shapes import SHAPE_KEYS

SUMMARY = "softmax(QKᵀ·scale)V, forward, full and causal"
BASELINE = {"cpu": "sdpa-math", "cuda": "sdpa-cudnn"}
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
