"""The gain of a block of fused kernels over a block with one kernel for each step (requirement B4). In the first,
norms, residual sums and activations are part of other kernels; in the second, each has a kernel of its own. This is the
gain of the whole block, not of fusion alone: each side also has its own attention, and on Hopper ours has a product of
its own where that has an activation in it.

Only prompts in a CUDA graph count. Launching plays no role there, so fewer launches gain nothing, and only moving less
data does. Decoding steps and equally short prompts are left out: with so few rows ours also multiplies with a kernel of
its own and uses more kernels for the attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groundspeed.evidence.record import CaseFacts, Record
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.launches import GRAPH
from groundspeed.judge.statistics import Interval, t_interval, trimmed
from groundspeed.judge.stopping import log_ratios

SUITE = "inference"
"""The suite of whole models."""
FEW_ROWS, SOME_ROWS = 16, 128
"""The most tokens, over all sequences, for which ours multiplies with a kernel of its own (kernels/linear): for all
models, and for those whose matrices have at most SMALL_MATRIX elements."""
SMALL_MATRIX = 4 << 20
FEW = f"{FEW_ROWS} tokens ({SOME_ROWS} in small models)"
APART, FUSED = "sdpa", ("ours", "sdpa-compiled")
WIDENING = 4
"""Columns of the widest matrix of a block of the suite, for each of its rows."""
WANTED = 1.10
"""The gain that the specification asks for."""


@dataclass(frozen=True)
class Fusion:
    """The gain on one case, or over all of them. It is not a verdict and not part of Holm's family."""

    case: CaseFacts | None
    """None for the geometric mean over all cases, which decides if there are several."""
    contender: str
    theta: Interval
    """log(time of `APART` / time of the contender), over processes as for every speed-up."""

    @property
    def ratio(self) -> float:
        return math.exp(self.theta.mean)

    @property
    def enough(self) -> bool | None:
        """Whether the gain is over WANTED; None if the interval contains WANTED or there is no interval."""
        if self.theta.low > math.log(WANTED):
            return True
        return False if self.theta.high < math.log(WANTED) else None


def fusions(judgement: Judgement) -> tuple[Fusion, ...]:
    """Return, for each contender that fuses, the gain on each prompt in a graph, then their mean if there are
    several."""
    record, found = judgement.record, []
    measured = {contender.name for contender in record.measured}
    if record.run.suite != SUITE or APART not in measured:
        return ()
    for name in (name for name in FUSED if name in measured):
        cases = [
            case.facts
            for case in judgement.cases
            if case.clock == GRAPH
            and _is_prompt(case.facts)
            and case.result(name).latency
            and case.result(APART).latency
        ]
        by_case = [(case, centres) for case in cases if (centres := _centres(record, case, name))]
        found += [
            Fusion(case, name, t_interval([*centres.values()], record.protocol.confidence)) for case, centres in by_case
        ]
        if len(by_case) > 1 and (means := _means([centres for _, centres in by_case])):
            found.append(Fusion(None, name, t_interval(means, record.protocol.confidence)))
    return tuple(found)


def decisive(found: Sequence[Fusion], contender: str) -> Fusion | None:
    """Return the mean over all cases, so that the best case does not stand for all, or the case if there is only
    one."""
    own = [one for one in found if one.contender == contender]
    return own[0] if len(own) == 1 else next((one for one in own if one.case is None), None)


def _is_prompt(case: CaseFacts) -> bool:
    batch, tokens, width = (case.params.get(name) for name in ("B", "S", "d"))
    if "N" in case.params or not isinstance(batch, int) or not isinstance(tokens, int):
        return False
    is_small = isinstance(width, int) and WIDENING * width * width <= SMALL_MATRIX
    return batch * tokens > (SOME_ROWS if is_small else FEW_ROWS)


def _centres(record: Record, case: CaseFacts, contender: str) -> dict[int, float]:
    """Return process → its centre."""
    found = {}
    for process in sorted(record.finished_attempts):
        times = {name: record.seconds.get((process, case.name, name), {}) for name in (contender, APART)}
        if theta := log_ratios(times, contender, APART):
            found[process] = trimmed(theta).mean
    return found


def _means(by_case: Sequence[dict[int, float]]) -> list[float]:
    """Return the mean over the cases within each process that has all of them."""
    shared = set.intersection(*map(set, by_case))
    return [sum(centres[process] for centres in by_case) / len(by_case) for process in sorted(shared)]
