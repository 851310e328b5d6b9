"""What a bundle shows of how a contender works: measured facts for checklists and diagnoses.

A fact names the bundle, the case and the figures that it rests on. Only results that PASSED count."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from groundspeed.case import DEFAULT_CLOCK
from groundspeed.evidence.record import Outcome
from groundspeed.judge.figures import Latency
from groundspeed.judge.grading.targets import LAUNCH_BOUND_S
from groundspeed.judge.judgement import CaseJudgement, Judgement, Result
from groundspeed.judge.launches import LaunchOverhead, launch_overheads
from groundspeed.judge.roofline import Bound, intensity, roofs_of_case, share

Unit = Literal["s", "B", "×", "%", ""]


class Figure(NamedTuple):
    name: str
    value: float
    unit: Unit = ""


@dataclass(frozen=True)
class Fact:
    bundle: str
    """The identity of the bundle."""
    case: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Evidence:
    """A verified bundle."""

    identity: str
    judgement: Judgement

    def fact(self, case: CaseJudgement | str, *figures: Figure) -> Fact:
        return Fact(self.identity, case if isinstance(case, str) else case.facts.name, figures)

    @property
    def suite(self) -> str:
        return self.judgement.record.run.suite

    def case(self, name: str) -> CaseJudgement:
        return next(case for case in self.judgement.cases if case.facts.name == name)

    def measured(self, contender: str) -> bool:
        return any(c.name == contender for c in self.judgement.record.measured)

    def outcomes(self, case: CaseJudgement, contender: str) -> list[Outcome]:
        """Return the outcomes of a contender on a case in finished attempts."""
        record = self.judgement.record
        found = record.outcomes_of_contender.get((case.facts.name, contender), [])
        return [o for o in found if record.finished_attempts.get(o.process) == o.attempt]

    def timed(self, contender: str) -> Iterator[Timed]:
        """Yield the cases on which a contender passed."""
        if self.measured(contender):
            for case in self.judgement.cases:
                result = case.result(contender)
                if result.status == "PASSED" and result.latency:
                    yield Timed(case, result, result.latency)


class Timed(NamedTuple):
    case: CaseJudgement
    result: Result
    latency: Latency

    def param(self, name: str) -> Any:
        return self.case.facts.params.get(name)

    def length(self) -> int | None:
        """Return the number of queries and of keys if these are equal, else None."""
        value = self.param("S")
        return value if isinstance(value, int) and self.param("N") in (None, 0, value) else None

    def keys(self) -> int | None:
        value = self.param("N") or self.param("S")
        return value if isinstance(value, int) else None

    def but(self, *names: str) -> tuple[tuple[str, Any], ...]:
        """Return all parameters but these as a key for grouping cases."""
        return but(self.case, *names)

    def size_apart(self, other: Timed) -> str | None:
        """Return the size in which it differs from another case if all other parameters are equal, else None."""
        here, there = self.case.facts.params, other.case.facts.params
        names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
        sizes = [name for name in names if all(type(params.get(name)) is int for params in (here, there))]
        return sizes[0] if len(names) == len(sizes) == 1 else None


def but(case: CaseJudgement, *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((k, v) for k, v in case.facts.params.items() if k not in names))


def groups(found: Iterator[Timed], key: Callable[[Timed], object]) -> list[list[Timed]]:
    by: dict[object, list[Timed]] = {}
    for one in found:
        by.setdefault(key(one), []).append(one)
    return list(by.values())


def by_default(evidence: Evidence, contender: str) -> Iterator[Timed]:
    return (one for one in evidence.timed(contender) if one.case.clock == DEFAULT_CLOCK)


ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


class Growth(NamedTuple):
    exponent: float
    """The power of the length that memory follows, for each head of each sample: 1 is O(N), 2 a whole matrix of
    scores."""
    matrices: float
    """The memory at the longest length, in matrices of scores in the case's dtype."""
    fact: Fact


def memory_growth(evidence: Evidence, contender: str) -> Iterator[Growth]:
    """Yield the growth of memory between the longest sequence of each kind and the longest with at most half its
    length."""
    cases = (one for one in by_default(evidence, contender) if one.length() and one.result.memory.extra_bytes)
    for alike in groups(cases, lambda one: one.but("S", "B")):
        alike.sort(key=lambda one: one.length() or 0)
        longest, length = alike[-1], alike[-1].length() or 0
        shorter = [one for one in alike if 2 * (one.length() or 0) <= length]
        if shorter:
            a, b = (_bytes_a_head(one) for one in (shorter[-1], longest))
            ratio = length / (shorter[-1].length() or 1)
            exponent = math.log(b / a) / math.log(ratio)
            sizes = [
                Figure(f"S={one.length()} memory per head", _bytes_a_head(one), "B") for one in (shorter[-1], longest)
            ]
            matrices = b / (length * length * ITEM_BYTES.get(str(longest.param("dtype")), 4))
            yield Growth(exponent, matrices, evidence.fact(longest.case, *sizes, Figure("power of S", exponent)))


