"""What a contender must get right before it is timed, besides the ordinary inputs of its case: sums of many terms of
one sign, which accumulation in a low precision spoils, and large inputs, on which numbers between input and result
overflow."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from groundspeed.case import Case
from groundspeed.measure import gate
from groundspeed.measure.cuda import wait_for
from groundspeed.measure.entrant import Entrant
from groundspeed.measure.gate import Answer, Incorrect
from groundspeed.measure.guard import Guard
from groundspeed.measure.inputs import Inputs
from groundspeed.measure.toll import Toll

LATER = "right on its first call, wrong on a later one: "
SUMS_FACTOR = 1.65
"""The most that the error on long sums may be, relative to that of rounding once. Seen on sums of 512 to 4096 terms: at
most 1.03 with PyTorch's own code and anything that accumulates in FP32; 1.30 to 1.53 if the sum, or a few parts of it,
is rounded to the dtype once or twice more, which is not accumulation in the dtype; at least 1.82 if the sum is rounded
to the dtype after every 64 terms, or more often."""
ROWS_ENLARGED = 32
ENLARGED_ERROR = 0.25
"""The largest accepted RMS of the error on enlarged inputs, over that of the rows. Seen: at most 0.14 in 1,500 draws if
all scores are rounded to BF16, and 1 if they are clamped."""


@dataclass(frozen=True)
class Exam:
    """What a contender must get right before it is timed: the first set of inputs, and long sums and enlarged inputs if
    the case has them."""

    answer: Answer
    sums: tuple[tuple[Any, ...], Answer] | None = None
    enlarged: tuple[tuple[Any, ...], Answer] | None = None


def examine(case: Case, inputs: tuple[Any, ...], *, again: bool) -> Exam:
    """Return what a contender must get right. `again`: it was already examined on this work, with other inputs, by
    another clock or in another process, so that a few rows suffice."""
    if again:
        return Exam(gate.ask(case, inputs, gate.rows_timed(case)))
    return Exam(
        gate.ask(case, inputs, gate.rows_before_timing(case)), ask_sums(case, inputs), ask_enlarged(case, inputs)
    )


def ask_sums(case: Case, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Answer] | None:
    """Return inputs with long sums and the oracle's answer to them; None if the case has none."""
    import torch

    if case.long_sums is None:
        return None
    summed, rows = case.long_sums(inputs, gate.ROWS_BEFORE)
    with torch.no_grad():
        return summed, Answer(rows, case.oracle(*summed, rows=rows).cpu())


def ask_enlarged(case: Case, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], Answer] | None:
    """Return enlarged inputs and the oracle's answer to them; None if the case has none."""
    import torch

    if case.enlarged is None:
        return None
    with torch.no_grad():
        large = case.enlarged(inputs)
    return large, gate.ask(case, large, ROWS_ENLARGED)


def check_sums(output: Any, answer: Answer) -> None:
    """Raise Incorrect if the error on long sums of one sign is well above that of rounding an exact result. A sum
    accumulated in FP32 and rounded once is a hundredth above it; one accumulated in the dtype is half above it or more,
    growing with the number of terms."""
    flat = output.detach().reshape(-1, output.shape[-1])
    assert answer.rows is not None
    actual, expected = flat[answer.rows.to(flat.device)].double(), answer.expected.to(flat.device)
    error, rounding = ((x - expected).square().mean().sqrt() for x in (actual, expected.to(output.dtype).double()))
    if not error <= SUMS_FACTOR * rounding:
        raise Incorrect(
            f"its error on long sums is {float(error / rounding):.2f} times that of rounding the exact sums "
            f"once: it repeatedly rounds partial sums to {str(output.dtype).removeprefix('torch.')} or lower precision"
        )


def check_enlarged(output: Any, answer: Answer) -> None:
    """Raise Incorrect if a result on enlarged inputs is not finite, or far off."""
    flat = output.detach().reshape(-1, output.shape[-1])
    actual = (flat if answer.rows is None else flat[answer.rows.to(flat.device)]).cpu().double()
    expected = answer.expected
    error = float((actual - expected).norm() / expected.norm())
    if not error <= ENLARGED_ERROR:
        seen = f"its error is {error:.2g} of the result" if isfinite(error) else "it returned NaN or infinity"
        raise Incorrect(
            f"on large inputs, whose result is as small as ever, {seen}: numbers in between get out of range"
        )


def sit(case: Case, entrant: Entrant, exam: Exam, inputs: Inputs, guard: Guard, toll: Toll) -> None:
    """Call a contender on what is asked besides ordinary inputs; raise Incorrect if it is wrong."""
    for question, check in ((exam.sums, check_sums), (exam.enlarged, check_enlarged)):
        if question:
            with toll:
                own = _own(question[0], inputs)
                wait_for(toll.device)  # a contender's own streams do not wait for the copies
                output = entrant.call(own, case.arguments)
                inputs.check(inputs.diagonal()[0])  # some of them are shared with the exam
                try:
                    check(output, question[1])
                except Incorrect:
                    guard.check()
                    _look_closer(case, entrant, inputs, toll.device)
                    raise
                gate.spoil(output, inputs.storages)  # the next contender is asked the same


def _own(asked: tuple[Any, ...], inputs: Inputs) -> tuple[Any, ...]:
    """Return what is asked for one contender alone: copies of all that is not among the inputs, which are watched."""
    return tuple(x if x.untyped_storage().data_ptr() in inputs.storages else x.clone() for x in asked)


def _look_closer(case: Case, entrant: Entrant, inputs: Inputs, device: str) -> None:
    """Raise Incorrect if the result is wrong on ordinary inputs too, which says more than a failed exam."""
    if len(inputs) == 1:  # the answer to the first set is still needed
        return
    inputs.renew(len(inputs) - 1)
    wait_for(device)
    last = inputs.sets[-1]
    gate.check(case, last, entrant.call(last, case.arguments), gate.ask(case, last, gate.ROWS_TIMED), LATER)
