"""The memory that a run's contenders took, over the length of what they read (requirement B5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from groundspeed.judge.claims import conditions, ratio_text
from groundspeed.judge.judgement import Judgement
from groundspeed.judge.lengths import LENGTH, SPEC_BYTES, STANDARD, Growth, Lengths, memory_by_length
from groundspeed.report import text
from groundspeed.report.page import Column, Table
from groundspeed.report.rows import numbers

TITLE = "Memory by length"
SPEC = "by the specification, not measured"


class Part(NamedTuple):
    said: str
    """What is measured, and the conditions that the cases share."""
    table: Table


def parts(judgement: Judgement) -> list[Part]:
    """Return a part for each kind of case that has several lengths."""
    return [Part(_said(judgement, one), _table(judgement, one)) for one in memory_by_length(judgement)]


def _said(judgement: Judgement, one: Lengths) -> str:
    first = next(iter(one.cases.values()))
    held = conditions(replace(first, params={k: v for k, v in first.params.items() if k != LENGTH}))
    where = "GPU" if judgement.record.run.device == "cuda" else "host"
    return f"The peak memory that one call adds on the {where}, the largest over all processes, at {held}."


def _table(judgement: Judgement, one: Lengths) -> Table:
    lengths, on_gpu = list(one.cases), judgement.record.run.device == "cuda"
    body = [[growth.contender, *_cells(growth, lengths), *_growing(growth)] for growth in one.growths]
    told = [length for length in lengths if length in SPEC_BYTES]
    if on_gpu and told:
        body += list(_by_specification(lengths))
    note = (
        f"The power is the exponent of {LENGTH} between the shortest and the longest: 1 is O(N), 2 means whole "
        f"matrices of scores, which {STANDARD} stores."
    )
    if on_gpu and told:
        note += (
            " The specification does not give the shape of its figures; those of standard attention equal one matrix "
            f"of FP16 scores per head with 256 heads over all sequences together, but here there are {_heads(one)}."
        )
    if any(length in growth.bytes for growth in one.growths for length in growth.statuses):
        note += (
            " If a contender was not timed, its status says why; its calls were correct, and one of them reported its "
            "memory."
        )
    columns = (Column("contender"), *numbers(*(f"{LENGTH} = {length:,}" for length in lengths)))
    return Table(TITLE, (*columns, *numbers("growth", f"power of {LENGTH}"), Column("grows")), body, note)


def _heads(one: Lengths) -> str:
    """Return the number of heads of all sequences together."""
    params = next(iter(one.cases.values())).params
    heads = [params.get(name) for name in ("B", "H")]
    return f"{heads[0] * heads[1]:,}" if all(isinstance(n, int) for n in heads) else "other numbers"  # type: ignore[operator]


def _cells(growth: Growth, lengths: list[int]) -> list[str]:
    cells = []
    for length in lengths:
        status, amount = growth.statuses.get(length), growth.bytes.get(length)
        told = text.amount_of_bytes(amount) if amount is not None else status or text.NOTHING
        cells.append(f"{told} (not timed: {status})" if status and amount is not None else told)
    return cells


def _growing(growth: Growth) -> list[str]:
    if growth.power is None:
        return [text.NOTHING] * 3
    steps = sorted(growth.bytes)
    ratios = [
        f"{ratio_text(growth.bytes[b] / growth.bytes[a])}×" if growth.bytes[a] else text.NOTHING
        for a, b in pairwise(steps)
    ]
    return [" ".join(ratios), f"{growth.power:.2f}", growth.growing or text.NOTHING]


def _by_specification(lengths: list[int]) -> Iterator[list[str]]:
    for i, kind in enumerate(("standard", "flash")):
        amounts = [SPEC_BYTES[length][i] if length in SPEC_BYTES else None for length in lengths]
        cells = [f"{amount / 1e9:g} GB" if amount else text.NOTHING for amount in amounts]
        yield [f"{kind} {SPEC}", *cells, *([text.NOTHING] * 3)]


def plain(judgement: Judgement) -> list[dict[str, Any]]:
    """Return the same as data, one row per contender and length. The specification's figure has a key of its own."""
    on_gpu = judgement.record.run.device == "cuda"
    return [
        {
            "case": case.name,
            "contender": growth.contender,
            "length": length,
            "extra_bytes": growth.bytes.get(length),
            "status": growth.statuses.get(length, "PASSED"),
            "power": growth.power,
            "growing": growth.growing,
            "specification_bytes": one.spec_bytes(length, growth.contender) if on_gpu else None,
        }
        for one in memory_by_length(judgement)
        for growth in one.growths
        for length, case in one.cases.items()
    ]
