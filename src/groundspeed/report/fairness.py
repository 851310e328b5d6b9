"""Whether the comparison was fair: what each contender is, how it was tuned, and which kernels it actually ran."""

from __future__ import annotations

import numpy as np

from groundspeed.evidence.record import Record
from groundspeed.evidence.samples import TIMED
from groundspeed.judge.judgement import Judgement
from groundspeed.report import text
from groundspeed.report.page import Column, Table

INTERRUPTED = "the run was interrupted before it was timed"
LONGEST = 120
"""The most characters shown of a kernel's name. In full, a few C++ templates would fill a seventh of a report."""


def contenders(judgement: Judgement) -> Table:
    """Return the fairness record: each contender's description, version and tuning. Kernels have their own table."""
    first: dict[str, float] = {}
    for outcome in judgement.record.outcomes:
        if outcome.prepare_s is not None:
            first[outcome.contender] = max(outcome.prepare_s, first.get(outcome.contender, 0.0))
    reached = _reached(judgement.record)
    body = [
        [
            c.name,
            c.description,
            c.version or text.NOTHING,
            c.tuning or ("not stated" if c.status is None else text.NOTHING),
            text.seconds(first[c.name]) if c.name in first else text.NOTHING,
            c.status or ("measured" if c.name in reached else "not measured"),
            c.reason or ("" if c.name in reached or c.status else INTERRUPTED),
        ]
        for c in judgement.record.contenders
    ]
    columns = (
        *map(Column, ("contender", "what it is", "version", "tuning")),
        Column("longest first call", number=True),
        Column("status", word=True),
        Column("reason"),
    )
    note = "What a contender compiles or tries in its first call and in its warm-up is not timed."
    return Table("Fairness record", columns, body, note)


def _reached(record: Record) -> set[str]:
    """Return the contenders that were timed or failed before that; all, unless the run was interrupted."""
    if record.complete:
        return {contender.name for contender in record.measured}
    timed = np.unique(record.samples["contender"][record.samples["phase"] == TIMED])
    return {record.contenders[i].name for i in timed} | {o.contender for o in record.outcomes if o.status != "PASSED"}


def kernels(judgement: Judgement) -> Table:
    """Return the kernels that each contender actually ran on the GPU; empty on a CPU."""
    seen: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for launched in judgement.record.launched:
        seen.setdefault((launched.contender, launched.kernels), []).append(launched.case)
    body = [
        [
            contender,
            "; ".join(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names) or "none",
            cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more",
        ]
        for (contender, names), cases in seen.items()
    ]
    headings = ("contender", "kernels that one call launched, as the profiler saw it", "cases")
    cut = any(len(name) > LONGEST for _, names in seen for name in names)
    note = f"Names longer than {LONGEST} characters are cut; the JSON has them in full." if cut else ""
    return Table("Kernels", tuple(map(Column, headings)), body, note)
