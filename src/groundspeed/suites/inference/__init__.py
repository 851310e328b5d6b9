"""The suite `inference`: whole models that read a prompt, or write the next token."""

from __future__ import annotations

from groundspeed.suites.inference.cases import (
    DTYPES,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.inference.contenders import COMPILED_BY, contenders, preset_contenders, preset_skips
from groundspeed.suites.inference.shapes import SHAPE_KEYS

SUMMARY = "whole models, forward: prefill and the next token"
BASELINE = {"cpu": "sdpa", "cuda": "sdpa-compiled"}
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
