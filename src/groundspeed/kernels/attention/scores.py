"""Scores of the portable Triton kernels. They are in units of log2, with or without a soft-cap c·tanh(s/c)."""

from __future__ import annotations

import triton
import triton.language as tl

from groundspeed.kernels.attention.form import Form

LOG2_E = 1.4426950408889634


def units(form: Form) -> tuple[float, float]:
    """Return the cap in units of log2, and the factor that the scale is multiplied by."""
    return form.softcap * LOG2_E, 1 / form.softcap if form.softcap else LOG2_E


@triton.jit
def capped(scores, cap):
    """Return cap·tanh(scores), where `scores` are already divided by the cap. Small scores use the Taylor series, since
    the formula with exp2 loses all digits near 0."""
    square = scores * scores
    series = scores - scores * square * (0.3333333333333333 - 0.13333333333333333 * square)
    return cap * tl.where(square < 0.01, series, 1.0 - 2.0 / (tl.exp2(scores * 2.8853900817779268) + 1.0))
