"""The suite `huggingface`: what the drop-in for Transformers gains, in whole models that read, or write a word."""

from __future__ import annotations

from groundspeed.suites.huggingface.cases import (
    DTYPES,
    all_cases,
    case_of_params,
    default_dtypes,
    preset_cases,
    shape_cases,
)
from groundspeed.suites.huggingface.contenders import COMPILED_BY, contenders, preset_contenders, preset_skips
from groundspeed.suites.huggingface.shapes import SHAPE_KEYS

SUMMARY = "Llamas of Hugging Face Transformers, as they are and with groundspeed: prefill and the next token"
BASELINE = {"cpu": "sdpa", "cuda": "sdpa"}
"""Declared before anything is measured: what Transformers uses by default; `--baseline` chooses another."""

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
