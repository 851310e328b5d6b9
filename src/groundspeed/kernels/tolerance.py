"""What the oracles of all ops allow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """The largest errors against the oracle at which a result counts as right (requirement B8).

    Relative errors are taken where the reference is not near zero, row by row: `max_rel` on elements above the RMS of
    their row, `rms_rel` as RMS of the error over RMS of the row, which finds a computation in a lower precision
    whatever the size of the outputs."""

    max_abs: float
    mean_abs: float
    max_rel: float
    rms_rel: float
