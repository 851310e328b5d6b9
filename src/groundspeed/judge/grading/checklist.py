"""The optimisation checklists (requirement B6): attention, MoE, system. An item is ticked, or crossed, by a measured
fact and by nothing else; where no bundle can tell, it says what could."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from groundspeed.evidence.protocol import NAME
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.grading import profiled, traits
from groundspeed.judge.grading.profiled import OVERHEAD_S, Profiled, Tick
from groundspeed.judge.grading.symptoms import HALF, LESS, NOT_SKIPPED, QUADRATIC, SKIPPED, SPREAD
from groundspeed.judge.grading.targets import LAUNCH_BOUND_S
from groundspeed.judge.grading.traits import Evidence, Fact, Figure
from groundspeed.judge.views import ANY

Part = Literal["attention", "moe", "system"]

LINEAR = 1.3
"""The power of S up to which memory counts as O(N)."""
LONG = 512
"""Keys from which on the laboratory tries long sums of one sign, which FP16 sums get wrong."""


@dataclass(frozen=True)
class Ticked:
    part: Part
    item: str
    tick: Tick
    facts: tuple[Fact, ...]
    why: str = ""
    """Where it is not determined: what could tell."""


@dataclass(frozen=True)
class Item:
    part: Part
    item: str
    needs: str
    """What a bundle must have for it."""
    see: Callable[[Evidence, str], list[tuple[bool, Fact]]]
    """What a bundle says for and against it."""
    look: Callable[[Profiled, str], list[tuple[bool, Fact]]] | None = None
    """What a profile does."""
    every: bool = False
    """Whether one bundle that tells nothing leaves it open, whatever the others say for it."""
    gpu: bool = False
    """Whether there is no such thing on a CPU, and so nothing there that could tell."""


def checklist(
    evidence: Sequence[Evidence], contender: str, parts: Sequence[str] = (), profiles: Sequence[Profiled] = ()
) -> tuple[Ticked, ...]:
    """Crossed where one fact is against it; ticked where there are facts and all are for it. `parts`: these lists and
    that of the system alone."""
    found = []
    looked = profiled.of_same_code(profiles, evidence, contender)
    for item in (item for item in ITEMS if not parts or item.part in (*parts, "system")):
        suites = {"attention", "moe"} if item.part == "system" else {item.part}
        bundles = [e for e in evidence if e.judgement.record.run.suite in suites and e.measured(contender)]
        by_bundle = [item.see(e, contender) for e in bundles]
        seen = [one for some in by_bundle for one in some]
        if item.every and not all(by_bundle) and all(good for good, _ in seen):
            seen = []
        if item.look:
            seen += [one for profile in looked if profile.suite in suites for one in item.look(profile, contender)]
        against = [fact for good, fact in seen if not good]
        tick: Tick = "not determined" if not seen else "no" if against else "yes"
        facts = (against or [fact for _, fact in seen])[:1]
        needs = NO_COUNTER if looked and item.needs == PROFILE else item.needs
        if item.gpu and evidence and all(e.judgement.record.run.device == "cpu" for e in evidence):
            needs = GPU
        why = "" if seen else needs if bundles or item.part == "system" else f"no bundle is of {item.part}"
        found.append(Ticked(item.part, item.item, tick, tuple(facts), why))
    return tuple(found)


Seen = list[tuple[bool, Fact]]


def _linear_memory(evidence: Evidence, contender: str) -> Seen:
    found = [g for g in traits.memory_growth(evidence, contender) if g.exponent < LINEAR or g.exponent > QUADRATIC]
    return [(g.exponent < LINEAR or g.matrices < 1, g.fact) for g in found]


def _tensor_cores(evidence: Evidence, contender: str) -> Seen:
    """For it only: a slow kernel may use them too."""
    peaks = evidence.judgement.peaks
    plain = peaks.flops.get("fp32") if peaks else None
    return [
        (
            True,
            evidence.fact(one.case, Figure("over the peak without tensor cores", one.result.rates.flops / plain, "×")),
        )
        for one in evidence.timed(contender)
        if plain and one.param("dtype") != "fp32" and one.result.rates and one.result.rates.flops > plain
    ]


def _one_kernel(evidence: Evidence, contender: str) -> Seen:
    return [(len(one.names) == 1, one.fact) for one in traits.kernels(evidence, contender)]


def _fp32_sums(evidence: Evidence, contender: str) -> Seen:
    """Who passes the gate at this length adds up in FP32: it tries long sums of one sign."""
    found: Seen = []
    for one in evidence.timed(contender):
        tried = one.param("dtype") in ("fp16", "bf16") and (one.length() or 0) >= LONG and not one.param("W")
        rms = one.result.errors.rms_rel
        if tried and rms is not None and evidence.judgement.record.protocol.name == NAME:
            bound = one.case.facts.tolerance.get("rms_rel", 1.0)
            found.append((True, evidence.fact(one.case, Figure("RMS error of its tolerance", rms / bound, "%"))))
    return found


def _causal(evidence: Evidence, contender: str) -> Seen:
    """By the largest work: of small work tiles are a large part."""
    found = list(traits.causal_gain(evidence, contender))
    sizes = {case.facts.name: case.facts.flops for case in evidence.judgement.cases}
    largest = max((sizes[gain.fact.case] for gain in found), default=0)
    gains = [gain for gain in found if sizes[gain.fact.case] == largest]
    return [(gain.low > SKIPPED, gain.fact) for gain in gains if gain.low > SKIPPED or gain.high < NOT_SKIPPED]


def _groups(evidence: Evidence, contender: str) -> Seen:
    """Keys and values laid out again for every head would have to lie somewhere."""
    found: Seen = []
    for one in evidence.timed(contender):
        heads, groups, extra = one.param("H"), one.param("G"), one.result.memory.extra_bytes
        length, batch, width = one.length(), one.param("B"), one.param("D")
        whole = all(isinstance(n, int) for n in (heads, groups, length, batch, width))
        if whole and groups and groups < heads and extra is not None and not one.param("V"):
            output = batch * heads * length * width * traits.ITEM_BYTES.get(str(one.param("dtype")), 4)
            seen = Figure("memory over the output's", extra / output, "×")
            found.append((extra < 2 * output, evidence.fact(one.case, seen)))  # two copies would make it three
    return found


def _edges(evidence: Evidence, contender: str) -> Seen:
    return [(a.near >= LESS * a.far, a.fact) for a in traits.odd_lengths(evidence, contender)]


def _roof(evidence: Evidence, contender: str) -> Seen:
    """On the longest work that arithmetic binds, and no launch."""
    seen = traits.under_the_roof(evidence, contender)
    found = [one for one in seen if one.bound == "compute" and one.seconds >= LAUNCH_BOUND_S]
    best = max(found, key=lambda one: one.seconds, default=None)
    return [(best.share >= HALF, best.fact)] if best else []


def _unseen(evidence: Evidence, contender: str) -> Seen:
    """No bundle has what would tell."""
    return []


def _calibrated(evidence: Evidence, contender: str) -> Seen:
    calibration = evidence.judgement.record.calibration
    first = evidence.judgement.cases[0] if evidence.judgement.cases else "none"
    comparisons = [noise for noise in calibration.noise for _ in noise.ts] if calibration else []
    alarm = any(r.comparison and r.comparison.floor.alarm for c in evidence.judgement.cases for r in c.results)
    figure = Figure("comparisons of a contender with itself", len(comparisons))
    return [(bool(comparisons) and not alarm, evidence.fact(first, figure))]


def _clocks(evidence: Evidence, contender: str) -> Seen:
    """For it only where the device told of every sample that counts."""
    record, samples = evidence.judgement.record, evidence.judgement.record.samples
    held = [case for (_, case), of in record.throttle.items() for bits in of.values() if bits & ANY]
    counts = samples["phase"] == TIMED
    for process in set(samples["process"].tolist()):
        last = record.finished_attempts.get(process, -1)
        counts &= (samples["process"] != process) | (samples["attempt"] == last)
    if not held and (not counts.any() or (samples["throttle"][counts] < 0).any()):
        return []
    taken = sum(stop.blocks for stop in record.stops if record.finished_attempts.get(stop.process) == stop.attempt)
    where = held[0] if held else record.cases[0].name
    return [(not held, evidence.fact(where, Figure("blocks with clocks held back", len(held) / max(1, taken), "%")))]


def _graph(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for case in evidence.judgement.cases if evidence.measured(contender) else ():
        result = case.result(contender)
        if case.clock == "graph" and result.status != "SKIPPED":
            seconds = result.latency.median if result.latency else float("nan")
            found.append((result.status == "PASSED", evidence.fact(case, Figure("from a graph", seconds, "s"))))
    return found


def _overhead(evidence: Evidence, contender: str) -> Seen:
    found = traits.launch_overhead(evidence, contender)
    return [(one.high < OVERHEAD_S, one.fact) for one in found if one.high < OVERHEAD_S or one.low >= OVERHEAD_S]


def _timers(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for one in evidence.timed(contender):
        if (c := one.result.comparison) and c.timers:
            figure = Figure("the timers are apart by", abs(c.timers.apart), "%")
            found.append((not c.timers.disagree(c.floor.value), evidence.fact(one.case, figure)))
    return found


def _processes(evidence: Evidence, contender: str) -> Seen:
    found = sorted(traits.spread(evidence, contender), key=lambda one: -one.ratio)
    return [(one.ratio <= SPREAD, one.fact) for one in found]


def _warm_up(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for one in evidence.timed(contender):
        told = [o.warmup_stable for o in evidence.outcomes(one.case, contender) if o.warmup_stable is not None]
        if told:
            found.append(
                (all(told), evidence.fact(one.case, Figure("processes that settled", sum(told) / len(told), "%")))
            )
    return found


PROFILE = "only the counters of a profiler tell"
NO_NAME = f"{PROFILE}; names of kernels do not"
NO_COUNTER = "the profiles have no counter of it"
NO_PROFILE = "needs a profile (groundspeed profile)"
GPU = "there is no such thing on a CPU"
NO_TRACE = "no bundle has a trace of its steps"

ITEMS: tuple[Item, ...] = (
    Item("attention", "memory grows with S, not with S²", "needs two lengths of one kind", _linear_memory),
    Item(
        "attention",
        "tensor cores multiply",
        "a rate under the peak without them leaves it open",
        _tensor_cores,
        profiled.tensor_cores,
        gpu=True,
    ),
    Item(
        "attention",
        "one kernel, no copies beside it",
        "nobody looked at what was launched",
        _one_kernel,
        profiled.one_kernel,
    ),
    Item("attention", "sums in FP32", f"needs 16 bit and {LONG} keys or more", _fp32_sums),
    Item("attention", "masked blocks are skipped", "needs full and causal of one shape, long enough", _causal),
    Item(
        "attention", "grouped heads without copies", "needs a case with fewer heads of keys (--case 'form-*')", _groups
    ),
    Item(
        "attention",
        "lengths that fill no tiles cost no more",
        "needs such a length beside a near one that does",
        _edges,
    ),
    Item(
        "attention",
        "half of the roof where arithmetic binds",
        "needs the roofs of the device (groundspeed calibrate) and work enough",
        _roof,
    ),
    Item("attention", "producers and consumers in warps of their own", NO_NAME, _unseen, gpu=True),
    Item("attention", "shared memory without bank conflicts", PROFILE, _unseen, gpu=True),
    Item("attention", "registers do not spill", PROFILE, _unseen, profiled.no_spills),
    Item("moe", "router with a parallel top-k", NO_TRACE, _unseen),
    Item("moe", "tokens batched by expert", NO_TRACE, _unseen),
    Item("moe", "one grouped GEMM for all experts", NO_TRACE, _unseen),
    Item("moe", "activation and combine fused", NO_TRACE, _unseen),
    Item("moe", "router under 5% of the time", NO_TRACE, _unseen),
    Item("moe", "usage of experts varies by less than 10%", NO_TRACE, _unseen),
    Item("system", "the machine is calibrated, without an alarm", "needs a bundle", _calibrated),
    Item("system", "clocks were never held back", "the device did not tell of all blocks", _clocks, every=True),
    Item("system", "runs from a CUDA graph", "needs --clock graph", _graph, gpu=True),
    Item(
        "system",
        "launch overhead under 50 µs",
        "needs --clock eager,graph",
        _overhead,
        profiled.small_overhead,
        gpu=True,
    ),
    Item("system", "two timers agree", "needs a GPU and PyTorch's profiler", _timers),
    Item("system", f"processes agree within {SPREAD - 1:.0%}", "needs two processes", _processes),
    Item("system", "every warm-up settled", "the record does not tell", _warm_up),
    Item("system", "copies under 1% of the time", NO_PROFILE, _unseen, profiled.few_copies),
    Item(
        "system",
        "device idle for under 1% between kernels",
        f"{NO_PROFILE}; over it a profiler may be why",
        _unseen,
        profiled.few_gaps,
    ),
    Item("system", "fusion gains more than 10%", "no suite measures a block fused and not fused", _unseen),
)
