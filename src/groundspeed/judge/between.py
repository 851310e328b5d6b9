"""The drift between two runs: how far unchanged code moved from one to the other.

A whole run may be off by more than its processes show, and by more in one contender than in the next. The anchors,
which are the contenders that are the same in both runs, show by how much. The compared contenders are assumed to move
like the anchors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from groundspeed.evidence.record import ContenderFacts, Record
from groundspeed.judge.judgement import CaseJudgement, Judgement
from groundspeed.judge.statistics import t_quantile

Pair = tuple[CaseJudgement, CaseJudgement]
"""A case in base and in head."""


@dataclass(frozen=True)
class Between:
    anchor: str | None
    """The contender with which the others are compared, each in its own run."""
    moves: Mapping[str, Mapping[str, float]]
    """Anchor → case → log(base time / head time). Above 0, the anchor ran faster in head although it did not change."""
    alone: float
    """By how much a contender that did not change may have moved on its own, at 95% for all compared contenders
    together."""

    def anchor_moved(self, case: str) -> float | None:
        """Return how far the anchor moved on a case, or None if the two runs do not both have a time for it."""
        return self.moves.get(self.anchor, {}).get(case) if self.anchor else None

    def allowance(self, case: str) -> float:
        """Return the allowance for a log ratio against the anchor: the contender's own movement plus the anchor's."""
        return self.alone + abs(self.anchor_moved(case) or 0.0)


def between(base: Record, head: Record, cases: Sequence[Pair], compared: Sequence[str]) -> Between:
    same = anchors_of(base, head, compared)
    moves = {name: found for name in same if (found := dict(_moves(name, cases)))}
    return Between(same[0] if same else None, moves, alone(list(moves.values()), len(compared), len(cases)))


def alone(moves: Sequence[Mapping[str, float]], compared: int, cases: int) -> float:
    """Return `Between.alone`: the greater of two readings, because nothing tells which is true. Either a run moves a
    contender by the same amount on all its cases, which gives one value for each anchor, or on each case separately,
    which gives one value for each anchor and case."""
    if not moves:
        return math.inf
    squares = [[move * move for move in found.values()] for found in moves]
    by_anchor = [sum(some) / len(some) for some in squares]
    by_case = [square for some in squares for square in some]
    readings = ((by_anchor, compared), (by_case, compared * cases))
    return max(
        t_quantile(1 - 0.025 / together, len(found)) * math.sqrt(sum(found) / len(found))
        for found, together in readings
    )


def anchors_of(base: Record, head: Record, compared: Sequence[str]) -> list[str]:
    """Return the contenders that are not compared and were the same in both runs, by version, by file and, on a GPU, by
    what they launched. The baseline comes first if it is one of them."""
    known = {c.name: c for c in head.measured}
    same = [c.name for c in base.measured if c.name not in compared and _same_code(base, head, c, known.get(c.name))]
    baselines = (base.run.baseline, head.run.baseline)
    return sorted(same, key=lambda name: baselines.index(name) if name in baselines else len(baselines))


def _same_code(base: Record, head: Record, then: ContenderFacts, now: ContenderFacts | None) -> bool:
    if now is None or not then.version or (then.version, then.source_sha256) != (now.version, now.source_sha256):
        return False
    seen = [{x.case: (x.kernels, x.binaries) for x in r.launched if x.contender == then.name} for r in (base, head)]
    return all(seen[0][case] == seen[1][case] for case in seen[0].keys() & seen[1].keys())


def _moves(name: str, cases: Sequence[Pair]) -> list[tuple[str, float]]:
    times = [(a.facts.name, a.result(name).latency, b.result(name).latency) for a, b in cases]
    return [(case, math.log(then.median / now.median)) for case, then, now in times if then and now]


def notes_of(base: Judgement, head: Judgement, cases: Sequence[Pair], runs: Between) -> Iterator[str]:
    yield from _drift(base.record, head.record, len(cases), runs)
    yield from _differences(base.record, head.record)
    yield from _warnings(base, head)


def _drift(base: Record, head: Record, cases: int, runs: Between) -> Iterator[str]:
    when = f"base until {base.run.finished}, head until {head.run.finished}"
    if runs.anchor is None:
        yield (
            f"measured at different times ({when}), and no other contender is the same in both, so these figures "
            "include the drift of the machine; comparing the revisions measures both in one run"
        )
        return
    ratios = [math.exp(move) for move in runs.moves.get(runs.anchor, {}).values()]
    seen = f", which itself ran {min(ratios):.3f}× to {max(ratios):.3f}× as fast in head as in base" if ratios else ""
    yield f"measured at different times ({when}): each contender was compared with {runs.anchor} in its own run{seen}"
    if runs.moves:
        same, moved = (
            ", ".join(runs.moves),
            f"{math.expm1(runs.alone):.1%}" if runs.alone < math.log(2) else "over 100%",
        )
        more = "; more unchanged contenders would narrow this" if len(runs.moves) == 1 else ""
        yield f"judging by {same}, unchanged code may differ by {moved} from run to run{more}"
    if len(ratios) < cases:
        missing = f"{cases - len(ratios)} of {cases} cases"
        yield f"{missing} do not have a time of {runs.anchor} in both runs, so their figures include drift"


def _differences(base: Record, head: Record) -> Iterator[str]:
    """Describe the other differences between the two runs."""
    known = {c.name: c for c in head.measured}
    for then in base.measured:
        now = known.get(then.name)
        if now and then.version != now.version:
            yield f"{then.name}: {then.version} in base, {now.version} in head"
    for part, key in (("gpu", "driver"), ("cpu", "governor"), ("packages", "torch"), ("packages", "triton")):
        a, b = (
            r.environment[part].get(key) if isinstance(r.environment.get(part), dict) else None for r in (base, head)
        )
        if a != b:
            yield f"{key}: {a!s:.60} in base, {b!s:.60} in head"


def _warnings(base: Judgement, head: Judgement) -> Iterator[str]:
    """Describe the warnings of both runs, each kind once, with the side or sides that it comes from."""
    kinds: dict[tuple[str, str], dict[str, list[str]]] = {}
    for side, judgement in (("base", base), ("head", head)):
        for warning in judgement.warnings:
            kinds.setdefault((warning.code, warning.remedy), {}).setdefault(warning.message, []).append(side)
    for (_, remedy), messages in kinds.items():
        said = "; ".join(f"{' and '.join(dict.fromkeys(sides))}: {message}" for message, sides in messages.items())
        yield f"{said}; {remedy}"
