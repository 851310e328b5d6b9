"""What a reader needs beside the figures: what the words mean, and where the optimisation attempts are recorded."""

from __future__ import annotations

from groundspeed.evidence.record import Record
from groundspeed.judge.grid import CATEGORIES

MEANINGS = (
    (
        "trust",
        "How far a claim holds. Cooperative: the contenders shared a process, so none of them may have worked against "
        "the others or the laboratory. Isolated: each had a process of its own. Reproduced: a later run of the same "
        "contenders has the same verdict, and an interval that meets this one.",
    ),
    (
        "baseline",
        "Whose time is divided by the contender's. Declared: the one that the suite names for this device; asked: whom "
        "the user named before the run; chosen afterwards: named when the samples were there.",
    ),
    (
        "clocks",
        "Cold L2: time on the device, its cache flushed before each launch; warm: without that. Graph: time on the "
        "device, replayed from a CUDA graph. Eager: what a caller sees of calls back to back.",
    ),
    (
        "floor",
        "The least difference that is believed, however small its interval. It comes from comparing a contender with "
        "itself on this machine (groundspeed calibrate); without a calibration it is a default. It is higher where the "
        "comparisons of the run vary more than that from process to process, or a process lies far off.",
    ),
    (
        "UNCLEAR",
        "The samples show neither a difference over the floor nor that there is none, or something speaks against "
        "them. It is not SAME; the reason beside it says what would settle it.",
    ),
    (
        "category",
        "Where the whole interval of a speed-up lies: "
        + ", ".join(f"{name} over {low:g}×" if low else f"else {name}" for name, low, _ in CATEGORIES)
        + ". Between two of them it has both names.",
    ),
)
"""Words of a report that a new reader cannot know; docs/protocol.md explains them in full."""

PROVES = (
    "`verify` proves that nothing changed since the samples were written; who measured them is for a signature to say, "
    "and whether it is true only another run can tell."
)


def attempts(record: Record) -> str:
    """Return where the optimisation attempts are recorded (A10): in a log, because no bundle contains them."""
    ours = [c.name for c in record.measured if c.name.startswith("ours-")]
    if not ours:
        return (
            "None of the kernels measured here is groundspeed's own, and a bundle holds no attempts: only what was "
            "measured in the end. How each contender was tuned is in the fairness record; report --log FILE puts a log "
            "of attempts here."
        )
    commit = f", as of commit {record.run.commit[:12]}" if record.run.commit else ""
    return (
        f"What was tried on {' and '.join(ours)}, what it was worth and what failed is in docs/log.md of groundspeed's "
        f"repository{commit}. A bundle holds no attempts, only what was measured in the end; report --log FILE puts "
        "such a log here."
    )
