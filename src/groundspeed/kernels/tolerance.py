"""The tolerance of an op: the errors that its oracle allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """The largest errors against the oracle at which a result counts as right (requirement B8).

    Relative errors are taken row by row, where the reference is not near zero: `max_rel` over the elements above the
    RMS of their row; `rms_rel` is the RMS of the error over the RMS of the row, which detects a computation in a lower
    precision whatever the magnitude of the outputs."""

    max_abs: float
    mean_abs: float
    max_rel: float
    rms_rel: float
