"""Two other views of the same comparison: with the contenders timed one after the other, and without the blocks in
which the device held its clocks back. Both are shown beside the result; no verdict rests on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from groundspeed.evidence.record import Record
from groundspeed.judge.statistics import trimmed
from groundspeed.judge.stopping import log_ratios
from groundspeed.judge.warnings import Disturbance, and_so

if TYPE_CHECKING:
    from groundspeed.judge.judgement import CaseJudgement

HELD_BACK = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for which clocks are held below what the work could have had. An idle device, or one set to lower
clocks, does not count."""
ANY = sum(HELD_BACK)


def sequential_thetas(record: Record, case: str, contender: str) -> list[float]:
    """Return θ of each process, from the samples that each contender took in a row."""
    result = []
    for process in sorted(record.finished_attempts):
        base, own = (record.sequential_seconds.get((process, case, name)) for name in (record.run.baseline, contender))
        if base and own:
            result.append(_log_centre(base.values()) - _log_centre(own.values()))
    return result


def _log_centre(seconds: Iterable[float]) -> float:
    return trimmed([math.log(value) for value in seconds]).mean


def unthrottled_thetas(record: Record, case: str, contender: str) -> list[float]:
    """Return θ of each process without the blocks in which the clocks were held back, or nothing if there were no such
    blocks."""
    baseline, result = record.run.baseline, []
    processes = sorted(record.finished_attempts)
    held_by = {
        process: {block for block, bits in record.throttle.get((process, case), {}).items() if bits & ANY}
        for process in processes
    }
    if not any(held_by.values()):
        return []
    for process, held in held_by.items():
        times = {
            name: {b: s for b, s in record.seconds.get((process, case, name), {}).items() if b not in held}
            for name in (contender, baseline)
        }
        if theta := log_ratios(times, contender, baseline):
            result.append(trimmed(theta).mean)
    return result


def reasons(bits: int) -> list[str]:
    """Return what throttled the clocks, in words."""
    return [words for bit, words in HELD_BACK.items() if bits & bit]


def view_warnings(record: Record, cases: Sequence[CaseJudgement]) -> Iterator[Disturbance]:
    """Yield a warning if a view or a second timer disagrees with the result, and if clocks were held back at all."""
    apart = []
    for case in cases:
        for c in (result.comparison for result in case.results):
            if c and c.sequential and abs(c.sequential.mean - c.interval.mean) > c.floor.value:
                ratios = [math.exp(view.mean) for view in (c.sequential, c.interval)]
                apart.append(f"{c.contender} on {case.facts.name} reads {ratios[0]:.3g}× instead of {ratios[1]:.3g}×")
    if apart:
        yield Disturbance(
            "sequential",
            f"timed one after the other, {apart[0]}, a difference above the floor{and_so(apart)}",
            "trust the interleaved figure, in which drift affects all contenders alike",
        )
    yield from _timers(cases)
    held = [bits for of in record.throttle.values() for bits in of.values() if bits & ANY]
    if held:
        why = ", ".join(words for bit, words in HELD_BACK.items() if any(bits & bit for bits in held))
        taken = sum(stop.blocks for stop in record.stops if record.finished_attempts.get(stop.process) == stop.attempt)
        yield Disturbance(
            "throttled",
            f"the device throttled its clocks ({why}) in {len(held)} of {taken} blocks",
            "the report also shows every speed-up without these blocks; better cooling or a higher power limit "
            "prevents this",
        )


def _timers(cases: Sequence[CaseJudgement]) -> Iterator[Disturbance]:
    """Yield warnings about timers that disagree. A verdict stands if the comparisons of the run vary by more than its
    timers are apart. The remedy does not advise a graph for work that is already timed in one."""
    differ: dict[tuple[bool, bool], list[str]] = {}
    for case in cases:
        for c in (result.comparison for result in case.results):
            if c and c.timers and c.timers.disagree(c.floor.value):
                kind = c.verdict not in (None, "UNCLEAR"), case.clock == "graph"
                differ.setdefault(kind, []).append(f"{c.contender} on {case.facts.name}: {c.timers}")
    for (stands, in_graph), found in sorted(differ.items()):
        yield Disturbance(
            "timers",
            f"{found[0]}; that is more than the floor"
            + (" but less than the comparisons of this run vary" if stands else "")
            + and_so(found),
            ("the verdicts stand; " if stands else "no verdict rests on these; ")
            + (
                "quote none of these speed-ups more precisely than its timers agree"
                if in_graph
                else "measure work this short with --clock graph"
            ),
        )
