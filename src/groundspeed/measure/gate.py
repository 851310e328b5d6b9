"""The gate: is the result of a contender right, and did it leave its inputs alone?

A wrong kernel is never timed. Outputs are compared with the FP64 oracle: in full before anything is timed (if that is
affordable, and was not done before on the same work), and on a few random rows of timed calls, which are drawn after
the call has returned.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from groundspeed.case import TORCH_DTYPES, Case

if TYPE_CHECKING:
    from torch import Tensor

FULL_FLOPS = 1_000_000_000
"""The oracle answers for every row if that takes at most this many FLOPs (a fraction of a second on one core)."""
ROWS_BEFORE, ROWS_TIMED = 256, 8
TIMED_FLOPS = 150_000_000
"""Timed calls are checked on fewer rows if these take more FLOPs than this and no contender was brought along."""
ROW_FACTOR = 30
"""A single row may be this many times as far off as the tolerance of `rms_rel` permits on average."""
ON_THE_HOST = 1 << 14
"""Up to this many numbers are compared on the host: on a GPU each of a dozen steps takes as long as its launch."""
FEW_COLUMNS = 16
MOST_DIGITS = 17
"""Two floating-point numbers that differ also differ in this many significant digits."""

Errors = Mapping[str, float]


class Incorrect(Exception):
    """The contender is wrong, and why. `errors` has the error figures that could be computed."""

    def __init__(self, reason: str, errors: Errors | None = None) -> None:
        super().__init__(reason)
        self.errors = dict(errors or {})


POISONED_BYTES = 1 << 25
"""Bytes of freed memory that are poisoned before a first call, in blocks of the output's size, at least two of them."""


