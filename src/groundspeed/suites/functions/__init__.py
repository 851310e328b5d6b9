"""The suite `functions`: what `gs.compare` is given. It has no cases and no contenders of its own; a case in a bundle
follows from its parameters alone."""

from __future__ import annotations

from groundspeed.suites.functions.form import DTYPES
from groundspeed.suites.functions.suite import BASELINE, COMPILED_BY, SHAPE_KEYS, SUITE, SUMMARY, Functions

_nobodys = Functions()
all_cases = _nobodys.all_cases
preset_cases = _nobodys.preset_cases
default_dtypes = _nobodys.default_dtypes
case_of_params = _nobodys.case_of_params
shape_cases = _nobodys.shape_cases
contenders = _nobodys.contenders
preset_contenders = _nobodys.preset_contenders
preset_skips = _nobodys.preset_skips

__all__ = [
    "BASELINE",
    "COMPILED_BY",
    "DTYPES",
    "SHAPE_KEYS",
    "SUITE",
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
