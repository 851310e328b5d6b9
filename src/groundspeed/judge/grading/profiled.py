"""What profiles show of how a contender works: its use of the device, copies and gaps (requirements B6 and B9).

A profile describes a few calls under a profiler, which slows them down. So no time is taken from it here, and a wait
that the profiler may have caused counts against no contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from groundspeed.judge.beside import other_code
from groundspeed.judge.experts import router_share
from groundspeed.judge.grading.traits import Evidence, Fact, Figure
from groundspeed.judge.profile import Look, Picture

Tick = Literal["yes", "no", "not determined"]


class Sighting(NamedTuple):
    """What one case says for or against an item of a checklist."""

    good: bool | None
    """None if what was seen leaves the item open. It then stays open, whatever other cases say for it."""
    fact: Fact
    grave: float = 0.0
    """How grave it is, in the item's own unit, to order sightings of the same item."""
    why: str = ""
    """Why it is open, if it is."""


Seen = list[Sighting]

RESOURCES = {"SM": "sm", "tensor cores": "tensor", "bandwidth": "dram"}
"""The specification's name of a resource → the attribute of a counter reading."""
WHOLE = 1.05
"""The most of a peak that counts as a reading. Counters from several passes may add up to slightly more than 1."""
COPIES, GAPS = 0.01, 0.01
"""The share of copies that the specification allows, and the share of a call below which idle time between kernels
means that the device is kept busy."""
ROUTER = 0.05
"""The share of a mixture-of-experts call that the specification allows the router."""


@dataclass(frozen=True)
class Profiled:
    """A verified profile."""

    identity: str
    picture: Picture

    @property
    def suite(self) -> str:
        return self.picture.profile.suite

    def fact(self, *figures: Figure) -> Fact:
        return Fact(self.identity, self.picture.profile.case.name, figures)

    def look(self, contender: str) -> Look | None:
        """Return what the profile shows of a contender, or None if it was not profiled, did not pass, or did more than
        the device can."""
        found = next((look for look in self.picture.looks if look.contender == contender), None)
        good = found and found.seen.status == "PASSED" and not (found.point and found.point.impossible)
        return found if good else None


def of_same_code(profiles: Sequence[Profiled], evidence: Sequence[Evidence], contender: str) -> tuple[Profiled, ...]:
    """Return the profiles of the contender's code as a run measured it. A profile of other code says nothing about
    it."""
    records = [e.judgement.record for e in evidence]

    def same(one: Profiled) -> bool:
        about = [record for record in records if record.run.suite == one.suite]  # names are per suite
        return any(other_code(record, one.picture.profile, contender) is None for record in about)

    return tuple(one for one in profiles if one.look(contender) and same(one))


@dataclass(frozen=True)
class Used:
    """How much of the device a specification wants used, and what the counters say about one contender."""

    what: str
    over: float
    answer: Tick
    facts: tuple[Fact, ...] = ()
    why: str = ""
    """Why it is not determined, if so."""


def used(
    profiles: Sequence[Profiled], evidence: Sequence[Evidence], contender: str, wanted: Mapping[str, float]
) -> tuple[Used, ...]:
    """Return the utilisation that `wanted` asks for. The lowest share among the profiles of a suite decides."""
    own = of_same_code(profiles, evidence, contender)
    found = []
    for what, over in wanted.items():
        part, _, resource = (word.strip() for word in what.partition(":"))
        about = [one for one in own if one.suite == part]
        seen = [(share, one) for one in about if (share := _share(one, contender, resource)) is not None]
        if seen:
            share, one = min(seen, key=lambda pair: pair[0])
            answer: Tick = "yes" if share > over else "no"
            found.append(Used(what, over, answer, (one.fact(Figure(resource, share, "%")),)))
        else:
            why = _nothing(profiles, about, part, contender)
            found.append(Used(what, over, "not determined", (), why))
    return tuple(found)


def _nothing(profiles: Sequence[Profiled], about: Sequence[Profiled], part: str, contender: str) -> str:
    if not profiles:
        return "no profile was given"
    if not any(one.suite == part for one in profiles):
        return "no profile shows such work"
    if not about:
        return f"no profile shows {contender} passing with the code of the runs"
    look = about[0].look(contender)
    return (look.seen.no_counters if look else None) or "the counters do not show it"


def _share(one: Profiled, contender: str, resource: str) -> float | None:
    """Return the use of a resource by all kernels of a call, weighted by their times, or None if it is not known."""
    look, name = one.look(contender), RESOURCES.get(resource)
    if look is None or name is None or not look.readings or (name == "tensor" and _in_fp32(one)):
        return None
    alone = len(look.readings) == 1
    told = [(getattr(reading, name), 1.0 if alone else reading.seconds) for reading in look.readings]
    known = [(share, seconds) for share, seconds in told if share is not None and seconds]
    if len(known) < len(told):
        return None
    share = sum(share * seconds for share, seconds in known) / sum(seconds for _, seconds in known)
    return share if 0 <= share <= WHOLE else None


def _in_fp32(one: Profiled) -> bool:
    return one.picture.profile.case.params.get("dtype") == "fp32"


def tensor_cores(one: Profiled, contender: str) -> Seen:
    share = _share(one, contender, "tensor cores")
    return [] if share is None else [Sighting(share > 0, one.fact(Figure("tensor cores", share, "%")))]


def one_kernel(one: Profiled, contender: str) -> Seen:
    look = one.look(contender)
    if look is None or one.picture.profile.device != "cuda" or look.seen.left_out:
        return []
    number, copies = (sum(top.times for top in look.tops if top.kind == kind) for kind in ("kernel", "copy"))
    figures = (Figure("kernels per call", number), Figure("copies", copies))
    return [Sighting(number == 1 and not copies, one.fact(*figures), number + copies)] if number else []


def no_spills(one: Profiled, contender: str) -> Seen:
    look = one.look(contender)
    told = [reading.spills for reading in look.readings] if look else []
    known = [spills for spills in told if spills is not None]
    if not known or (len(known) < len(told) and not any(known)):
        return []
    return [Sighting(not any(known), one.fact(Figure("register spill requests", sum(known))), sum(known))]


def few_copies(one: Profiled, contender: str) -> Seen:
    look = one.look(contender)
    if look is None or look.copy_share is None or look.seen.left_out:
        return []
    share = look.copy_share
    return [Sighting(share < COPIES, one.fact(Figure("share of time in copies", share, "%")), share)]


def few_gaps(one: Profiled, contender: str) -> Seen:
    """Return only sightings for it: a profiler makes gaps wider."""
    look = one.look(contender)
    if look is None or look.gaps is None or look.seen.left_out or look.gaps.share >= GAPS:
        return []
    return [Sighting(True, one.fact(Figure("idle share between kernels", look.gaps.share, "%")))]


def small_router(one: Profiled, contender: str) -> Seen:
    look = one.look(contender)
    share = router_share(look) if look else None
    return (
        []
        if share is None
        else [Sighting(share < ROUTER, one.fact(Figure("share of time in the router", share, "%")), share)]
    )
