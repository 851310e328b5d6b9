"""What the texts of one repository rest on: its bundles, each verified once, and the output of quoted commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from groundspeed.errors import BadInput, GroundspeedError, VerificationFailed
from groundspeed.evidence import store
from groundspeed.judge.judgement import CaseJudgement
from groundspeed.report.tied.figures import Source
from groundspeed.report.tied.notation import NoFigure

QUOTABLE = ("show", "verify", "compare", "grade", "claims check")
"""The commands whose output a text may quote. They only read, so that an untrusted text can do no harm."""


@dataclass
class Library:
    root: Path
    verify: Callable[[Path], Source]
    """Raises BadInput or VerificationFailed for a folder that is no bundle, or not the one that was written."""
    run: Callable[[Path, list[str]], str]
    """Returns what `groundspeed` prints in a folder with these arguments."""
    used: dict[Path, Source] = field(default_factory=dict)
    quoted: dict[str, set[str]] = field(default_factory=dict)
    """The cases of a bundle that a text quotes, by the bundle's identity."""
    charts: dict[tuple[str, bool], str] = field(default_factory=dict)
    """The charts drawn so far, by the bundle's identity and whether they are for a dark page."""
    _named: dict[str, Source | NoFigure] = field(default_factory=dict)
    _refused: dict[Path, NoFigure] = field(default_factory=dict)
    _printed: dict[str, str] = field(default_factory=dict)

    def bundle(self, name: str) -> Source:
        """Return the bundle of this name; raise NoFigure if there is none, or if it does not verify."""
        if name not in self._named:
            self._named[name] = self._find(name)
        found = self._named[name]
        if isinstance(found, NoFigure):
            raise found
        return found

    def whole(self, name: str) -> Source:
        """Return a bundle and record that a text quotes all of its cases."""
        source = self.bundle(name)
        self.quote(source, source.judgement.cases)
        return source

    def quote(self, source: Source, cases: Iterable[CaseJudgement]) -> None:
        self.quoted.setdefault(source.bundle.identity, set()).update(case.facts.name for case in cases)

    def _find(self, name: str) -> Source | NoFigure:
        try:
            path = store.find_committed(name, self.root)
        except GroundspeedError as error:
            return NoFigure("missing bundle", str(error))
        if path not in self.used and path not in self._refused:
            try:
                self.used[path] = self.verify(path)
            except (BadInput, VerificationFailed) as error:
                self._refused[path] = NoFigure("damaged bundle", f"{error}; restore the bundle, or measure again")
        return self.used.get(path) or self._refused[path]

    def printed(self, command: str) -> str:
        """Return what a quoted command prints; raise NoFigure for a command that may not be quoted."""
        if command not in self._printed:
            try:
                words = shlex.split(command)
            except ValueError:
                words = []
            verb = next((v for v in QUOTABLE if words[: 1 + len(v.split())] == ["groundspeed", *v.split()]), None)
            if verb is None or any(word.startswith(("-", "/", "~")) or ".." in word for word in words[1:]):
                raise NoFigure(
                    "no such output",
                    f"{command!r:.80} cannot be quoted; a text may quote {', '.join(QUOTABLE)} without flags, for "
                    "what lies in this repository",
                )
            if verb != "claims check":  # by folder here: elsewhere a name could mean a run, a revision or nothing
                paths = [self.whole(name).bundle.path for name in words[2:]]
                words[2:] = [path.relative_to(self.root).as_posix() for path in paths]
            self._printed[command] = self.run(self.root, words[1:])
        return self._printed[command]
