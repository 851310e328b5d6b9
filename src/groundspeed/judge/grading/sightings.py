"""What a bundle says for and against the items of a checklist, and how grave each sighting is (requirement B6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from groundspeed.evidence.protocol import BEFORE_THIRD
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.copies import copy_shares
from groundspeed.judge.experts import expert_use
from groundspeed.judge.fusion import APART, decisive, fusions
from groundspeed.judge.grading import sizes, traits
from groundspeed.judge.grading.profiled import COPIES, Seen, Sighting
from groundspeed.judge.grading.symptoms import HALF, LESS, NOT_SKIPPED, SKIPPED, SPREAD
from groundspeed.judge.grading.targets import LAUNCH_BOUND_S
from groundspeed.judge.grading.traits import Evidence, Figure
from groundspeed.judge.launches import MOST_S
from groundspeed.judge.lengths import LINEAR, QUADRATIC
from groundspeed.judge.views import ANY
from groundspeed.judge.warnings import calibrate_command

LONG = 512
"""The fewest keys for which the gate tries long sums of one sign, which are wrong if summed in FP16."""


SKEWED = "zipf"
"""The routing of cases that deliberately give some experts more tokens than others."""
UNEVEN = 0.1
"""The variation of expert usage that the specification allows."""
CHANCE = 2.0
"""How many times the variation of uniform choices counts as more than chance. With eight experts, one draw in 20,000
varies that much."""


def linear_memory(evidence: Evidence, contender: str) -> Seen:
    found = [g for g in traits.memory_growth(evidence, contender) if g.exponent < LINEAR or g.exponent > QUADRATIC]
    return [Sighting(g.exponent < LINEAR or g.matrices < 1, g.fact, g.exponent) for g in found]


def tensor_cores(evidence: Evidence, contender: str) -> Seen:
    """Return only sightings for it: a slow kernel may use tensor cores too."""
    peaks = evidence.judgement.peaks
    plain = peaks.flops.get("fp32") if peaks else None
    return [
        Sighting(
            True,
            evidence.fact(
                one.case, Figure("rate over the peak without tensor cores", one.result.rates.flops / plain, "×")
            ),
        )
        for one in evidence.timed(contender)
        if plain and one.param("dtype") != "fp32" and one.result.rates and one.result.rates.flops > plain
    ]


def one_kernel(evidence: Evidence, contender: str) -> Seen:
    return [Sighting(len(one.names) == 1, one.fact, len(one.names)) for one in traits.kernels(evidence, contender)]


def fp32_sums(evidence: Evidence, contender: str) -> Seen:
    """Count passing the gate at this length as summing in FP32, because the gate tries long sums of one sign."""
    found: Seen = []
    for one in evidence.timed(contender):
        tried = one.param("dtype") in ("fp16", "bf16") and (one.keys() or 0) >= LONG and not one.param("W")
        rms = one.result.errors.rms_rel
        if tried and rms is not None and evidence.judgement.record.protocol.name not in BEFORE_THIRD:
            bound = one.case.facts.tolerance.get("rms_rel", 1.0)
            found.append(
                Sighting(True, evidence.fact(one.case, Figure("RMS error as share of tolerance", rms / bound, "%")))
            )
    return found


def causal(evidence: Evidence, contender: str) -> Seen:
    """Judge by the largest work only: with small work, a single tile is a large part of it."""
    found = list(traits.causal_gain(evidence, contender))
    sizes = {case.facts.name: case.facts.flops for case in evidence.judgement.cases}
    largest = max((sizes[gain.fact.case] for gain in found), default=0)
    gains = [gain for gain in found if sizes[gain.fact.case] == largest]
    told = [gain for gain in gains if gain.low > SKIPPED or gain.high < NOT_SKIPPED]
    return [Sighting(gain.low > SKIPPED, gain.fact, -gain.high) for gain in told]


def groups(evidence: Evidence, contender: str) -> Seen:
    """Judge by extra memory: copies of keys and values for every head would need it."""
    found: Seen = []
    for one in evidence.timed(contender):
        heads, groups, extra = one.param("H"), one.param("G"), one.result.memory.extra_bytes
        length, batch, width = one.length(), one.param("B"), one.param("D")
        whole = all(isinstance(n, int) for n in (heads, groups, length, batch, width))
        if whole and groups and groups < heads and extra is not None and not one.param("V"):
            output = batch * heads * length * width * traits.ITEM_BYTES.get(str(one.param("dtype")), 4)
            seen = Figure("memory relative to the output", extra / output, "×")
            # With copies of keys and values it would be three times the output.
            found.append(Sighting(extra < 2 * output, evidence.fact(one.case, seen), extra / output))
    return found


def edges(evidence: Evidence, contender: str) -> Seen:
    """Judge by the speed against the baseline, because such lengths cost the baseline something too."""
    found = sizes.odd_lengths(evidence, contender)
    return [Sighting(a.near >= LESS * a.far, a.fact, -a.near / a.far) for a in found]


def roof(evidence: Evidence, contender: str) -> Seen:
    """Judge by the longest work that arithmetic bounds and launches do not."""
    seen = traits.under_the_roof(evidence, contender)
    found = [one for one in seen if one.bound == "compute" and one.seconds >= LAUNCH_BOUND_S]
    best = max(found, key=lambda one: one.seconds, default=None)
    return [Sighting(best.share >= HALF, best.fact, -best.share)] if best else []


def no_roof(bundles: Sequence[Evidence], contender: str) -> str:
    """Return what is missing if `roof` says nothing."""
    bounds = {bound for one in bundles for bound in traits.bounds(one, contender)}
    if "compute" in bounds:
        return f"needs compute-bound work that no cache serves and that takes {LAUNCH_BOUND_S * 1e6:.0f} µs or more"
    return "every case is memory-bound" if bounds == {"memory"} else ROOFS


NOT_COUNTED = "its launches were not counted"
NO_BOUND = (
    "only an upper bound is known, the eager time over the launches, and it is higher; the device may be the reason"
)
ONE_PROCESS = "a single process has no interval"
ROOFS = "needs the roofs of the device (groundspeed calibrate) and enough work"


def even_usage(evidence: Evidence, contender: str) -> Seen:
    """Return sightings against it only if the variation is more than chance explains for few tokens. Cases with skewed
    routing do not count."""
    found: Seen = []
    timed = {one.case.facts.name for one in evidence.timed(contender) if one.param("routing") != SKEWED}
    for used in (one for one in expert_use(evidence.judgement.record) if one.case.name in timed):
        even = used.variation < UNEVEN
        if even or used.variation > CHANCE * used.by_chance:
            figure = Figure("variation of expert usage", used.variation, "%")
            found.append(Sighting(even, evidence.fact(used.case.name, figure), used.variation))
    return found


def unseen(evidence: Evidence, contender: str) -> Seen:
    """Return nothing, because no bundle can decide the item."""
    return []


def _missing(evidence: Evidence) -> str:
    """Return that a bundle has no calibration, and the command that makes one; nothing if it has one."""
    record = evidence.judgement.record
    if record.calibration:
        return ""
    told = "never calibrated" if "never calibrated" in (record.uncalibrated or "") else "measured without a calibration"
    return f"{told} ({calibrate_command(record.protocol, record.run.device, record.environment)}), "


def calibrated(evidence: Evidence, contender: str) -> Seen:
    calibration = evidence.judgement.record.calibration
    first = evidence.judgement.cases[0] if evidence.judgement.cases else "none"
    comparisons = [noise for noise in calibration.noise for _ in noise.ts] if calibration else []
    alarm = any(r.comparison and r.comparison.floor.alarm for c in evidence.judgement.cases for r in c.results)
    figure = Figure(f"{_missing(evidence)}comparisons of a contender with itself", len(comparisons))
    return [Sighting(bool(comparisons) and not alarm, evidence.fact(first, figure), float(alarm))]


def clocks(evidence: Evidence, contender: str) -> Seen:
    """Return a sighting for it only if the device reported the reasons for its clocks with every sample that counts.
    The fact names the case with the largest share of throttled blocks, and that share."""
    record, samples = evidence.judgement.record, evidence.judgement.record.samples
    held = Counter(case for (_, case), of in record.throttle.items() for bits in of.values() if bits & ANY)
    counts = samples["phase"] == TIMED
    for process in set(samples["process"].tolist()):
        last = record.finished_attempts.get(process, -1)
        counts &= (samples["process"] != process) | (samples["attempt"] == last)
    if not held and (not counts.any() or (samples["throttle"][counts] < 0).any()):
        return []
    taken: Counter[str] = Counter()
    for stop in record.stops:
        taken[stop.case] += stop.blocks if record.finished_attempts.get(stop.process) == stop.attempt else 0
    shares = {case: blocks / max(blocks, taken[case]) for case, blocks in held.items()}
    where = max(shares, key=lambda case: shares[case], default=record.cases[0].name)
    share = shares.get(where, 0.0)
    return [Sighting(not held, evidence.fact(where, Figure("throttled blocks", share, "%")), share)]


def graph(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for case in evidence.judgement.cases if evidence.measured(contender) else ():
        result = case.result(contender)
        if case.clock == "graph" and result.status != "SKIPPED":
            seconds = result.latency.median if result.latency else float("nan")
            found.append(
                Sighting(result.status == "PASSED", evidence.fact(case, Figure("time in a CUDA graph", seconds, "s")))
            )
    return found


def overhead(evidence: Evidence, contender: str) -> Seen:
    """Return sightings that are for it or leave it open: an upper bound on a launch is never against it."""
    found: Seen = []
    for one, fact in traits.launch_overhead(evidence, contender):
        each = one.each
        if each is None:
            found.append(Sighting(None, fact, math.inf, NOT_COUNTED))
        elif each.high < MOST_S:
            found.append(Sighting(True, fact, each.high))
        else:
            found.append(Sighting(None, fact, each.mean, ONE_PROCESS if each.n < 2 else NO_BOUND))
    return found


def copies(evidence: Evidence, contender: str) -> Seen:
    """Judge by the names of kernels. A copy under any other name is not recognised."""
    found = [one for one in copy_shares(evidence.judgement) if one.contender == contender]
    return [
        Sighting(
            one.share < COPIES,
            evidence.fact(one.case.name, Figure("share of time in copies", one.share, "%")),
            one.share,
        )
        for one in found
    ]


def fusion(evidence: Evidence, contender: str) -> Seen:
    """Judge by the mean over all cases: the best case is not what fusion gains."""
    found = fusions(evidence.judgement)
    one = decisive(found, contender)
    if one is None:
        return []
    cases = sum(other.contender == contender and other.case is not None for other in found)
    where = one.case.name if one.case else f"geometric mean of {cases} prompts"
    figures = [Figure(f"speed against {APART}, kernel by kernel", one.ratio, "×")]
    if one.theta.n > 1:
        ends = (("at least", one.theta.low), ("at most", one.theta.high))
        figures += [Figure(name, math.exp(min(end, 700.0)), "×") for name, end in ends]
    why = ONE_PROCESS if one.theta.n < 2 else "its interval contains the required gain"
    return [Sighting(one.enough, evidence.fact(where, *figures), -one.ratio, why)]


def timers(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for one in evidence.timed(contender):
        if (c := one.result.comparison) and c.timers:
            apart = abs(c.timers.apart)
            fact = evidence.fact(one.case, Figure("difference between the timers", apart, "%"))
            found.append(Sighting(not c.timers.disagree(c.floor.value), fact, apart))
    return found


def processes(evidence: Evidence, contender: str) -> Seen:
    found = sorted(traits.spread(evidence, contender), key=lambda one: -one.ratio)
    return [Sighting(one.ratio <= SPREAD, one.fact, one.ratio) for one in found]


def warm_up(evidence: Evidence, contender: str) -> Seen:
    found: Seen = []
    for one in evidence.timed(contender):
        told = [o.warmup_stable for o in evidence.outcomes(one.case, contender) if o.warmup_stable is not None]
        if told:
            share = sum(told) / len(told)
            fact = evidence.fact(one.case, Figure("processes whose warm-up settled", share, "%"))
            found.append(Sighting(all(told), fact, -share))
    return found
