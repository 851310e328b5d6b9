"""Whether the comparison was fair: what each contender is, how it was tuned, and which kernels it really ran."""

from __future__ import annotations

from collections.abc import Iterator

from groundspeed.judge.judgement import Judgement
from groundspeed.report import text
from groundspeed.report.escape import markdown_table


def contenders(judgement: Judgement) -> Iterator[str]:
    """The fairness record: what each is, in which version, and what was done for it; kernels have their own table."""
    first: dict[str, float] = {}
    for outcome in judgement.record.outcomes:
        if outcome.prepare_s is not None:
            first[outcome.contender] = max(outcome.prepare_s, first.get(outcome.contender, 0.0))
    body = [
        [
            c.name,
            c.description,
            c.version or text.NOTHING,
            c.tuning or ("not told" if c.status is None else text.NOTHING),
            text.seconds(first[c.name]) if c.name in first else text.NOTHING,
            c.status or "measured",
            c.reason or "",
        ]
        for c in judgement.record.contenders
    ]
    headings = ("contender", "what it is", "version", "tuning", "longest first call", "status", "reason")
    yield from markdown_table(headings, body, left=(0, 1, 2, 3, 5, 6))
    yield ""
    yield "What a contender compiles or tries in its first call and in its warm-up is not timed."


def kernels(judgement: Judgement) -> Iterator[str]:
    """What each contender really ran on the GPU; nothing on a CPU."""
    seen: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for launched in judgement.record.launched:
        seen.setdefault((launched.contender, launched.kernels), []).append(launched.case)
    body = [
        [
            contender,
            "; ".join(names) or "none",
            cases[0] if len(cases) == 1 else f"{cases[0]} and {len(cases) - 1} more",
        ]
        for (contender, names), cases in seen.items()
    ]
    if body:
        yield from markdown_table(
            ("contender", "kernels that one call launched, as the profiler saw it", "cases"), body, range(3)
        )
