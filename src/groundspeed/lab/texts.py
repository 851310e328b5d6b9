"""Texts checked against their bundles: what `claims check` and `claims write` call for a user's files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError
from groundspeed.evidence import store
from groundspeed.lab import check as bundles
from groundspeed.lab import sources
from groundspeed.report.tied import check as tied
from groundspeed.report.tied.figures import Source
from groundspeed.report.tied.library import Library
from groundspeed.report.tied.notation import NoFigure

MAX_BYTES = 8 << 20
QUOTED = "GROUNDSPEED_QUOTED"
"""Set while a command runs whose output a text quotes. A text that such a command checks may not quote a check."""
WIDTH = "140"
"""The width of a quoted output, in columns."""
SOON_S = 120


@dataclass
class Outcome:
    """What was found in a set of files."""

    findings: dict[Path, list[tied.Finding]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    """Sentences about kernels that are not, or may not be, the ones that were measured."""
    not_compared: list[str] = field(default_factory=list)
    """Sentences about kernels whose machine code was to be compared and could not be."""
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    bundles: int = 0


def check(files: Sequence[Path], rebuild: bool = False) -> Outcome:
    """Check the files. With `rebuild`, a kernel whose code changed is compiled to tell whether its machine code
    changed."""
    return _each(files, None, rebuild)


def write(files: Sequence[Path], save: Callable[[Path, str], None]) -> Outcome:
    """Fill in the files through `save`, then check them."""
    return _each(files, save)


def _each(files: Sequence[Path], save: Callable[[Path, str], None] | None, rebuild: bool = False) -> Outcome:
    outcome, libraries = Outcome(), dict[Path, Library]()
    for path in dict.fromkeys(files):
        try:
            content = _read(path)
        except BadInput as error:
            outcome.unreadable.append(str(error))
            continue
        root = store.root_of(path)
        library = libraries.setdefault(root, Library(root, _verified, _printed))
        if save:
            content, filled = tied.write(content, path, library)
            for target, made in ((path, content), *filled.items()):
                if not target.is_file() or _read(target) != made:
                    save(target, made)
                    outcome.written.append(target)
        checked = tied.check(content, path, library)
        outcome.findings[path] = checked.findings
        outcome.counts += checked.counts
    changed: dict[sources.Change, list[str]] = {}
    for library in libraries.values():
        outcome.bundles += len(library.used)
        for source in library.used.values():
            quoted = library.quoted.get(source.bundle.identity, set()) if rebuild else None
            for change in sources.changes(source.bundle.record, quoted):
                changed.setdefault(change, []).append(source.bundle.short)
    for change, shorts in changed.items():
        since = f"{change.sentence} since {', '.join(shorts)}"
        if not change.stale:
            outcome.notes.append(since)
        elif not change.compared:
            outcome.not_compared.append(since)
        else:
            way_out = "measure it again" if rebuild else "--rebuild shows whether its machine code did"
            outcome.stale.append(f"{since}; {way_out}")
    return outcome


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', error)}; name a Markdown file") from None
    if len(content) > MAX_BYTES:
        raise BadInput(f"{path} has more than {MAX_BYTES:,} bytes, too many for a text; name a Markdown file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 (byte {error.start:,}); save it as UTF-8") from None


def _verified(path: Path) -> Source:
    found, replay = bundles.verify(path)
    return Source(found, replay.judgement)


def _printed(root: Path, arguments: list[str]) -> str:
    if QUOTED in os.environ and arguments[0] == "claims":
        raise NoFigure(
            "no such output", "a text that a quoted command checks cannot quote a check itself; remove that block"
        )
    call = [sys.executable, "-c", "from groundspeed.cli import main; main()", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": WIDTH, "PYTHONIOENCODING": "utf-8", QUOTED: "1"}
    try:
        done = subprocess.run(call, capture_output=True, cwd=root, env=environment, timeout=SOON_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GroundspeedError(f"`groundspeed {' '.join(arguments)}` did not finish ({type(error).__name__})") from None
    said, why = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 3) or not said:
        raise NoFigure(
            "no such output", f"{why.strip().removeprefix('groundspeed: ')[:300]} (the command of this block)"
        )
    return "\n".join(line.rstrip() for line in said.splitlines()) + "\n"
