"""How a run was measured, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from groundspeed.case import CLOCKS, DEFAULT_CLOCK
from groundspeed.evidence.record import Record
from groundspeed.judge.cost import gate_share
from groundspeed.report import text, words


def protocol_lines(record: Record) -> Iterator[str]:
    """Yield the protocol of a run in sentences."""
    p, run = record.protocol, record.run
    processes, looks = text.plural(p.processes, "fresh process", "es"), ", ".join(map(str, p.looks))
    yield f"{p.name}, preset {p.preset}, {processes}, seed {p.seed}."
    yield (
        f"Each block times every contender once, in random order. A process stops at the first of {looks} blocks where "
        f"the 95% half-width of every judged log ratio is at most {p.half_width:.1%}, otherwise at the last."
    )
    if p.isolated:
        yield "Each contender had its own process, which imported no other contender's file."
    else:
        yield "The contenders shared each process: interference between them is checked for, but cannot be ruled out."
    if p.extension:
        yield (
            f"Declared beforehand: {p.extension} processes if a verdict is UNCLEAR after {p.processes}. Every interval "
            f"over processes therefore has {p.confidence:.1%}, so that both looks together come to about 95%."
        )
    if p.sequential:
        yield f"After the blocks of a case, each contender took {p.sequential} samples of it in a row, for comparison."
    yield (
        f"{text.plural(p.threads, 'thread')}; warm-up at least {p.warmup_s:g} s; {p.input_sets} sets of random "
        f"inputs in rotation; at most {p.timeout_s:g} s per sample."
    )
    if run.device == "cuda":
        names = sorted({str(case.params.get("clock", DEFAULT_CLOCK)) for case in record.cases})
        yield f"Clocks: {', '.join(f'{name} ({CLOCKS.get(name, name)})' for name in names)}."
    yield f"Baseline {run.baseline}, {run.baseline_origin}; judged: {', '.join(run.judged) or 'none'}."
    if (share := gate_share(record)) is not None:
        yield f"{words.gate(share)}."
    if run.reproduces:
        yield f"This run repeats that of bundle {run.reproduces[:12]}."
    yield f"groundspeed {run.version}, commit {run.commit or 'unknown'}, from {run.started} to {run.finished}."
