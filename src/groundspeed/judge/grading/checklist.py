"""The optimisation checklists (requirement B6): attention, MoE, system. Only a measured fact ticks or crosses an item.
If no bundle can decide it, the item says what could."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from groundspeed.judge.fusion import APART, FEW, SUITE, WANTED
from groundspeed.judge.grading import profiled, sightings
from groundspeed.judge.grading.profiled import Profiled, Seen, Tick
from groundspeed.judge.grading.sightings import LONG
from groundspeed.judge.grading.symptoms import LESS, SPREAD
from groundspeed.judge.grading.traits import Evidence, Fact
from groundspeed.judge.launches import MOST_S

Part = Literal["attention", "moe", "system"]


@dataclass(frozen=True)
class Ticked:
    part: Part
    item: str
    tick: Tick
    facts: tuple[Fact, ...]
    why: str = ""
    """If not determined: what could decide it, or why the fact does not."""


@dataclass(frozen=True)
class Item:
    part: Part
    item: str
    needs: str
    """What a bundle must have to decide it."""
    see: Callable[[Evidence, str], Seen]
    """Returns what a bundle says for and against it."""
    look: Callable[[Profiled, str], Seen] | None = None
    """Returns what a profile says for and against it."""
    every: bool = False
    """Whether a single bundle without a sighting leaves it open, whatever the others say for it."""
    gpu: bool = False
    """Whether it exists only on a GPU, so that nothing on a CPU can decide it."""
    lacks: Callable[[Sequence[Evidence], str], str] | None = None
    """Returns what these bundles lack, if they show that better than `needs` does."""


def checklist(
    evidence: Sequence[Evidence], contender: str, parts: Sequence[str] = (), profiles: Sequence[Profiled] = ()
) -> tuple[Ticked, ...]:
    """Return the ticked checklists of a contender. An item is crossed if any fact is against it, and ticked if there
    are facts and all are for it; a fact that leaves it open keeps it open. The gravest fact is shown. If `parts` is
    given, only these lists and that of the system are returned, from bundles of these suites only."""
    found = []
    looked = profiled.of_same_code(profiles, evidence, contender)
    of_all = set(parts) or {one.suite for one in evidence} | {one.suite for one in profiles}
    for item in (item for item in ITEMS if not parts or item.part in (*parts, "system")):
        suites = of_all if item.part == "system" else {item.part}
        about = [e for e in evidence if e.suite in suites]
        bundles = [e for e in about if e.measured(contender)]
        by_bundle = [item.see(e, contender) for e in bundles]
        seen = [one for some in by_bundle for one in some]
        if item.every and not all(by_bundle) and all(one.good for one in seen):
            seen = []
        if item.look:
            seen += [one for profile in looked if profile.suite in suites for one in item.look(profile, contender)]
        seen = sorted(seen, key=lambda one: -one.grave)
        against, still_open = ([one for one in seen if one.good is good] for good in (False, None))
        tick: Tick = "no" if against else "yes" if seen and not still_open else "not determined"
        facts = [one.fact for one in (against or still_open or seen)[:1]]
        if seen:
            why = still_open[0].why if tick == "not determined" else ""
        elif not about:
            why = f"there is no bundle of {' or '.join(sorted(suites))}"
        elif not bundles:
            why = f"no bundle of {' or '.join(sorted({e.suite for e in about}))} has {contender}"
        elif item.gpu and all(e.judgement.record.run.device == "cpu" for e in evidence):
            why = GPU
        elif item.lacks:
            why = item.lacks(bundles, contender)
        else:
            why = NO_COUNTER if looked and item.needs == PROFILE else item.needs
        found.append(Ticked(item.part, item.item, tick, tuple(facts), why))
    return tuple(found)


PROFILE = "only the counters of a profiler show it"
NO_NAME = f"{PROFILE}; names of kernels do not"
NO_COUNTER = "the profiles have no counter for it"
NO_PROFILE = "needs a profile (groundspeed profile)"
GPU = "does not apply to a CPU"
NO_TRACE = "no bundle has a trace of its steps"

ITEMS: tuple[Item, ...] = (
    Item("attention", "memory grows with S, not with S²", "needs two lengths of one kind", sightings.linear_memory),
    Item(
        "attention",
        "multiplies on tensor cores",
        "a rate below the peak without them does not decide it",
        sightings.tensor_cores,
        profiled.tensor_cores,
        gpu=True,
    ),
    Item(
        "attention",
        "one kernel, no copies",
        "the launched kernels were not recorded",
        sightings.one_kernel,
        profiled.one_kernel,
    ),
    Item("attention", "sums in FP32", f"needs a case in 16 bits with {LONG} keys or more", sightings.fp32_sums),
    Item(
        "attention",
        "masked blocks are skipped",
        "needs the full and the causal mask on one shape that is long enough",
        sightings.causal,
    ),
    Item(
        "attention",
        "grouped heads without copies",
        "needs a case with fewer heads of keys than of queries, and as many keys as queries (--case 'form-*')",
        sightings.groups,
    ),
    Item(
        "attention",
        f"lengths that do not fill their tiles keep {LESS:.0%} of the speed against the baseline",
        "needs such a length and a nearby one that fills its tiles",
        sightings.edges,
    ),
    Item(
        "attention",
        "half of the roof on compute-bound work",
        sightings.ROOFS,
        sightings.roof,
        lacks=sightings.no_roof,
    ),
    Item("attention", "producers and consumers in separate warps", NO_NAME, sightings.unseen, gpu=True),
    Item("attention", "shared memory without bank conflicts", PROFILE, sightings.unseen, gpu=True),
    Item("attention", "registers do not spill", PROFILE, sightings.unseen, profiled.no_spills),
    Item("moe", "router with a parallel top-k", NO_TRACE, sightings.unseen),
    Item("moe", "tokens batched by expert", NO_TRACE, sightings.unseen),
    Item("moe", "one grouped GEMM for all experts", NO_TRACE, sightings.unseen),
    Item("moe", "activation and combine fused", NO_TRACE, sightings.unseen),
    Item(
        "moe",
        f"router under {profiled.ROUTER:.0%} of the time",
        f"{NO_PROFILE} that has our routing kernels",
        sightings.unseen,
        profiled.small_router,
    ),
    Item(
        "moe",
        f"expert usage varies by less than {sightings.UNEVEN:.0%}",
        "needs enough tokens per expert that chance alone varies less",
        sightings.even_usage,
    ),
    Item("system", "the machine is calibrated, without an alarm", "needs a bundle", sightings.calibrated),
    Item(
        "system",
        "clocks were never throttled",
        "the device did not report on every block",
        sightings.clocks,
        every=True,
    ),
    Item("system", "runs from a CUDA graph", "needs --clock graph", sightings.graph, gpu=True),
    Item(
        "system",
        f"launch overhead under {MOST_S * 1e6:.0f} µs",
        "needs --clock eager",
        sightings.overhead,
        gpu=True,
    ),
    Item("system", "two timers agree", "needs a GPU and PyTorch's profiler", sightings.timers),
    Item("system", f"processes agree within {SPREAD - 1:.0%}", "needs two processes", sightings.processes),
    Item("system", "every warm-up settled", "the record does not say", sightings.warm_up),
    Item(
        "system",
        "copies under 1% of the time",
        f"{NO_PROFILE}, or a GPU run that recorded the time of each kernel",
        sightings.copies,
        profiled.few_copies,
    ),
    Item(
        "system",
        "device idle for under 1% between kernels",
        f"{NO_PROFILE}; a longer idle time may be due to the profiler",
        sightings.unseen,
        profiled.few_gaps,
    ),
    Item(
        "system",
        f"fusion gains more than {WANTED - 1:.0%}",
        f"needs a GPU run of {SUITE} with this contender and {APART} in a CUDA graph, on prompts of more than {FEW}",
        sightings.fusion,
    ),
)
