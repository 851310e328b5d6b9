"""The last line of `claims check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from groundspeed.report.text import plural
from groundspeed.report.tied.check import Finding

WORDS = {"tied": "tied", "generated": "in generated blocks", "cited": "cited", "stated": "stated"}


def line(
    findings: Mapping[Path, Sequence[Finding]],
    counts: Mapping[str, int],
    bundles: int,
    stale: int = 0,
    unreadable: int = 0,
    not_compared: int = 0,
) -> str:
    """Return the last line: `OK: 212 speed numbers in 2 files: 4 tied, 208 in generated blocks; 4 bundles verified`. It
    is never OK if a file could not be read, or machine code not be compared."""
    kinds = Counter(finding.kind for found in findings.values() for finding in found)
    if stale:
        kinds["stale"] = stale
    if kinds:
        wrong = [path for path, found in findings.items() if found]
        where = f" in {len(wrong)} of {plural(len(findings), 'file')}" if wrong else ""
        what = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        return f"FAILED: {plural(kinds.total(), 'finding')}{where}: {what}"
    said = ", ".join(f"{counts[kind]:,} {words}" for kind, words in WORDS.items() if counts.get(kind))
    numbers = f"{plural(sum(counts.values()), 'speed number')} in {plural(len(findings), 'file')}"
    missing = [f"NOT CHECKED: {plural(unreadable, 'file')}"] if unreadable else []
    missing += [f"NOT COMPARED: {plural(not_compared, 'kernel')}"] if not_compared else []
    answer = f"{'; '.join(missing)}; otherwise" if missing else "OK:"
    return f"{answer} {numbers}{f': {said}' if said else ''}; {plural(bundles, 'bundle')} verified"
