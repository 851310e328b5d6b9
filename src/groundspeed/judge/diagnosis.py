"""From a symptom that was measured to likely causes and what to try (requirement B7).

The table is what people read and add to; each rule has a bundle in the tests that shows its symptom. Causes are likely,
not known: nothing here says more than that the symptom was seen, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from groundspeed.judge import traits
from groundspeed.judge.roofline import FAR_BELOW
from groundspeed.judge.targets import LAUNCH_BOUND_S
from groundspeed.judge.traits import Evidence, Fact, Figure
from groundspeed.judge.views import ANY

LESS = 0.85
"""Speed against the baseline there, over that elsewhere: under this a kind of work suffers."""
HALF = 0.5
TWICE = 2.0
NOT_SKIPPED = 1.25
"""Full over causal time, of which 2 is to be had."""
QUADRATIC = 1.6
SPREAD = 1.1
NEAR, NEAR_RMS = 0.5, 0.3
"""Of a tolerance. In RMS, which is steady, code that rounds once stays under a fifth."""
FIRST_CALL_S = 0.5
SHOWN = 3
"""Facts that a finding names, the gravest first."""


@dataclass(frozen=True)
class Rule:
    name: str
    symptom: str
    causes: tuple[str, ...]
    tries: tuple[str, ...]
    see: Callable[[Evidence, str], Iterable[tuple[float, Fact]]]
    """Where a bundle shows it of a contender, each with how grave it is."""


@dataclass(frozen=True)
class Finding:
    rule: Rule
    facts: tuple[Fact, ...]
    """The gravest."""
    seen: int
    """On how many cases in all."""


def diagnose(evidence: Sequence[Evidence], contender: str) -> tuple[Finding, ...]:
    found = []
    for rule in RULES:
        seen = [one for bundle in evidence if bundle.measured(contender) for one in rule.see(bundle, contender)]
        if seen:
            seen.sort(key=lambda one: -one[0])
            found.append(Finding(rule, tuple(fact for _, fact in seen[:SHOWN]), len(seen)))
    return tuple(found)


Seen = Iterator[tuple[float, Fact]]


def _suffers(found: Iterable[traits.Against], at_most: float = 1.0) -> Seen:
    """The whole of both intervals says that the one is slower than the other, and than the baseline."""
    return ((a.far / a.near, a.fact) for a in found if a.near < LESS * a.far and a.near < at_most)


def _small(evidence: Evidence, contender: str) -> Seen:
    return _suffers(traits.small_work(evidence, contender))


def _odd(evidence: Evidence, contender: str) -> Seen:
    return _suffers(traits.odd_lengths(evidence, contender))


def _wide(evidence: Evidence, contender: str) -> Seen:
    return _suffers(traits.wide_heads(evidence, contender))


def _eager(evidence: Evidence, contender: str) -> Seen:
    found = traits.launch_overhead(evidence, contender)
    return ((one.ratio, one.fact) for one in found if one.ratio > TWICE and one.low > 0)


def _kernels(evidence: Evidence, contender: str) -> Seen:
    return ((len(one.names), one.fact) for one in traits.kernels(evidence, contender) if len(one.names) > 1)


def _latency(evidence: Evidence, contender: str) -> Seen:
    found = traits.under_the_roof(evidence, contender)
    return ((1 / one.share, one.fact) for one in found if one.share < FAR_BELOW and one.seconds < LAUNCH_BOUND_S)


def _compute(evidence: Evidence, contender: str) -> Seen:
    return _low(evidence, contender, "compute")


def _memory(evidence: Evidence, contender: str) -> Seen:
    return _low(evidence, contender, "memory")


def _low(evidence: Evidence, contender: str, bound: str) -> Seen:
    for one in traits.under_the_roof(evidence, contender):
        by_launches = one.share < FAR_BELOW and one.seconds < LAUNCH_BOUND_S
        if one.bound == bound and one.share < HALF and not by_launches:
            yield 1 / one.share, one.fact


def _causal(evidence: Evidence, contender: str) -> Seen:
    return ((1 / one.high, one.fact) for one in traits.causal_gain(evidence, contender) if one.high < NOT_SKIPPED)


def _quadratic(evidence: Evidence, contender: str) -> Seen:
    found = traits.memory_growth(evidence, contender)
    return ((one.exponent, one.fact) for one in found if one.exponent > QUADRATIC and one.matrices >= 1)


def _spread(evidence: Evidence, contender: str) -> Seen:
    return ((one.ratio, one.fact) for one in traits.spread(evidence, contender) if one.ratio > SPREAD)


def _near(evidence: Evidence, contender: str) -> Seen:
    found = traits.error_shares(evidence, contender)
    return ((one.part, one.fact) for one in found if one.part > (NEAR_RMS if one.error == "rms_rel" else NEAR))


def _throttled(evidence: Evidence, contender: str) -> Seen:
    record = evidence.judgement.record
    for one in evidence.timed(contender):
        blocks = [
            bits for (_, case), of in record.throttle.items() if case == one.case.facts.name for bits in of.values()
        ]
        held = sum(bool(bits & ANY) for bits in blocks)
        if held:
            taken = sum(s.blocks for s in record.stops if s.case == one.case.facts.name)
            yield held / taken, evidence.fact(one.case, Figure("blocks with clocks held back", held / taken, "%"))


def _timers(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        c = one.result.comparison
        if c and c.timers and c.timers.disagree(c.floor.value):
            apart = abs(c.timers.apart)
            yield apart, evidence.fact(one.case, Figure("the timers are apart by", apart, "%"))


def _warm_up(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        outcomes = evidence.judgement.record.outcomes_of_contender.get((one.case.facts.name, contender), [])
        unstable = sum(o.warmup_stable is False for o in outcomes)
        if unstable:
            figure = Figure("processes whose warm-up did not settle", unstable)
            yield unstable, evidence.fact(one.case, figure)


def _first_call(evidence: Evidence, contender: str) -> Seen:
    for one in evidence.timed(contender):
        outcomes = evidence.judgement.record.outcomes_of_contender.get((one.case.facts.name, contender), [])
        slowest = max((o.prepare_s for o in outcomes if o.prepare_s is not None), default=0.0)
        if slowest > FIRST_CALL_S:
            seen = (Figure("first call", slowest, "s"), Figure("every other", one.latency.median, "s"))
            yield slowest, evidence.fact(one.case, *seen)


RULES: tuple[Rule, ...] = (
    Rule(
        "small work",
        "far slower against the baseline on its smallest work than on its largest",
        ("a fixed cost in every call: checks, allocations, launches", "too few programs to fill the device"),
        ("cache the launch; allocate less", "smaller tiles, or the keys split over programs", "measure --clock graph"),
        _small,
    ),
    Rule(
        "eager",
        "a caller waits more than twice as long as the device works",
        ("the host's side of a launch: Python, argument checks, hooks",),
        ("cache the launch; replay a CUDA graph", "fuse with what is called before and after"),
        _eager,
    ),
    Rule(
        "kernels",
        "several kernels in one call",
        (
            "steps that are not fused: casts, copies, masks, a combine after a split",
            "a fallback to composed operations",
        ),
        ("look at their names in the report", "fuse them, or hand inputs over as the kernel takes them"),
        _kernels,
    ),
    Rule(
        "latency-bound",
        f"short work under {FAR_BELOW:.0%} of what the roofs allow",
        ("launches and latency set the time, neither arithmetic nor memory",),
        ("batch more work in a call", "replay a CUDA graph", "fewer dependent steps in the kernel"),
        _latency,
    ),
    Rule(
        "compute-bound",
        f"arithmetic binds, and under {HALF:.0%} of its roof is reached",
        (
            "tensor cores wait: for loads, for the softmax, for registers",
            "too little occupancy; tiles of the wrong size",
        ),
        (
            "more stages in the pipeline, warp specialisation",
            "other tiles and warps",
            "look at stall reasons in a profile",
        ),
        _compute,
    ),
    Rule(
        "memory-bound",
        f"memory binds, and under {HALF:.0%} of its roof is reached",
        ("loads that are not coalesced or not in flight early", "data moved more than once", "too few programs"),
        ("wider or asynchronous loads", "keep what is used again in shared memory", "more programs"),
        _memory,
    ),
    Rule(
        "causal",
        "the causal mask saves little of the time that it saves of the work",
        (
            "blocks that are masked whole are computed all the same",
            "the mask is applied to every block, or read from memory",
        ),
        (
            "end the loop over keys at the diagonal",
            "mask the diagonal blocks alone",
            "balance long rows against short ones",
        ),
        _causal,
    ),
    Rule(
        "quadratic memory",
        "memory grows with the square of the length",
        ("the matrix of scores is stored",),
        ("an online softmax over blocks of keys", "check which backend really ran"),
        _quadratic,
    ),
    Rule(
        "odd lengths",
        "slower against the baseline at lengths that fill no tiles",
        (
            "inputs padded to whole tiles",
            "masks on every block for the sake of the last",
            "a slower path for such lengths",
        ),
        ("mask the last block alone", "smaller tiles at the edge", "bounds that the loads check themselves"),
        _odd,
    ),
    Rule(
        "wide heads",
        "slower against the baseline at its widest heads than at its narrowest",
        ("registers spill, or shared memory leaves one program to a multiprocessor",),
        ("smaller tiles for wide heads", "split the head over warps", "look at spills in the compiler's listing"),
        _wide,
    ),
    Rule(
        "processes",
        f"processes of one run differ by more than {SPREAD - 1:.0%}",
        (
            "clocks and power states",
            "where buffers lie",
            "another program on the machine",
            "a choice made at start: autotuning",
        ),
        ("more processes", "fix what is tuned at start", "groundspeed doctor"),
        _spread,
    ),
    Rule(
        "throttled",
        "the device held its clocks back",
        ("the power cap or the temperature",),
        (
            "believe the paired speed-up, not the time",
            "see the speed-ups without these blocks in the report",
            "cool it",
        ),
        _throttled,
    ),
    Rule(
        "errors",
        f"an error above {NEAR:.0%} of its tolerance, in RMS {NEAR_RMS:.0%}",
        ("scores or probabilities rounded to the dtype between steps", "sums in less than FP32"),
        ("keep scores and sums in FP32", "scale before rounding, not after"),
        _near,
    ),
    Rule(
        "timers",
        "two timers disagree on the same calls",
        ("work outside the kernels: gaps between them, copies", "calls too short for events around them"),
        ("measure --clock graph", "look at what is launched beside the kernel"),
        _timers,
    ),
    Rule(
        "warm-up",
        "the warm-up ended before the times were stable",
        ("caches, clocks or a compiler that were not ready", "other work on the machine"),
        ("--warmup with more seconds", "stop other work"),
        _warm_up,
    ),
    Rule(
        "first call",
        f"a first call of more than {FIRST_CALL_S} s",
        ("compilation or autotuning at the first call of a shape",),
        ("compile ahead, keep the cache between processes", "specialise on less"),
        _first_call,
    ),
)
