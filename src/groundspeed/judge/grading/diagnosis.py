"""From a measured symptom to its likely causes and what to try (requirement B7).

The table of rules is meant to be read and extended. Each rule has a bundle in the tests that shows its symptom. Causes
are likely, not known: a finding states only that the symptom was seen, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from groundspeed.judge.grading import symptoms
from groundspeed.judge.grading.symptoms import FIRST_CALL_S, HALF, NEAR, NEAR_RMS, SPREAD
from groundspeed.judge.grading.traits import Evidence, Fact, but
from groundspeed.judge.roofline import FAR_BELOW

SHOWN = 3
"""The most facts that a finding names, the gravest first."""
MEASURE_GRAPH, REPLAY = "measure --clock graph", "replay a CUDA graph"
ELSEWHERE = {
    "smaller tiles, or the keys split over programs": "smaller tiles, or a sum split over programs",
    "steps that are not fused: casts, copies, masks, a combine after a split": (
        "steps that are not fused: casts, copies, a combine after a split"
    ),
    "tensor cores wait for loads, the softmax or registers": "tensor cores wait for loads or registers",
    "vector units wait for loads, the softmax or registers": "vector units wait for loads or registers",
    "scores or probabilities rounded to the dtype between steps": "results rounded to the dtype between steps",
    "keep scores and sums in FP32": "keep intermediate results and sums in FP32",
}
"""Advice about attention → the advice for other work."""


@dataclass(frozen=True)
class Rule:
    name: str
    symptom: str
    causes: tuple[str, ...]
    tries: tuple[str, ...]
    see: Callable[[Evidence, str], Iterable[tuple[float, Fact]]]
    """Returns the facts of a bundle that show the symptom of a contender, and how grave each is."""
    on_cpu: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Causes and what to try on a CPU, if those for a GPU do not apply to it."""

    def advice(self, device: str, suite: str = "attention") -> tuple[tuple[str, ...], tuple[str, ...]]:
        causes, tries = self.on_cpu if self.on_cpu and device == "cpu" else (self.causes, self.tries)
        if suite == "attention":
            return causes, tries
        return tuple(ELSEWHERE.get(cause, cause) for cause in causes), tuple(ELSEWHERE.get(one, one) for one in tries)


@dataclass(frozen=True)
class Finding:
    rule: Rule
    causes: tuple[str, ...]
    tries: tuple[str, ...]
    """Causes and advice are those for the device and the work that showed the gravest fact."""
    facts: tuple[Fact, ...]
    """The gravest facts, at most SHOWN."""
    seen: int
    """The number of facts in all."""


def diagnose(evidence: Sequence[Evidence], contender: str) -> tuple[Finding, ...]:
    found = []
    for rule in RULES:
        measured = (bundle for bundle in evidence if bundle.measured(contender))
        seen = [(grave, fact, bundle) for bundle in measured for grave, fact in rule.see(bundle, contender)]
        if seen:
            seen.sort(key=lambda one: -one[0])
            _, worst, bundle = seen[0]
            causes, tries = rule.advice(bundle.judgement.record.run.device, bundle.suite)
            tries = tuple(one for one in tries if one not in _done(bundle, worst))
            found.append(Finding(rule, causes, tries, tuple(fact for _, fact, _ in seen[:SHOWN]), len(seen)))
    return tuple(found)


def _done(bundle: Evidence, fact: Fact) -> set[str]:
    """Return the advice that is already done on the case of a fact."""
    case = bundle.case(fact.case)
    graphs = (but(other, "clock") for other in bundle.judgement.cases if other.clock == "graph")
    done = {MEASURE_GRAPH} if but(case, "clock") in graphs else set()
    return done | {REPLAY} if case.clock == "graph" else done


