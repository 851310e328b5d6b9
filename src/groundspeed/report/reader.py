"""What a reader needs beside the figures: what the words mean, and where the optimisation attempts are recorded."""

from __future__ import annotations

from groundspeed.evidence.record import Record
from groundspeed.judge.grid import CATEGORIES

MEANINGS = (
    (
        "trust",
        "How far a claim holds. Cooperative: the contenders shared a process, so the claim holds only if none of them "
        "worked against the others or the laboratory. Isolated: each had its own process. Reproduced: a later run of "
        "the same contenders has the same verdict, and its interval overlaps this one.",
    ),
    (
        "baseline",
        "The contender whose time is divided by that of each other one. Declared: named by the suite for this device; "
        "asked: named by the user before the run; chosen afterwards: named when the samples already existed.",
    ),
    (
        "clocks",
        "Cold L2: time on the device, with its cache flushed before each launch; warm: without the flush. Graph: time "
        "on the device, replayed from a CUDA graph. Eager: what a caller sees of calls back to back.",
    ),
    (
        "floor",
        "The smallest difference that counts, however narrow its interval. It comes from comparing a contender with "
        "itself on this machine (groundspeed calibrate); without a calibration it is a default. It is higher if the "
        "comparisons of the run vary more than that from process to process, or if a process is far from the others.",
    ),
    (
        "UNCLEAR",
        "The samples show neither a difference above the floor nor that there is none, or there is reason to doubt "
        "them. This is not SAME; the reason beside it says what would settle it.",
    ),
    (
        "category",
        "Where the whole interval of a speed-up lies: "
        + ", ".join(f"{name} over {low:g}×" if low else f"otherwise {name}" for name, low, _ in CATEGORIES)
        + ". An interval across a border has both names.",
    ),
)
"""Words of a report that a new reader cannot know; docs/protocol.md explains them in full."""

PROVES = (
    "`verify` proves that nothing has changed since the samples were written. Only a signature can show who measured "
    "them, and only another run whether they are true."
)


def attempts(record: Record) -> str:
    """Return where the optimisation attempts are recorded (A10): in a log, because no bundle contains them."""
    ours = [c.name for c in record.measured if c.name.startswith("ours-")]
    if not ours:
        return (
            "None of the kernels measured here is groundspeed's own. A bundle holds no attempts, only what was "
            "measured in the end. The fairness record says how each contender was tuned; report --log FILE puts a log "
            "of attempts here."
        )
    commit = f", as of commit {record.run.commit[:12]}" if record.run.commit else ""
    return (
        f"What was tried on {' and '.join(ours)}, what it gained and what failed is in docs/log.md of groundspeed's "
        f"repository{commit}. A bundle holds no attempts, only what was measured in the end; report --log FILE puts "
        "such a log here."
    )
