"""Symptoms of a contender: the facts of a bundle that show one, and how grave each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from groundspeed.judge.grading import sizes, traits
from groundspeed.judge.grading.targets import LAUNCH_BOUND_S
from groundspeed.judge.grading.traits import Evidence, Fact, Figure
from groundspeed.judge.lengths import QUADRATIC
from groundspeed.judge.roofline import FAR_BELOW
from groundspeed.judge.views import ANY

LESS = 0.85
"""A kind of work suffers if its speed against the baseline is below this share of that on other work."""
HALF = 0.5
TWICE = 2.0
SKIPPED, NOT_SKIPPED = 1.5, 1.25
"""Full time over causal time: above the first, masked blocks are skipped; below the second, they are not. The ideal is
2."""
SPREAD = 1.1
NEAR, NEAR_RMS = 0.5, 0.3
"""The shares of a tolerance above which an error is close to it. RMS errors are steady: code that rounds once stays
under a fifth."""
FIRST_CALL_S = 0.5

Seen = Iterator[tuple[float, Fact]]


def _suffers(found: Iterable[sizes.Against], at_most: float = 1.0) -> Seen:
    """Yield the pairs whose intervals show the first case slower than the second by more than LESS, and slower than the
    baseline."""
    return ((a.far / a.near, a.fact) for a in found if a.near < LESS * a.far and a.near < at_most)


def small(evidence: Evidence, contender: str) -> Seen:
    return _suffers(sizes.small_work(evidence, contender))


def odd(evidence: Evidence, contender: str) -> Seen:
    return _suffers(sizes.odd_lengths(evidence, contender))


def wide(evidence: Evidence, contender: str) -> Seen:
    return _suffers(sizes.wide_heads(evidence, contender))


def eager(evidence: Evidence, contender: str) -> Seen:
    for one, fact in traits.launch_overhead(evidence, contender):
        if one.graph and one.graph.saved.low > 0 and one.eager.mean > TWICE * one.graph.seconds.mean:
            yield one.eager.mean / one.graph.seconds.mean, fact


def kernels(evidence: Evidence, contender: str) -> Seen:
    return ((len(one.names), one.fact) for one in traits.kernels(evidence, contender) if len(one.names) > 1)


def latency(evidence: Evidence, contender: str) -> Seen:
    found = traits.under_the_roof(evidence, contender)
    return ((1 / one.share, one.fact) for one in found if one.share < FAR_BELOW and one.seconds < LAUNCH_BOUND_S)


def compute(evidence: Evidence, contender: str) -> Seen:
    return _low(evidence, contender, "compute")


def memory(evidence: Evidence, contender: str) -> Seen:
    return _low(evidence, contender, "memory")


def _low(evidence: Evidence, contender: str, bound: str) -> Seen:
    for one in traits.under_the_roof(evidence, contender):
        by_launches = one.share < FAR_BELOW and one.seconds < LAUNCH_BOUND_S
        if one.bound == bound and one.share < HALF and not by_launches:
            yield 1 / one.share, one.fact


def causal(evidence: Evidence, contender: str) -> Seen:
    """Leave out heads of a width at which it skips blocks on other work: in short rows the tile on the diagonal is a
    large part, so skipping gains less."""
    found = list(traits.causal_gain(evidence, contender))
    heads = {case.facts.name: case.facts.params.get("D") for case in evidence.judgement.cases}
    skips = {heads[one.fact.case] for one in found if one.low > SKIPPED}
    few = (one for one in found if one.high < NOT_SKIPPED and heads[one.fact.case] not in skips)
    return ((1 / one.high, one.fact) for one in few)


def quadratic(evidence: Evidence, contender: str) -> Seen:
    found = traits.memory_growth(evidence, contender)
    return ((one.exponent, one.fact) for one in found if one.exponent > QUADRATIC and one.matrices >= 1)


def spread(evidence: Evidence, contender: str) -> Seen:
    return ((one.ratio, one.fact) for one in traits.spread(evidence, contender) if one.ratio > SPREAD)


def near(evidence: Evidence, contender: str) -> Seen:
    found = traits.error_shares(evidence, contender)
    return ((one.part, one.fact) for one in found if one.part > (NEAR_RMS if one.error == "rms_rel" else NEAR))


def throttled(evidence: Evidence, contender: str) -> Seen:
    record = evidence.judgement.record
    for one in evidence.timed(contender):
        blocks = [
            bits for (_, case), of in record.throttle.items() if case == one.case.facts.name for bits in of.values()
        ]
        held = sum(bool(bits & ANY) for bits in blocks)
        if held:
            finished = [s for s in record.stops if record.finished_attempts.get(s.process) == s.attempt]
            taken = sum(s.blocks for s in finished if s.case == one.case.facts.name)
            yield held / taken, evidence.fact(one.case, Figure("throttled blocks", held / taken, "%"))


def timers(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        c = one.result.comparison
        if c and c.timers and c.timers.disagree(c.floor.value):
            apart = abs(c.timers.apart)
            yield apart, evidence.fact(one.case, Figure("difference between the timers", apart, "%"))


def warm_up(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        unstable = sum(o.warmup_stable is False for o in evidence.outcomes(one.case, contender))
        if unstable:
            figure = Figure("processes whose warm-up did not settle", unstable)
            yield unstable, evidence.fact(one.case, figure)


def first_call(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        outcomes = evidence.outcomes(one.case, contender)
        slowest = max((o.prepare_s for o in outcomes if o.prepare_s is not None), default=0.0)
        if slowest > FIRST_CALL_S:
            seen = (Figure("first call", slowest, "s"), Figure("median call", one.latency.median, "s"))
            yield slowest, evidence.fact(one.case, *seen)