def _bytes_a_head(one: Timed) -> float:
    batch, heads = (value if isinstance(value := one.param(name), int) and value > 0 else 1 for name in ("B", "H"))
    return (one.result.memory.extra_bytes or 0) / (batch * heads)


class Gain(NamedTuple):
    low: float
    high: float
    fact: Fact


def causal_gain(evidence: Evidence, contender: str) -> Iterator[Gain]:
    """Yield the time of the full mask divided by that of the causal mask, for shapes on which the latter needs about
    half the work and launches do not set the time."""
    for pair in groups(by_default(evidence, contender), lambda one: one.but("causal")):
        full, causal = (next((o for o in pair if o.param("causal") is mask), None) for mask in (False, True))
        if full and causal and full.case.facts.flops > 1.8 * causal.case.facts.flops:
            a, b = full.latency, causal.latency
            if a.median >= LAUNCH_BOUND_S and math.isfinite(a.high + b.high):
                seen = Figure("full time over causal time", a.median / b.median, "×")
                yield Gain(a.low / b.high, a.high / b.low, evidence.fact(causal.case, seen))


def launch_overhead(evidence: Evidence, contender: str) -> Iterator[tuple[LaunchOverhead, Fact]]:
    """Yield the launch overhead of eager calls, with the time from a CUDA graph and the number of launches if they are
    known."""
    for one in launch_overheads(evidence.judgement):
        if one.contender == contender:
            seen = [Figure("eager time", one.eager.mean, "s")]
            seen += [Figure("time in a CUDA graph", one.graph.seconds.mean, "s")] if one.graph else []
            if one.launches and (each := one.each):
                seen += [Figure("launches", one.launches), Figure("host time per launch, at most", each.mean, "s")]
                ends = (("lower end", each.low), ("upper end", each.high))
                seen += [Figure(name, end, "s") for name, end in ends if math.isfinite(end)]
            yield one, evidence.fact(one.case.name, *seen)


class Kernels(NamedTuple):
    names: tuple[str, ...]
    fact: Fact


def kernels(evidence: Evidence, contender: str) -> Iterator[Kernels]:
    """Yield the kernels that a call was seen to launch, for cases on which that was recorded."""
    passed = {one.case.facts.name for one in evidence.timed(contender)}
    for seen in evidence.judgement.record.launched:
        if seen.contender == contender and seen.kernels and seen.case in passed:
            yield Kernels(seen.kernels, evidence.fact(seen.case, Figure("kernels per call", len(seen.kernels))))


class Spread(NamedTuple):
    ratio: float
    fact: Fact


def spread(evidence: Evidence, contender: str) -> Iterator[Spread]:
    """Yield the ratio of the slowest process to the fastest, by their medians."""
    record = evidence.judgement.record
    for one in evidence.timed(contender):
        name = one.case.facts.name
        found = [record.seconds.get((process, name, contender)) for process in record.finished_attempts]
        medians = [statistics.median(of.values()) for of in found if of]
        if len(medians) > 1:
            ratio = max(medians) / min(medians)
            yield Spread(ratio, evidence.fact(one.case, Figure("slowest process over fastest", ratio, "×")))


class Under(NamedTuple):
    share: float
    bound: Bound
    seconds: float
    fact: Fact


def under_the_roof(evidence: Evidence, contender: str) -> Iterator[Under]:
    """Yield the share that a contender reaches of what the roofs allow, and which roof bounds the work."""
    judgement = evidence.judgement
    for one in evidence.timed(contender):
        reached, x = share(judgement, one.case, one.result), intensity(one.case.facts)
        if reached is not None and x is not None:
            roofs = roofs_of_case(judgement, one.case)[0]
            seen = (Figure(f"share of the {roofs.origin} roof", reached, "%"), Figure("time", one.latency.median, "s"))
            yield Under(reached, roofs.bound(x), one.latency.median, evidence.fact(one.case, *seen))


def bounds(evidence: Evidence, contender: str) -> Iterator[Bound | None]:
    """Yield what bounds each case on which a contender passed, or None if the roofs are not known."""
    for one in evidence.timed(contender):
        roofs, x = roofs_of_case(evidence.judgement, one.case), intensity(one.case.facts)
        yield roofs[0].bound(x) if roofs and x is not None else None


class Nearness(NamedTuple):
    error: str
    part: float
    """The error as a share of its tolerance."""
    fact: Fact


def error_shares(evidence: Evidence, contender: str) -> Iterator[Nearness]:
    """Yield every error that a tolerance bounds, on every case."""
    for one in evidence.timed(contender):
        for name, bound in one.case.facts.tolerance.items():
            seen = getattr(one.result.errors, name)
            if seen is not None and bound > 0:
                figure = Figure(f"{name.replace('_', ' ')} as share of tolerance", seen / bound, "%")
                yield Nearness(name, seen / bound, evidence.fact(one.case, figure))