def poison(case: Case, like: Any) -> None:
    """Leave NaN in freed memory of the output's size, so that an output that is never written is noticed."""
    import torch

    def block() -> Tensor:
        return torch.full(case.output_shape, float("nan"), dtype=_output_dtype(case, like), device=like.device)

    first = block()
    blocks = [first, *(block() for _ in range(min(15, max(1, POISONED_BYTES // first.nbytes - 1))))]
    del first, blocks


def _output_dtype(case: Case, first: Any) -> Any:
    import torch

    return first.dtype if case.output_dtype is None else getattr(torch, TORCH_DTYPES[case.output_dtype])


def spoil(output: Any, inputs: Collection[int]) -> None:
    """Overwrite an output with NaN once it is no longer needed, unless it lies in one of the storages of the inputs. A
    result that is kept and returned again is then noticed, and no right answer is left in memory for the next
    contender."""
    import torch

    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or 0 in output.stride():
        return
    if output.untyped_storage().data_ptr() not in inputs:
        with torch.inference_mode():  # here any tensor may be written to, including one made in this mode
            output.fill_(float("nan"))


def choose_rows(case: Case, limit: int) -> Tensor | None:
    """Return random rows of the output, including the first and the last; None for all rows."""
    import torch

    rows = 1
    for size in case.output_shape[:-1]:
        rows *= size
    if limit >= rows:
        return None
    generator = torch.Generator().manual_seed(secrets.randbits(62))  # not PyTorch's own, which others can seed
    drawn = [torch.tensor([0, rows - 1]), torch.randint(rows, (limit,), generator=generator)]
    if case.pieces:
        ends = torch.tensor([*case.pieces, rows])
        begin, size = ends[:-1], ends.diff()
        which = torch.randint(len(begin), (limit,), generator=generator)
        place = torch.rand(limit, generator=generator, dtype=torch.float64)
        drawn.append(begin[which] + (place * size[which]).long())
        if limit >= 2 * len(begin):
            drawn += [begin, begin + size - 1]
    return torch.cat(drawn).unique()


def rows_before_timing(case: Case) -> int:
    return max(ROWS_BEFORE, FULL_FLOPS // case.oracle_flops_per_row)


def rows_timed(case: Case) -> int:
    """Return how many rows of a timed call to check, fewer if they are expensive; the first and last come on top."""
    return max(2, min(ROWS_TIMED, TIMED_FLOPS // case.oracle_flops_per_row))


@dataclass(frozen=True)
class Answer:
    """The oracle's answer to some inputs, on some rows of the output, or on all (`rows` is None)."""

    rows: Tensor | None
    expected: Tensor
    """In host memory, where no contender's kernel can reach it."""


def ask(case: Case, inputs: Sequence[Any], limit: int) -> Answer:
    """Return the oracle's answer on at most about `limit` random rows."""
    import torch

    rows = choose_rows(case, limit)
    with torch.no_grad():
        return Answer(rows, case.oracle(*inputs, rows=rows).cpu())


def ask_again(case: Case, inputs: Sequence[Any], answer: Answer) -> Answer:
    """Return the oracle's answer to other inputs on the same rows."""
    import torch

    with torch.no_grad():
        return replace(answer, expected=case.oracle(*inputs, rows=answer.rows).cpu())


def snapshot(output: Any) -> Any:
    """Return what a tensor holds at this moment: a result that is computed later comes too late."""
    import torch

    return output.detach().clone() if type(output) is torch.Tensor else output


def check_plain(output: Any) -> None:
    """Raise Incorrect for an instance of a tensor subclass, which may compute its content when it is inspected."""
    import torch

    if isinstance(output, torch.Tensor) and type(output) not in (torch.Tensor, torch.nn.Parameter):
        raise Incorrect(f"returned {type(output).__name__}, not a plain tensor")


def check(case: Case, inputs: Sequence[Any], output: Any, answer: Answer, when: str = "") -> Errors:
    """Return the errors of `output` against the oracle's answer, or raise Incorrect with a reason that begins with
    `when`."""
    import torch

    expected_dtype = _output_dtype(case, inputs[0])
    if not isinstance(output, torch.Tensor):
        raise Incorrect(f"{when}returned {type(output).__name__}, not a tensor")
    if tuple(output.shape) != case.output_shape:
        raise Incorrect(f"{when}returned shape {list(output.shape)}, not {list(case.output_shape)}")
    if output.dtype != expected_dtype or output.device != inputs[0].device:
        raise Incorrect(f"{when}returned {output.dtype} on {output.device}, not {expected_dtype} on {inputs[0].device}")
    output = output.detach()
    if not all(map(isfinite, torch.stack(torch.aminmax(output)).tolist())):  # aminmax propagates NaN
        first = (~output.isfinite()).nonzero()[0].tolist()
        raise Incorrect(
            f"{when}returned NaN or infinity, first at {_named(case, first)}, which is {float(output[tuple(first)])} "
            "(possible causes: memory that was never written, 0/0, a result kept from an earlier call, since results "
            "are overwritten between calls)"
        )
    rows, expected = answer.rows, answer.expected
    flat = output.reshape(-1, output.shape[-1])
    actual = flat if rows is None else flat[rows.to(flat.device)]
    where = "cpu" if expected.numel() <= ON_THE_HOST else output.device
    actual, expected = actual.to(where).double(), expected.to(where)
    errors = compare(actual, expected)
    for name, bound in case.tolerance.items():
        if not errors[name] <= bound:
            said = over_tolerance(name, errors[name], bound)
            raise Incorrect(f"{when}{said}; {_worst(case, actual, expected, rows)}", errors)
    most = ROW_FACTOR * case.tolerance.get("rms_rel", 0.0)
    if most and (worst := _worst_row(actual, expected)) > most:
        said = f"the error of one row is {worst:.2g} of its size, more than {ROW_FACTOR} times the tolerance"
        raise Incorrect(f"{when}{said}; {_worst(case, actual, expected, rows)}", errors)
    return errors


def over_tolerance(name: str, error: float, bound: float) -> str:
    """Say that an error is over its bound, with two digits each, or as many as it takes to tell them apart."""
    digits = next((n for n in range(2, MOST_DIGITS) if f"{error:.{n}g}" != f"{bound:.{n}g}"), MOST_DIGITS)
    return f"{name} error {error:.{digits}g} is over the tolerance of {bound:.{digits}g}"


def _worst_row(actual: Tensor, expected: Tensor) -> float:
    """Return the largest RMS error of a row, over the RMS of this row or of all, whichever is larger. `rms_rel`
    is averaged: a few wrong rows among very many do not show in it, nor do small ones if there are few columns."""
    squares = expected.square().mean(-1)
    size = squares.clamp(min=float(squares.mean())).sqrt()
    error = (actual - expected).square().mean(-1).sqrt()
    return float((error / size.masked_fill(size == 0, 1.0)).max())


def _worst(case: Case, actual: Tensor, expected: Tensor, rows: Tensor | None) -> str:
    """Describe where the error is largest: `out[0, 3, 17, 5] of [1, 8, 64, 64] is 0.25, the oracle has 0.5`."""
    row, column = divmod(int((actual - expected).abs().argmax()), actual.shape[-1])
    values = float(actual[row, column]), float(expected[row, column])
    place, index = row if rows is None else int(rows[row]), [column]
    for size in reversed(case.output_shape[:-1]):
        place, i = divmod(place, size)
        index.append(i)
    return f"{_named(case, index[::-1])} is {values[0]:.6g}, the oracle has {values[1]:.6g}"


def _named(case: Case, index: Sequence[int]) -> str:
    return f"out{[*index]} of {list(case.output_shape)}"


def check_this_call(block: int, checked_before: bool, first_look: int, one_in: int) -> bool:
    """Return whether to compare the output of the call that has just returned, drawn afterwards so that no contender
    can know.

    One call in `one_in` is compared on average, and at least one in the first half of the blocks before the first look:
    a worker that is lost right before the look must not leave a contender unchecked."""
    left = one_in if checked_before else min(one_in, first_look // 2 - block)
    return secrets.randbelow(max(1, left)) == 0


def compare(actual: Tensor, expected: Tensor) -> Errors:
    """Return the maximum and mean absolute error, the maximum relative error where the reference is not near zero, and
    the RMS of the error over the RMS of the reference.

    The last two are taken row by row: under a causal mask the first rows are large and the last ones small, and a wrong
    last row would be hidden behind the others. With few columns a row may be near zero by chance, so they are taken
    over the whole. All four are fetched at once, since each number waits for the device."""
    import torch

    difference = (actual - expected).abs()
    row_rms = expected.square().mean(dim=-1 if expected.shape[-1] >= FEW_COLUMNS else None, keepdim=True).sqrt()
    large = (expected.abs() >= row_rms) & (expected != 0)
    relative = (difference / expected.abs()).masked_fill(~large, 0.0)
    scaled = difference / row_rms.masked_fill(row_rms == 0, 1.0)
    errors = difference.max(), difference.mean(), relative.max(), scaled.square().mean().sqrt()
    return dict(zip(("max_abs", "mean_abs", "max_rel", "rms_rel"), torch.stack(errors).tolist(), strict=True))