RULES: tuple[Rule, ...] = (
    Rule(
        "small work",
        "far slower, relative to the baseline, on its smallest work than on its largest",
        ("a fixed cost in every call: checks, allocations, launches", "too few programs to fill the device"),
        ("cache the launch; allocate less", "smaller tiles, or the keys split over programs", MEASURE_GRAPH),
        symptoms.small,
        on_cpu=(
            ("a fixed cost in every call: checks, allocations, thread start-up",),
            ("allocate less, check once", "fewer threads for small work"),
        ),
    ),
    Rule(
        "eager",
        "a caller waits more than twice as long as the device works",
        ("the host's side of a launch: Python, argument checks, hooks",),
        ("cache the launch; replay a CUDA graph", "fuse with the calls before and after"),
        symptoms.eager,
    ),
    Rule(
        "kernels",
        "several kernels in one call",
        (
            "steps that are not fused: casts, copies, masks, a combine after a split",
            "a fallback to composed operations",
        ),
        ("look at their names in the report", "fuse them, or pass inputs in the form that the kernel takes"),
        symptoms.kernels,
    ),
    Rule(
        "latency-bound",
        f"short work reaches under {FAR_BELOW:.0%} of what the roofs allow",
        ("launches and latency set the time, not compute or memory",),
        ("batch more work in a call", REPLAY, "fewer dependent steps in the kernel"),
        symptoms.latency,
        on_cpu=(
            ("calls and thread start-up set the time, not compute or memory",),
            ("batch more work in a call", "fewer threads for small work"),
        ),
    ),
    Rule(
        "compute-bound",
        f"compute-bound work reaches under {HALF:.0%} of the roof",
        (
            "tensor cores wait for loads, the softmax or registers",
            "too little occupancy; tiles of the wrong size",
        ),
        (
            "more pipeline stages, warp specialisation",
            "other tile sizes and numbers of warps",
            "look at stall reasons in a profile",
        ),
        symptoms.compute,
        on_cpu=(
            ("vector units wait for loads, the softmax or registers", "tiles of the wrong size; idle threads"),
            ("tiles that fit the caches", "wider vectors and more accumulators", "work split evenly over the threads"),
        ),
    ),
    Rule(
        "memory-bound",
        f"memory-bound work reaches under {HALF:.0%} of the roof",
        ("loads that are not coalesced or are issued late", "data moved more than once", "too few programs"),
        ("wider or asynchronous loads", "keep reused data in shared memory", "more programs"),
        symptoms.memory,
        on_cpu=(
            ("strided or late loads", "data moved more than once", "too few threads to fill the memory bus"),
            ("keep reused data in the caches", "contiguous layouts", "more threads"),
        ),
    ),
    Rule(
        "causal",
        "the causal mask saves much less time than work",
        (
            "fully masked blocks are computed anyway",
            "the mask is applied to every block, or read from memory",
        ),
        (
            "end the loop over keys at the diagonal",
            "mask only the diagonal blocks",
            "balance long rows against short ones",
        ),
        symptoms.causal,
    ),
    Rule(
        "quadratic memory",
        "memory grows with the square of the length",
        ("the matrix of scores is stored",),
        ("an online softmax over blocks of keys", "check which backend really ran"),
        symptoms.quadratic,
    ),
    Rule(
        "odd lengths",
        "slower, relative to the baseline, at lengths that do not fill their tiles",
        (
            "inputs padded to whole tiles",
            "a mask on every block, although only the last one needs it",
            "a slower code path for such lengths",
        ),
        ("mask only the last block", "smaller tiles at the edge", "bounds checks in the loads themselves"),
        symptoms.odd,
    ),
    Rule(
        "wide heads",
        "slower, relative to the baseline, at its widest heads than at its narrowest",
        ("registers spill, or shared memory fits only one program per multiprocessor",),
        ("smaller tiles for wide heads", "split the head over warps", "look at spills in the compiler's listing"),
        symptoms.wide,
        on_cpu=(
            ("registers spill, or a tile no longer fits the cache",),
            ("smaller tiles for wide heads", "look at spills in the compiler's listing"),
        ),
    ),
    Rule(
        "processes",
        f"processes of one run differ by more than {SPREAD - 1:.0%}",
        (
            "clocks and power states",
            "the placement of buffers",
            "another program on the machine",
            "a choice made at start-up, such as autotuning",
        ),
        ("more processes", "fix what is tuned at start-up", "run groundspeed doctor"),
        symptoms.spread,
    ),
    Rule(
        "throttled",
        "the device throttled its clocks",
        ("the power cap or the temperature",),
        (
            "trust the paired speed-up, not the time",
            "see the speed-ups without these blocks in the report",
            "better cooling or a higher power limit",
        ),
        symptoms.throttled,
    ),
    Rule(
        "errors",
        f"an error above {NEAR:.0%} of its tolerance ({NEAR_RMS:.0%} for RMS)",
        ("scores or probabilities rounded to the dtype between steps", "sums in less precision than FP32"),
        ("keep scores and sums in FP32", "scale before rounding, not after"),
        symptoms.near,
    ),
    Rule(
        "timers",
        "two timers disagree on the same calls",
        ("work outside the kernels: gaps between them, copies", "calls too short for events around them"),
        (MEASURE_GRAPH, "look for other launches beside the kernel"),
        symptoms.timers,
    ),
    Rule(
        "warm-up",
        "the warm-up ended before the times were stable",
        ("caches, clocks or a compiler that were not ready", "other work on the machine"),
        ("a longer --warmup", "stop other work"),
        symptoms.warm_up,
    ),
    Rule(
        "first call",
        f"a first call of more than {FIRST_CALL_S} s",
        ("compilation or autotuning at the first call of a shape",),
        ("compile ahead, keep the cache between processes", "specialise on fewer parameters"),
        symptoms.first_call,
    ),
)
