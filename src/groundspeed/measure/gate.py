"""The gate: is what a contender returned right, and did it leave its inputs alone?

It never times a wrong kernel. Outputs are compared with the FP64 oracle: in full before anything is timed (where that
is affordable), and on a few random rows of timed calls, drawn after the call returned.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from groundspeed.case import Case

if TYPE_CHECKING:
    from torch import Tensor

FULL_FLOPS = 1_000_000_000
"""The oracle answers for every row where that takes at most this (a fraction of a second on one core)."""
ROWS_BEFORE, ROWS_TIMED = 256, 8

Errors = Mapping[str, float]


class Incorrect(Exception):
    """The contender is wrong, and how; `errors` as far as they could be computed."""

    def __init__(self, reason: str, errors: Errors | None = None) -> None:
        super().__init__(reason)
        self.errors = dict(errors or {})


def poison(case: Case, like: Any) -> None:
    """Leave NaN in freed memory of the output's size, so that an output never written shows."""
    import torch

    blocks = [torch.full(case.output_shape, float("nan"), dtype=like.dtype, device=like.device) for _ in range(2)]
    del blocks


def choose_rows(case: Case, limit: int) -> Tensor | None:
    """Random rows of the output, the very first and last among them; None for all."""
    import torch

    rows = 1
    for size in case.output_shape[:-1]:
        rows *= size
    if limit >= rows:
        return None
    drawn = {0, rows - 1} | {secrets.randbelow(rows) for _ in range(limit)}
    return torch.tensor(sorted(drawn))


def rows_before_timing(case: Case) -> int:
    return max(ROWS_BEFORE, FULL_FLOPS // case.oracle_flops_per_row)


def check(case: Case, inputs: Sequence[Any], output: Any, limit: int) -> Errors:
    """The errors of `output` against the oracle on at most about `limit` rows, or Incorrect."""
    import torch

    expected_dtype = inputs[0].dtype
    if not isinstance(output, torch.Tensor):
        raise Incorrect(f"returned {type(output).__name__}, not a tensor")
    if tuple(output.shape) != case.output_shape:
        raise Incorrect(f"returned shape {list(output.shape)}, not {list(case.output_shape)}")
    if output.dtype != expected_dtype or output.device != inputs[0].device:
        raise Incorrect(f"returned {output.dtype} on {output.device}, not {expected_dtype} on {inputs[0].device}")
    output = output.detach()
    if not bool(torch.isfinite(output).all()):
        raise Incorrect("returned NaN or infinity (memory that was never written looks like this)")
    rows = choose_rows(case, limit)
    with torch.no_grad():
        expected = case.oracle(*inputs, rows=rows)
    flat = output.reshape(-1, output.shape[-1])
    actual = (flat if rows is None else flat[rows.to(flat.device)]).double()
    errors = compare(actual, expected)
    for name, bound in case.tolerance.items():
        if not errors[name] <= bound:
            raise Incorrect(f"{name} error {errors[name]:.2g} is over the tolerance of {bound:.2g}", errors)
    return errors


def compare(actual: Tensor, expected: Tensor) -> Errors:
    """max and mean absolute error; max relative error where the reference is not near zero; RMS of the error over
    RMS of the reference."""
    difference = (actual - expected).abs()
    rms = expected.square().mean().sqrt()
    large = expected.abs() >= rms
    relative = difference[large] / expected[large].abs()
    return {
        "max_abs": float(difference.max()),
        "mean_abs": float(difference.mean()),
        "max_rel": float(relative.max()) if relative.numel() else 0.0,
        "rms_rel": float(difference.square().mean().sqrt() / rms) if rms > 0 else float(difference.max()),
    }


def check_inputs(inputs: Sequence[Any], pristine: Sequence[Any]) -> None:
    """Incorrect where an input is no longer what was handed in."""
    import torch

    for number, (now, before) in enumerate(zip(inputs, pristine, strict=True)):
        if now.shape != before.shape or not torch.equal(now, before):
            raise Incorrect(f"changed its input number {number + 1}")
